"""A node that restarts gives old message ids to new messages."""

from __future__ import annotations

import trio
from support import main, new_pubsub

MESSAGES = 100


async def reproduce() -> str:
    """Return the fault that was found."""
    await trio.lowlevel.checkpoint()
    before = {new._next_seqno() for new in [new_pubsub()] for _ in range(MESSAGES)}
    after = {new._next_seqno() for new in [new_pubsub()] for _ in range(MESSAGES)}
    return f"{len(before & after)} of {MESSAGES} sequence numbers are used again" if before & after else ""


if __name__ == "__main__":
    main(reproduce)
