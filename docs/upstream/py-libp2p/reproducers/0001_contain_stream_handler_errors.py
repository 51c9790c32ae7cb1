"""A stream handler that fails on what a peer wrote ends the process."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from libp2p.custom_types import TProtocol
from libp2p.network.stream.exceptions import StreamError
from support import LOOPBACK, connect, ended_by, main, new_host

PROTOCOL = TProtocol("/reproducer")


async def reproduce() -> str:
    """Return the fault that was found."""
    faults: list[str] = []
    victim, attacker = new_host(201), new_host(202)

    async def parse(stream: Any) -> None:
        (await stream.read(1)).decode("ascii")

    victim.set_stream_handler(PROTOCOL, parse)
    with ended_by(UnicodeDecodeError, faults):
        async with victim.run([LOOPBACK]), attacker.run([]):
            await connect(attacker, victim)
            stream = await attacker.new_stream(victim.get_id(), [PROTOCOL])
            await stream.write(b"\xff")
            with suppress(StreamError):
                await stream.read(1)  # returns when the victim resets the stream
    return "".join(faults)


if __name__ == "__main__":
    main(reproduce)
