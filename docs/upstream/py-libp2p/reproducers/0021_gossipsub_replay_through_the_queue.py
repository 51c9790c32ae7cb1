"""Two tasks write on one stream at the same time."""

from __future__ import annotations

from typing import Any

import trio.testing
from libp2p.pubsub.pb import rpc_pb2
from support import PEER, TOPIC, main, message, new_pubsub, register


async def reproduce() -> str:
    """Return the fault that was found."""

    class Stream:
        """A stream that sends in two pieces, as a large frame does, and records their order."""

        def __init__(self) -> None:
            self.pieces: list[bytes] = []

        async def write(self, data: bytes) -> None:
            self.pieces.append(data[:2])
            await trio.testing.wait_all_tasks_blocked()
            self.pieces.append(data[2:])

    pubsub, stream = new_pubsub(), Stream()
    written: Any = stream
    register(pubsub)
    pubsub.peers[PEER] = written
    router: Any = pubsub.router
    router.mcache.put(message(b"recent", from_id=b"a", seqno=b"1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pubsub.write_msg, written, rpc_pb2.RPC(publish=[message(b"live")]))
        nursery.start_soon(router.send_recent_messages, PEER, TOPIC)
    return "two frames interleave on the stream" if len(stream.pieces) > 2 else ""


if __name__ == "__main__":
    main(reproduce)
