"""The functions of an imported module get the code of another source of it, under whichever name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from mutation.hot import transplant

SOURCE = """
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache

def plain(a, b=1):
    return a < 2

@lru_cache
def cached(a):
    return a < 2

@contextmanager
def managed(a):
    yield a < 2

@dataclass(frozen=True, slots=True)
class Slotted:
    a: int

    @property
    def shown(self):
        return self.a < 2

class Kept:
    @classmethod
    def made(cls, a):
        return a < 2

    @cached_property
    def found(self):
        return 2 < 2
"""


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """An imported module."""
    made = ModuleType("judged_module")
    made.__file__ = "judged_module.py"
    sys.modules[made.__name__] = made
    exec(SOURCE, made.__dict__)
    yield made
    del sys.modules[made.__name__]


def results(module: ModuleType) -> list[bool]:
    with module.managed(2) as managed:
        found = [module.plain(2), module.cached.__wrapped__(2), managed, module.Slotted(2).shown]
    return [*found, module.Kept.made(2), module.Kept().found]


def test_every_kind_of_function_gets_the_other_code(module: ModuleType) -> None:
    before, plain = results(module), module.plain
    transplant(module, SOURCE.replace("< 2", "<= 2").replace("b=1", "b=7"))
    assert (before, results(module)) == ([False] * 6, [True] * 6)
    assert (plain, plain.__defaults__) == (module.plain, (7,))
