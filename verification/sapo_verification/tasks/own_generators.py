"""Generators of families that ReasoningGYM does not have: from a random generator and settings to an item.

An item is a mapping like ReasoningGYM's: ``question``, ``answer`` and ``metadata``. A generator draws from
what it is given and from nothing else: no clock, no file, no global state, no order of a set. It raises
``ValueError`` where it has no item.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

Generator = Callable[[random.Random, Mapping[str, Any]], Mapping[str, Any]]
"""The item of a random generator in its first state, under a level's settings."""

OWN_GENERATORS: Final[Mapping[str, Generator]] = {}
"""By the name of the family."""
