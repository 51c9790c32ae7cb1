"""Processes of the jail, started by a test itself."""

import os
from typing import Final

from sapo_verification.jail.launch import environment

ENVIRONMENT: Final = {**os.environ, **environment()}
"""What a node gives such a process, and the variables by which coverage is measured in child processes."""
