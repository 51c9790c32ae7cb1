"""Settings of glibc's memory allocator for training on a CPU; on other C libraries nothing happens."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameter numbers of mallopt in glibc's malloc.h."""

_TRIM_THRESHOLD_BYTES: Final = 2**31 - 1
"""The largest value that mallopt takes: practically never."""

_MMAP_THRESHOLD_BYTES: Final = 2**30
"""Larger than any tensor of a small model's training step."""


def keep_freed_memory() -> None:
    """Make malloc keep freed memory, so that the next step reuses it.

    By default glibc returns large blocks to the kernel at once and gets them back zeroed, page by page: a
    tenth of a small model's training step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


def return_freed_memory() -> None:
    """Return freed memory to the kernel once, for allocations that do not go through malloc."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
