"""What would stop the event loop for longer than a message, kept away from it.

Writers of the database only append to a log. Copying that log into the file is what waits for the disk, tens
of milliseconds at a time under a flood: a thread does it. And a full garbage collection walks through
every object, of which importing alone makes two hundred thousand: those are set aside once.
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
"""A flood of a thousand hostile answers a second writes 2 MB in it."""


async def keep_log_short(database: Path) -> None:
    """Copies what was written into the database file, once a second, until cancelled."""
    while True:
        await trio.to_thread.run_sync(checkpoint, database)
        await trio.sleep(_INTERVAL_SECONDS)


@contextmanager
def start_up_set_aside() -> Iterator[None]:
    """Yield a time in which garbage collections pass over everything that exists at its beginning."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
