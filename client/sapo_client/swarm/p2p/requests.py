"""Request and response on a stream of their own; both length-prefixed and bounded.

Peer ids are free, so no shared resource is held while waiting for a peer. Requests are read, and answers are
sent, within the few streams of each peer; one of the shared places for concurrent work is held only in
between.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(slots=True)
class _Asker:
    """A peer that has streams open here.

    Attributes:
        answers: limits its answers that are computed or sent at the same time.
    """

    answers: trio.CapacityLimiter
    open_streams: int = 0


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
        self._lapses = KeyedBuckets(limits.lapses, _MAX_BUCKETS)
        self._askers: dict[str, _Asker] = {}

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
        asker = self._askers.setdefault(
            peer_id, _Asker(trio.CapacityLimiter(self._limits.max_answers_at_once))
        )
        asker.open_streams += 1
        try:
            request = await self._read(stream, peer_id)
            if request is not None:
                await self._answer_in_time(stream, peer_id, request, handler)
        finally:
            asker.open_streams -= 1
            if not asker.open_streams:
                del self._askers[peer_id]

    def _admit(self, peer_id: str) -> bool:
        now_seconds = trio.current_time()
        if not self._asked.take(peer_id, now_seconds):
            self._discipline.blame(peer_id, Severity.HIGH, now_seconds)
            return False
        asker = self._askers.get(peer_id)  # of a busy node an honest peer may have too many: no blame
        return asker is None or asker.open_streams < self._limits.max_open_requests

    async def _read(self, stream: INetStream, peer_id: str) -> bytes | None:
        """Return the request; None if the stream ends without one, or none comes in time."""
        request: bytes | None = None
        with trio.move_on_after(self._limits.request_read_seconds) as scope:
            request = await FrameReader(stream, self._limits.max_request_bytes).next()
        if scope.cancelled_caught:
            self._note_lapse(peer_id)
            await stream.reset()
        return request

    def _note_lapse(self, peer_id: str) -> None:
        """Penalise a peer whose requests time out more often than an honest one's on a slow link."""
        self._counters.requests_lapsed += 1
        now_seconds = trio.current_time()
        if not self._lapses.take(peer_id, now_seconds):
            self._discipline.blame(peer_id, Severity.HIGH, now_seconds)

    async def _answer_in_time(
        self, stream: INetStream, peer_id: str, request: bytes, handler: Handler
    ) -> None:
        answered = False
        with trio.move_on_after(self._limits.request_timeout_seconds):
            async with self._askers[peer_id].answers:
                response = await self._response(peer_id, request, handler)
                if response is not None:
                    await stream.write(frame(response))
                    self._counters.requests_served += 1
                    await cast(NetStream, stream).close_write()
                    answered = True
        if not answered:
            await stream.reset()

    async def _response(self, peer_id: str, request: bytes, handler: Handler) -> bytes | None:
        """Return the handler's response, once there is a place for the request; None if it refuses."""
        async with self._at_once:
            with ContainExceptions(self._report_bug):
                try:
                    return await handler(peer_id, request)
                except ProtocolError:
                    self._discipline.blame(peer_id, Severity.MID, trio.current_time())
        return None

    def _report_bug(self, error: Exception) -> None:
        self._counters.bugs += 1
        self._on_bug(error)
