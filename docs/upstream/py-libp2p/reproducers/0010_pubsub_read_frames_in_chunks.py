"""An RPC is read one byte of its length at a time."""

from __future__ import annotations

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.tools.anyio_service import background_trio_service
from support import PEER, frame, main, message, new_pubsub

RPCS = 50


async def reproduce() -> str:
    """Return the fault that was found."""

    class Stream:
        """A stream that plays frames back and counts how often it is read."""

        metric_send_channel = None
        reads = 0
        rest = frame(rpc_pb2.RPC(publish=[message(bytes(300))]).SerializeToString()) * RPCS

        class muxed_conn:  # noqa: N801  the attribute of a stream
            peer_id = PEER

        async def read(self, count: int) -> bytes:
            await trio.lowlevel.checkpoint()
            self.reads += 1
            taken, self.rest = self.rest[:count], self.rest[count:]
            return taken

    pubsub, stream = new_pubsub(), Stream()
    async with background_trio_service(pubsub):
        await pubsub.continuously_read_stream(stream)  # type: ignore[arg-type]
    return f"{stream.reads} reads for {RPCS} RPCs" if stream.reads > RPCS else ""


if __name__ == "__main__":
    main(reproduce)
