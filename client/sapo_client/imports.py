"""Imports of large libraries, which make many lasting objects and hardly any garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Leave the search for reference cycles out until the end of the context.

    While a library such as transformers is imported, Python would search the growing heap again and again for
    garbage that is not there: a sixth of a learner's start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
