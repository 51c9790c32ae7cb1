"""Counting of calls, for costs that no result shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType


@contextmanager
def calls_of(function: Callable[..., object]) -> Iterator[Callable[[], int]]:
    """Count the calls of a function or method in this thread; yield how many there were until now."""
    assert isinstance(function, FunctionType)
    code, calls = function.__code__, 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is code

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(before)
