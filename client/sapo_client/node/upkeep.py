"""The upkeep of the node's database, beside the event loop.

Whoever writes only appends to a log. What makes SQLite wait for the disk is copying that log into the file,
which costs tens of milliseconds at a time under a flood; a thread does it, and the loop goes on.
"""

from __future__ import annotations

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
