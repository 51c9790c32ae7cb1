"""Work that would block the event loop for longer than a message does, kept out of it.

Writers of the database only append to a log. Copying that log into the file waits for the disk, tens of
milliseconds at a time under a flood: a thread does it. And a full garbage collection visits every object,
of which imports alone create two hundred thousand: those are excluded once.
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
"""In this time a flood of a thousand hostile answers a second writes 2 MB."""


async def keep_log_short(database: Path) -> None:
    """Copy the log into the database file once a second until cancelled."""
    while True:
        await trio.to_thread.run_sync(checkpoint, database)
        await trio.sleep(_INTERVAL_SECONDS)


@contextmanager
def start_up_set_aside() -> Iterator[None]:
    """Exclude all objects that exist now from garbage collections inside the block."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
