"""Kills of a process at any change of a folder: before each file is renamed, removed or created."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.crashing import Killed

_CHANGES = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir"})


@dataclass
class _Watched:
    """How many changes are still made; None: any number."""

    left: int | None = None


_WATCHED = _Watched()


def _hook(event: str, _: object) -> None:
    if _WATCHED.left is None or event not in _CHANGES:
        return
    if _WATCHED.left <= 0:
        raise Killed
    _WATCHED.left -= 1


@contextmanager
def killed_after(changes: int) -> Iterator[None]:
    """Let this process make so many changes of folders and end, as ``Killed``, before the next one."""
    if not _INSTALLED:
        sys.addaudithook(_hook)  # it cannot be removed again
        _INSTALLED.append(True)
    _WATCHED.left = changes
    try:
        yield
    finally:
        _WATCHED.left = None


_INSTALLED: list[bool] = []
