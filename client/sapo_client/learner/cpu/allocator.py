"""Settings of glibc's memory allocator for training on a CPU; on other C libraries nothing happens."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameter numbers of mallopt in glibc's malloc.h."""

_TRIM_THRESHOLD_BYTES: Final = 2**31 - 1
"""The largest value that mallopt takes: practically never."""

SMALL_PARAMETERS: Final = 2**26
"""Parameters of a small model: below it, keeping all freed memory is worth the time saved per step. It is not
their bytes, for activations do not shrink with a frozen base of 16 bits."""

_SMALL_MMAP_BYTES: Final = 2**30
"""Larger than any tensor of a small model's training step."""

_LOGITS_MMAP_BYTES: Final = 2**24
"""Smaller than all logits of a large vocabulary, larger than the activations of a small model's layer."""

_LARGE_MMAP_BYTES: Final = 2**18
"""Smaller than the activations of a large model's layer, larger than what is allocated often. With 4 MiB a
step of Qwen2.5-0.5B still had 1.3 GiB in free blocks."""


def tune_malloc(parameters: int, *, all_logits: bool) -> None:
    """Set how malloc keeps freed memory, by the model that is trained.

    By default glibc returns large blocks to the kernel at once and gets them back zeroed, page by page: a
    tenth of a small model's training step, so for one all are kept for the next step.

    But what a layer leaves for the backward pass is cut out of the large blocks that it has freed, so that
    those of the next layer do not fit there and take new memory: in a step of Qwen2.5-0.5B with LoRA, 4 GiB
    lay free beside 0.7 GiB in use. A large model's blocks are therefore given back, which costs it little.
    The same happens to a small model all of whose logits exist at once: its step took up to 1.4 times of what
    was in use. Blocks of the logits' size are given back there.

    Args:
        parameters: number of the model's.
        all_logits: whether all logits of a large vocabulary exist at once.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        if parameters >= SMALL_PARAMETERS:
            threshold = _LARGE_MMAP_BYTES
        else:
            threshold = _LOGITS_MMAP_BYTES if all_logits else _SMALL_MMAP_BYTES
        mallopt(_M_MMAP_THRESHOLD, threshold)


def return_freed_memory() -> None:
    """Return freed memory to the kernel once, for allocations that do not go through malloc."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
