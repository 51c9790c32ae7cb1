"""Prevention of long pauses of the event loop.

Writers of the database only append to the write-ahead log. The checkpoint, which waits for the disk, tens of
milliseconds under a flood, is made in a thread. A full garbage collection visits every object, of which
imports alone create two hundred thousand; these are excluded with ``gc.freeze``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from sapo_verification.store import checkpoint

_INTERVAL_SECONDS: Final = 1.0
"""Interval of checkpoints; a flood of a thousand hostile answers per second writes 2 MB in this time."""


async def keep_log_short(database: Path) -> None:
    """Checkpoint the database once a second until cancelled."""
    while True:
        await trio.to_thread.run_sync(checkpoint, database)
        await trio.sleep(_INTERVAL_SECONDS)


@contextmanager
def start_up_set_aside() -> Iterator[None]:
    """Exclude all objects that exist on entry from garbage collections inside the block."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
