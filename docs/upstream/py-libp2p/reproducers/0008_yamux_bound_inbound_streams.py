"""A peer opens any number of streams on one connection."""

from __future__ import annotations

from contextlib import suppress

import trio
from libp2p.stream_muxer.exceptions import MuxedStreamError
from support import LOOPBACK, connect, holds, main, new_host

OPENED = 1100


async def reproduce() -> str:
    """Return the fault that was found."""
    victim, attacker = new_host(201), new_host(202)
    async with victim.run([LOOPBACK]), attacker.run([]):
        await connect(attacker, victim)
        [[connection]] = attacker.get_network().connections.values()
        [[accepted]] = victim.get_network().connections.values()
        connection.muxed_conn.stream_backlog_semaphore = trio.Semaphore(OPENED)  # its own courtesy
        before = len(accepted.muxed_conn.streams)
        with suppress(MuxedStreamError):
            for _ in range(OPENED):
                last = await connection.muxed_conn.open_stream()
        peak = before + OPENED
        await holds(lambda: last.reset_received or len(accepted.muxed_conn.streams) >= peak)
        return "" if last.reset_received else f"all {OPENED} streams are open"


if __name__ == "__main__":
    main(reproduce)
