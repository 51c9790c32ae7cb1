"""Request and response on a stream of their own; both length-prefixed and bounded."""

from __future__ import annotations

from typing import Final, cast

import trio
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.network.stream.net_stream import NetStream
from libp2p.peer.id import ID

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.frames import FrameError, FrameReader, frame
from sapo_client.swarm.peer_score import Severity
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.transport import BugReport, Handler, TransportError
from sapo_protocol.errors import ProtocolError

_MAX_BUCKETS: Final = 1024  # peers whose request rate is remembered


class Requests:
    """Client and server of requests over one host."""

    def __init__(
        self,
        host: IHost,
        limits: TransportLimits,
        discipline: Discipline,
        counters: TransportCounters,
        on_bug: BugReport,
    ) -> None:
        self._host = host
        self._limits = limits
        self._discipline = discipline
        self._counters = counters
        self._on_bug = on_bug
        self._at_once = trio.CapacityLimiter(limits.max_requests_at_once)
        self._asked = KeyedBuckets(limits.requests, _MAX_BUCKETS)

    # Asking

    async def ask(self, peer_id: str, protocol: str, payload: bytes, *, max_response_bytes: int) -> bytes:
        """Return the response of a connected peer, or raise `TransportError`."""
        peer = ID.from_base58(peer_id)
        if not self._host.get_network().get_connections(peer):
            raise TransportError(f"not connected to {peer_id}")
        errors: list[Exception] = []
        with ContainExceptions(errors.append), trio.fail_after(self._limits.request_timeout_seconds):
            return await self._exchange(peer, protocol, payload, max_response_bytes)
        if isinstance(errors[0], trio.TooSlowError):
            raise TransportError(f"{peer_id} did not answer {protocol} in time")
        raise TransportError(f"{peer_id} did not answer {protocol}: {errors[0]!r}") from errors[0]

    async def _exchange(self, peer: ID, protocol: str, payload: bytes, max_response_bytes: int) -> bytes:
        stream = await self._host.new_stream(peer, [TProtocol(protocol)])
        try:
            await stream.write(frame(payload))
            response = await FrameReader(stream, max_response_bytes).next()
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(1):
                await stream.reset()  # both sides are done: nothing is left to be read
        if response is None:
            raise FrameError("no response")
        return response

    # Answering

    def serve(self, protocol: str, handler: Handler) -> None:
        """Answer requests on `protocol` with `handler`."""

        async def answer(stream: INetStream) -> None:
            await self._answer(stream, str(stream.muxed_conn.peer_id), handler)

        self._host.set_stream_handler(TProtocol(protocol), answer)

    async def _answer(self, stream: INetStream, peer_id: str, handler: Handler) -> None:
        if not self._admit(peer_id):
            self._counters.requests_refused += 1
            await stream.reset()
            return
        async with self._at_once:
            with trio.move_on_after(self._limits.request_timeout_seconds) as scope:
                await self._answer_in_time(stream, peer_id, handler)
        if scope.cancelled_caught:
            await stream.reset()

    def _admit(self, peer_id: str) -> bool:
        now_seconds = trio.current_time()
        admitted = self._asked.take(peer_id, now_seconds)
        if not admitted:
            self._discipline.blame(peer_id, Severity.HIGH, now_seconds)
        return admitted

    async def _answer_in_time(self, stream: INetStream, peer_id: str, handler: Handler) -> None:
        payload = await FrameReader(stream, self._limits.max_request_bytes).next()
        if payload is None:
            return
        responses: list[bytes] = []
        with ContainExceptions(self._report_bug):
            try:
                responses.append(await handler(peer_id, payload))
            except ProtocolError:
                self._discipline.blame(peer_id, Severity.MID, trio.current_time())
        if not responses:
            await stream.reset()
            return
        await stream.write(frame(responses[0]))
        self._counters.requests_served += 1
        await cast(NetStream, stream).close_write()

    def _report_bug(self, error: Exception) -> None:
        self._counters.bugs += 1
        self._on_bug(error)
