"""Faster imports of large libraries, which create many lasting objects and hardly any garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the cyclic garbage collector inside the context.

    While a library such as transformers is imported, the collector would scan the growing heap repeatedly
    without finding garbage: a sixth of a learner's start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
