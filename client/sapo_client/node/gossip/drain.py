"""Emptying the channel of what a judge let through."""

from __future__ import annotations

import trio

from sapo_client.swarm.transport import Inbound


async def drain(channel: trio.MemoryReceiveChannel[Inbound]) -> None:
    """What arrives here was judged already, and the judge kept what it needed."""
    async for _ in channel:
        pass
