"""A reader of small pieces writes a window update for nearly each of them."""

from __future__ import annotations

from typing import Any

import trio
from libp2p.stream_muxer.yamux.yamux import Yamux, YamuxStream
from support import PEER, main

PIECES, PIECE_BYTES = 100, 300


async def reproduce() -> str:
    """Return the fault that was found."""

    class Wire:
        """A secured connection that counts the frames written on it."""

        is_initiator = True
        frames = 0

        async def write(self, data: bytes) -> None:
            await trio.lowlevel.checkpoint()
            self.frames += 1

    wire: Any = Wire()
    connection = Yamux(wire, PEER, is_initiator=True)
    stream = connection.streams[1] = YamuxStream(1, connection, True)
    connection.stream_buffers[1] = bytearray(PIECES * PIECE_BYTES)
    connection.stream_events[1] = trio.Event()
    stream.recv_window -= PIECES * PIECE_BYTES
    for _ in range(PIECES):
        await stream.read(PIECE_BYTES)
    return f"{wire.frames} window updates for {PIECES} reads" if wire.frames > 1 else ""


if __name__ == "__main__":
    main(reproduce)
