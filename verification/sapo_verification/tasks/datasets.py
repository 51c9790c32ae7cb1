"""ReasoningGYM's data sets, built once per family and then set to each seed.

A third of them read a word list or a puzzle file when they are built, which takes up to a third of a second,
and is impossible in the jail. Setting the seed of a built one gives the same items as building it with that
seed, except for the few that draw random numbers in their constructor.
"""

import json
import random
from functools import cache
from typing import Any, Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.own_generators import OWN_GENERATORS

DRAWN_WHEN_BUILT: Final = frozenset({"acre", "gsm_symbolic", "list_functions"})
"""Families that use the seed while they are built; these read no file, and are built for each seed."""


@cache
def dataset(family: Family) -> Any:
    """Return the family's data set, with the seed of its last use."""
    return _build(family, 0)


def at_seed(family: Family, seed: int) -> Any:
    """Return the family's data set at one seed."""
    if family.name in OWN_GENERATORS:
        return (OWN_GENERATORS[family.name](random.Random(seed), json.loads(family.config)),)
    if family.name in DRAWN_WHEN_BUILT:
        return _build(family, seed)
    found = dataset(family)
    found.seed = found.config.seed = seed
    return found


def _build(family: Family, seed: int) -> Any:
    config = json.loads(family.config)
    config.pop("render")
    return create_dataset(family.name, seed=seed, **config)
