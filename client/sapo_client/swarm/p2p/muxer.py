"""Yamux with bounds per connection.

Stock yamux only logs a peer that overruns its receive window and takes any number of streams, so one
connection can fill the memory. Here a connection that holds more than its share is closed. Before it ends a
stream or a connection, stock sends a closing frame without a time limit, and hangs while the peer reads
nothing. Here the limit is a second. Stock ignores an unanswered ping; here a silent connection is ended.

And stock reads as fast as the peer writes, and serves each stream that it opens. A header without data has
twelve bytes and takes as long to process as a large frame; a stream that is opened and reset at once takes 24
bytes, and a negotiation to serve. So the rates of reads and of new streams per connection are limited.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, cast

import trio
from libp2p.abc import IMuxedStream, ISecureConn
from libp2p.custom_types import TMuxerOptions, TSecurityOptions
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_SYN,
    GO_AWAY_NORMAL,
    TYPE_PING,
    YAMUX_HEADER_FORMAT,
    Yamux,
    YamuxStream,
)
from libp2p.transport.upgrader import TransportUpgrader

from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.negotiation import BoundedMultiselect, BoundedMultiselectClient
from sapo_client.swarm.p2p.stream_guard import Blame
from sapo_client.swarm.rate_limit import TokenBucket

_FAREWELL_SECONDS: Final = 1.0

_READ_SECONDS: Final = 0.5
"""Time for a node that was suspended to read buffered data, before it treats a peer as silent."""


class BatchingStream(YamuxStream):
    """Stream that returns receive window half a window at a time; stock does so on every other read."""

    @staticmethod
    def replacing(stream: IMuxedStream) -> BatchingStream:
        """Return the same stream with this class: stock names the class of its streams in the code."""
        stream.__class__ = BatchingStream
        return cast(BatchingStream, stream)

    async def reset(self) -> None:
        """End the stream at once; a peer that reads no data is not notified."""
        with trio.move_on_after(_FAREWELL_SECONDS) as scope:
            await super().reset()
        if scope.cancelled_caught:
            await self.conn._finalize_stream(self, fully_closed=True)

    async def _auto_tune_and_send_window_update(self, *, bytes_read: int = 0) -> None:
        self._pending_recv_release += bytes_read
        if self._pending_recv_release < self.target_recv_window // 2:
            return
        released, self._pending_recv_release = self._pending_recv_release, 0
        self.recv_window += released
        await self.send_window_update(released)


class PacedConnection:
    """A secured connection with a limited rate of reads; a reader waits.

    There is no penalty, since the size of each read depends on the network, too.
    """

    def __init__(self, connection: ISecureConn, limits: TransportLimits) -> None:
        self._connection = connection
        self._pause_seconds = limits.flood_pause_seconds
        self._reads = TokenBucket(limits.reads, trio.current_time())

    async def read(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, once they may be read."""
        while not self._reads.take(1, trio.current_time()):
            await trio.sleep(self._pause_seconds)
        return await self._connection.read(max_bytes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


class BoundedYamux(Yamux):
    """One multiplexed connection within its limits.

    Attributes:
        received_seconds: time of the last data or ping answer from the peer.
    """

    def __init__(
        self,
        secured: ISecureConn,
        peer_id: ID,
        *,
        limits: TransportLimits,
        blame: Blame,
        report: Callable[[Exception], None],
    ) -> None:
        paced = cast(ISecureConn, PacedConnection(secured, limits))
        super().__init__(paced, peer_id, is_initiator=secured.is_initiator)
        self._limits = limits
        self._blame = blame
        self._report = report
        self._opened = TokenBucket(limits.streams, trio.current_time())
        self.received_seconds = trio.current_time()

    async def start(self) -> None:
        """Serve the connection; its errors end it and nothing else."""
        with ContainExceptions(self._report):
            await super().start()

    async def close(self, error_code: int = GO_AWAY_NORMAL) -> None:
        """End the connection; a peer that reads no data is not notified."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_waiting)
            await super().close(error_code)
            nursery.cancel_scope.cancel()

    async def _stop_waiting(self) -> None:
        await trio.sleep(_FAREWELL_SECONDS)
        await self._close_socket()

    async def _close_socket(self) -> None:
        """Close the socket, so that a blocked writer fails; the reader then ends the connection."""
        with ContainExceptions(self._report):
            await self.secured_conn.close()

    async def _measure_rtt_loop(self) -> None:
        """Ping the peer after a time without data; end the connection if nothing arrives then.

        Otherwise a connection to a peer that is gone or has a new address would last until TCP's time-out.
        """
        async with trio.open_nursery() as nursery:
            while not self.event_shutting_down.is_set():
                due_seconds = self.received_seconds + self._limits.ping_after_seconds
                if trio.current_time() < due_seconds:
                    await self._sleep_until(due_seconds)
                elif not await self._answers(nursery):
                    await self._close_socket()
                    await self.event_shutting_down.wait()
            nursery.cancel_scope.cancel()

    async def _sleep_until(self, deadline_seconds: float) -> None:
        with trio.move_on_at(deadline_seconds):
            await self.event_shutting_down.wait()

    async def _answers(self, nursery: trio.Nursery) -> bool:
        """Return whether anything arrives within the time-out of a ping."""
        asked_seconds = trio.current_time()
        self._ping_event = trio.Event()
        nursery.start_soon(self._ping)  # a full buffer holds it up
        for wait_seconds in (self._limits.pong_seconds, _READ_SECONDS):
            with trio.move_on_after(wait_seconds):
                await self._ping_event.wait()
                self.received_seconds = trio.current_time()
        return self.received_seconds > asked_seconds or self.event_shutting_down.is_set()

    async def _ping(self) -> None:
        self._ping_id += 1
        ping = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_PING, FLAG_SYN, 0, self._ping_id)
        with ContainExceptions(self._report):
            await self._write_frame(ping)
            self._ping_sent_time = trio.current_time()

    async def accept_stream(self) -> BatchingStream:
        """Return the next stream that the peer opens, up to the limits of how many, and how many a second."""
        stream = await super().accept_stream()
        is_flood = not self._opened.take(1, trio.current_time())
        if is_flood or len(self.streams) > self._limits.max_streams_per_connection:
            error = MuxedConnUnavailable("peer opened too many streams")
            if is_flood:
                self._blame(str(self.peer_id), error)
            await self.close()
            raise error
        return BatchingStream.replacing(stream)

    async def open_stream(self) -> BatchingStream:
        """Return a new stream to the peer."""
        return BatchingStream.replacing(await super().open_stream())

    async def _read_data_body(self, length: int) -> bytes:
        self.received_seconds = trio.current_time()
        buffered_bytes = sum(len(buffer) for buffer in self.stream_buffers.values())
        if buffered_bytes + length > self._limits.max_buffered_bytes_per_connection:
            raise trio.TooSlowError  # the one error here that ends the connection; others lose the framing
        return await super()._read_data_body(length)


class BoundedUpgrader(TransportUpgrader):
    """Upgrader that negotiates in bounded lines and builds our multiplexer; stock names its own classes."""

    def __init__(
        self,
        security: TSecurityOptions,
        muxers: TMuxerOptions,
        *,
        limits: TransportLimits,
        blame: Blame,
        report: Callable[[Exception], None],
    ) -> None:
        super().__init__(secure_transports_by_protocol=security, muxer_transports_by_protocol=muxers)
        for selector in (self.security_multistream._selector, self.muxer_multistream._selector):
            selector.multiselect = BoundedMultiselect(selector.multiselect.handlers)
            selector.multiselect_client = BoundedMultiselectClient()
        self._limits = limits
        self._blame = blame
        self._report = report

    async def upgrade_connection(self, conn: ISecureConn, peer_id: ID) -> BoundedYamux:
        """Negotiate yamux and build the bounded one."""
        await super().upgrade_connection(conn, peer_id)
        return BoundedYamux(conn, peer_id, limits=self._limits, blame=self._blame, report=self._report)
