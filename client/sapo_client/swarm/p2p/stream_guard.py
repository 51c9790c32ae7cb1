"""Guard around every handler of an inbound stream.

Stock: an error of a handler ends the connection's nursery, with it the swarm service, with it the
process, so one malformed frame from any peer kills the node. Here the error is counted, the stream is
reset and the peer is blamed and dropped. A connection that simply went away blames nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from libp2p.io.exceptions import IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.stream.exceptions import StreamError
from libp2p.stream_muxer.exceptions import MuxedConnError, MuxedStreamError

from sapo_client.swarm.guard import Contained

StreamHandler = Callable[[Any], Awaitable[None]]
Blame = Callable[[str, Exception], None]

INNOCENT: Final[tuple[type[Exception], ...]] = (
    IOException,
    MuxedConnError,
    MuxedStreamError,
    RawConnError,
    StreamError,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)
"""What a connection that breaks looks like; everything else is a frame that no honest peer sends."""


def guarded(handler: StreamHandler, blame: Blame) -> StreamHandler:
    """`handler`, with its errors contained to its stream and its peer."""

    async def handle(stream: Any) -> None:
        errors: list[Exception] = []
        with Contained(errors.append):
            await handler(stream)
        if not errors:
            return
        with Contained(errors.append):
            await stream.reset()
        if not isinstance(errors[0], INNOCENT):
            blame(str(stream.muxed_conn.peer_id), errors[0])

    return handle
