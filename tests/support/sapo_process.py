"""The real `sapo` command as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SAPO = str(Path(sys.executable).with_name("sapo"))
TIMEOUT_SECONDS = 120  # a hang is a failure; the slowest command in these tests takes seconds

Run = Callable[..., subprocess.CompletedProcess[str]]
