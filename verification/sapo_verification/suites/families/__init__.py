"""The families that a suite can hold beyond the paper's nine, and those that no suite can."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.algebra import ALGEBRA
from sapo_verification.suites.families.algorithmic import ALGORITHMIC
from sapo_verification.suites.families.arithmetic import ARITHMETIC
from sapo_verification.suites.families.cognition import COGNITION
from sapo_verification.suites.families.games import GAMES
from sapo_verification.suites.families.graphs import GRAPHS
from sapo_verification.suites.families.kinds import FamilySpec
from sapo_verification.suites.families.logic import LOGIC

KINDS: Final[Mapping[str, FamilySpec]] = dict(
    sorted({**ALGEBRA, **ALGORITHMIC, **ARITHMETIC, **COGNITION, **GAMES, **GRAPHS, **LOGIC}.items())
)
"""By name, in alphabetical order."""

HASH_SEED_BOUND: Final = frozenset({"polynomial_multiplication"})
"""Their questions are equal on two nodes only under the workers' PYTHONHASHSEED=0 (CPython 3.11 or newer)."""
