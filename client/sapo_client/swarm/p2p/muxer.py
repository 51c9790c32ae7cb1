"""Yamux with bounds per connection.

Stock yamux only logs a peer that overruns its receive window and takes any number of streams, so one
connection can fill the memory. Here a connection that holds more than its share is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable
from libp2p.stream_muxer.yamux.yamux import Yamux, YamuxStream
from libp2p.transport.upgrader import TransportUpgrader

from sapo_client.swarm.guard import Contained
from sapo_client.swarm.limits import TransportLimits


class CalmStream(YamuxStream):  # type: ignore[misc]
    """Stream that returns receive window half a window at a time; stock does so on every other read."""

    _pending_recv_release: int

    async def _auto_tune_and_send_window_update(self, *, bytes_read: int = 0) -> None:
        self._pending_recv_release += bytes_read
        if self._pending_recv_release < self.target_recv_window // 2:
            return
        released, self._pending_recv_release = self._pending_recv_release, 0
        self.recv_window += released
        await self.send_window_update(released)


class BoundedYamux(Yamux):  # type: ignore[misc]
    """One multiplexed connection within its limits."""

    def __init__(
        self, secured: Any, peer_id: Any, *, limits: TransportLimits, report: Callable[[Exception], None]
    ) -> None:
        super().__init__(secured, peer_id, is_initiator=secured.is_initiator)
        self._limits = limits
        self._report = report

    async def start(self) -> None:
        """Serve the connection; its errors end it and nothing else."""
        with Contained(self._report):
            await super().start()

    async def accept_stream(self) -> Any:
        """Next stream that the peer opens, up to the limit."""
        stream = await super().accept_stream()
        if len(self.streams) > self._limits.max_streams_per_connection:
            await self.close()
            raise MuxedConnUnavailable("peer opened too many streams")
        stream.__class__ = CalmStream  # stock names the class of its streams in the code
        return stream

    async def open_stream(self) -> Any:
        """New stream to the peer."""
        stream = await super().open_stream()
        stream.__class__ = CalmStream
        return stream

    async def _read_data_body(self, length: int) -> bytes:
        buffered_bytes = sum(len(buffer) for buffer in self.stream_buffers.values())
        if buffered_bytes + length > self._limits.max_buffered_bytes_per_connection:
            raise trio.TooSlowError  # the one error here that ends the connection; others lose the framing
        body: bytes = await super()._read_data_body(length)
        return body


class BoundedUpgrader(TransportUpgrader):  # type: ignore[misc]
    """Upgrader that builds our multiplexer; stock names its own class in the code."""

    def __init__(
        self, security: Any, muxers: Any, *, limits: TransportLimits, report: Callable[[Exception], None]
    ) -> None:
        super().__init__(secure_transports_by_protocol=security, muxer_transports_by_protocol=muxers)
        self._limits = limits
        self._report = report

    async def upgrade_connection(self, secured: Any, peer_id: Any) -> BoundedYamux:
        """Negotiate yamux and build the bounded one."""
        await super().upgrade_connection(secured, peer_id)
        return BoundedYamux(secured, peer_id, limits=self._limits, report=self._report)
