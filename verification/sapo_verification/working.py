"""Long computations in parts, so that whoever waits for them chooses where they run.

A generator yields what takes long as a function without arguments, and is sent what that returns. Such a
function reads nothing that others change, so it may run in another thread; everything between two of them
runs where the generator is driven, and may use stores and other state that belong to one thread.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from sapo_protocol.constants import MAX_PAGE_ROWS

T = TypeVar("T")

Working = Generator[Callable[[], Any], Any, T]
"""Yields functions, is sent their results, and returns a T."""


def part(rows: int, function: Callable[[], T]) -> Working[T]:
    """Yield a function over so many rows, or run it here if they are no more than fit into a message."""
    if rows <= MAX_PAGE_ROWS:
        return function()
    result: T = yield function
    return result


def at_once(working: Working[T]) -> T:
    """Run all parts in this thread, and return the result."""
    result = None
    while True:
        try:
            function = working.send(result)
        except StopIteration as done:
            value: T = done.value
            return value
        result = function()
