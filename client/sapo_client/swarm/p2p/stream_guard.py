"""Guard around every handler of an inbound stream.

Stock: an error of a handler ends the connection's nursery, with it the swarm service, with it the
process, so one malformed frame from any peer kills the node. Here the error is counted, the stream is
reset and the peer is blamed and disconnected. A connection that simply went away blames nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio
from libp2p.abc import INetStream
from libp2p.io.exceptions import IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.stream.exceptions import StreamError
from libp2p.stream_muxer.exceptions import MuxedConnError, MuxedStreamError

from sapo_client.swarm.guard import ContainExceptions

StreamHandler = Callable[[INetStream], Awaitable[None]]
Blame = Callable[[str, Exception], None]
"""Called with the peer id and the error of a stream that no honest peer causes."""

CONNECTION_ERRORS: Final[tuple[type[Exception], ...]] = (
    IOException,
    MuxedConnError,
    MuxedStreamError,
    RawConnError,
    StreamError,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)
"""Errors of a connection that breaks; every other error means a frame that no honest peer sends."""


def guarded(handler: StreamHandler, blame: Blame) -> StreamHandler:
    """Return `handler` with its errors contained to its stream and its peer."""

    async def handle(stream: INetStream) -> None:
        errors: list[Exception] = []
        with ContainExceptions(errors.append):
            await handler(stream)
        if not errors:
            return
        with ContainExceptions(errors.append):
            await stream.reset()
        if not isinstance(errors[0], CONNECTION_ERRORS):
            blame(str(stream.muxed_conn.peer_id), errors[0])

    return handle
