"""The only place of this package that catches every exception.

py-libp2p raises arbitrary errors on hostile frames (`KeyError`, `ValueError`, protobuf's
`DecodeError`, an `AssertionError`, ...), and any of them, unhandled, ends its service and with it the
process. Our own callbacks run inside the same tasks, so a bug in one would do the same. Every
exception caught here is reported, never swallowed; cancellation and other `BaseException`s pass.

`tests/test_architecture.py` lists every use, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class ContainExceptions:
    """Block whose exceptions are passed to `report` and end there."""

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self._report = report

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._report(error)
        return True
