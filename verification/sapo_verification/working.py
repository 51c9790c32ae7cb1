"""Long computations as generators, so that the caller chooses in which thread their parts run.

A generator yields each expensive part as a function without arguments, and is sent its result. Such a
function uses no shared mutable state, so it may run in another thread. The code between two parts runs in the
caller's thread, and may use stores and other state of that thread.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from sapo_protocol.constants import MAX_PAGE_ROWS

T = TypeVar("T")

Working = Generator[Callable[[], Any], Any, T]
"""A generator that yields functions, is sent their results, and returns a T."""


def part(rows: int, function: Callable[[], T]) -> Working[T]:
    """Yield a function over ``rows`` rows, or call it directly if the rows would fit into one message."""
    if rows <= MAX_PAGE_ROWS:
        return function()
    result: T = yield function
    return result


def at_once(working: Working[T]) -> T:
    """Run all parts in the caller's thread, and return the result."""
    result = None
    while True:
        try:
            function = working.send(result)
        except StopIteration as done:
            value: T = done.value
            return value
        result = function()
