"""Idle request streams and unread answers do not block other peers' requests."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from libp2p.network.stream.exceptions import StreamEOF
from trio.testing import MockClock, wait_all_tasks_blocked

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.frames import frame
from sapo_client.swarm.p2p.requests import Requests
from sapo_client.swarm.peer_score import PeerScores, Severity

PROTOCOL = "/sapo/test/1"
LIMITS = TransportLimits()
NEVER = float("inf")


@dataclass
class AskedStream:
    """One end of a stream in memory: what a peer writes after some seconds, and what it is answered.

    Attributes:
        takes_bytes: the peer takes so many bytes of an answer, and no more.
    """

    peer_id: str
    request: bytes = b""
    written_after_seconds: float = 0.0
    takes_bytes: float = NEVER
    answer: bytes = b""
    end: str = "open"
    parts: deque[bytes] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.muxed_conn = SimpleNamespace(peer_id=self.peer_id)
        self.parts.append(frame(self.request))

    async def read(self, _max_bytes: int) -> bytes:
        """Return the request once it is written."""
        if not self.parts:
            raise StreamEOF
        await trio.sleep(self.written_after_seconds)
        return self.parts.popleft()

    async def write(self, data: bytes) -> None:
        """Take an answer, or wait for ever with one that is too long."""
        if len(data) > self.takes_bytes:
            await trio.sleep_forever()
        self.answer += data

    async def close_write(self) -> None:
        """End the stream after the answer."""
        self.end = "answered"

    async def reset(self) -> None:
        """End the stream without an answer."""
        self.end = "reset"


class RequestServer:
    """The server of requests, without a network; peers are disconnected by their names."""

    def __init__(self, nursery: trio.Nursery, limits: TransportLimits) -> None:
        self._nursery = nursery
        self._handlers: dict[str, Any] = {}
        host: Any = SimpleNamespace(set_stream_handler=self._handlers.__setitem__)
        self.counters, self.disconnected, self.bugs = TransportCounters(), list[str](), list[Exception]()
        discipline = Discipline(PeerScores(), self.counters, self.disconnected.append)
        self.scores = discipline.scores
        Requests(host, limits, discipline, self.counters, self.bugs.append).serve(PROTOCOL, self._answer)

    async def _answer(self, _peer_id: str, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return request

    async def open(self, peer_id: str, **options: Any) -> AskedStream:
        """Open a stream as a peer does."""
        stream = AskedStream(peer_id, **options)
        self._nursery.start_soon(self._handlers[PROTOCOL], stream)
        await wait_all_tasks_blocked()
        return stream

    def score(self, peer_id: str) -> float:
        """The peer's score now."""
        return self.scores.score(peer_id, trio.current_time())


@asynccontextmanager
async def serving(limits: TransportLimits = LIMITS) -> AsyncIterator[RequestServer]:
    """Serve requests until the block ends."""
    async with trio.open_nursery() as nursery:
        server = RequestServer(nursery, limits)
        yield server
        nursery.cancel_scope.cancel()
    assert server.bugs == []


async def test_streams_without_a_request_leave_all_places_free(swarm: Any, tools: Any, hostile: Any) -> None:
    limits = TransportLimits(max_requests_at_once=2)
    victim = await swarm.start(1, limits=limits)
    honest = await swarm.start(2, bootstrap=victim.transport.addresses)
    await swarm.wait_until_connected([victim, honest])

    async def answer(_peer_id: str, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return request

    victim.transport.serve(PROTOCOL, answer)
    await hostile.connect(victim.transport.addresses[0])
    for _ in range(limits.max_open_requests):
        await hostile.open(victim.peer_id, PROTOCOL)
    ask = honest.transport.request
    assert await ask(victim.peer_id, PROTOCOL, b"hello", max_response_bytes=9) == b"hello"


async def test_idle_peers_in_any_number_block_no_other_peer(autojump_clock: MockClock) -> None:
    async with serving() as server:
        for number in range(LIMITS.max_connections):
            for _ in range(LIMITS.max_open_requests):
                await server.open(f"stranger {number}", written_after_seconds=NEVER)
        honest = await server.open("honest", request=b"hello")
    assert (honest.answer, honest.end) == (frame(b"hello"), "answered")


async def test_unread_answers_do_not_block_others(autojump_clock: MockClock) -> None:
    async with serving() as server:
        for number in range(LIMITS.max_connections):
            for _ in range(LIMITS.max_open_requests):
                await server.open(f"stranger {number}", request=bytes(10), takes_bytes=1)
        honest = await server.open("honest", request=b"hello")
    assert (honest.answer, honest.end) == (frame(b"hello"), "answered")


async def test_one_peer_has_few_streams_open_and_more_are_reset(autojump_clock: MockClock) -> None:
    async with serving() as server:
        streams = [
            await server.open("stranger", written_after_seconds=1.0, request=b"late")
            for _ in range(LIMITS.max_open_requests + 2)
        ]
        assert [stream.end for stream in streams] == ["open"] * LIMITS.max_open_requests + ["reset"] * 2
        assert (server.counters.requests_refused, server.score("stranger")) == (2, 0.0)
        await trio.sleep(1.0)
        await wait_all_tasks_blocked()
        assert [stream.end for stream in streams] == ["answered"] * LIMITS.max_open_requests + ["reset"] * 2
        again = await server.open("stranger", request=b"again")
        assert again.end == "answered"
    assert server.counters.requests_served == LIMITS.max_open_requests + 1


async def test_streams_that_are_refused_take_from_the_rate_of_their_peer(autojump_clock: MockClock) -> None:
    """Otherwise a peer that keeps its few streams open could open more without end and without blame."""
    burst = int(LIMITS.requests.burst)
    async with serving() as server:
        for _ in range(burst + 3):
            await server.open("stranger", written_after_seconds=1.0)
        assert server.counters.requests_refused == burst + 3 - LIMITS.max_open_requests
        assert server.score("stranger") == 3 * Severity.HIGH.value


async def test_a_peer_whose_streams_lapse_repeatedly_is_disconnected(autojump_clock: MockClock) -> None:
    async with serving() as server:
        opened = 0
        while not server.disconnected:
            streams = [
                await server.open("stranger", written_after_seconds=NEVER)
                for _ in range(LIMITS.max_open_requests)
            ]
            await trio.sleep(LIMITS.request_read_seconds)
            await wait_all_tasks_blocked()
            opened += len(streams)
            assert {stream.end for stream in streams} == {"reset"}
    assert server.counters.requests_lapsed == opened
    assert opened < 5 * LIMITS.max_open_requests


@pytest.mark.parametrize("slowness", [NEVER, LIMITS.request_read_seconds * 2])
async def test_a_link_on_which_every_request_is_late_is_kept(
    slowness: float, autojump_clock: MockClock
) -> None:
    """A day of an honest node whose requests all come too late: eight at first, then one in ten seconds."""
    async with serving() as server:
        for number in range(8 + 24 * 360):
            await server.open("honest", request=b"hello", written_after_seconds=slowness)
            await trio.sleep(10.0 if number >= 8 else 0.0)
        assert (server.disconnected, server.score("honest")) == ([], 0.0)


async def test_a_slow_request_is_answered(autojump_clock: MockClock) -> None:
    async with serving() as server:
        slow = await server.open(
            "honest", request=b"hello", written_after_seconds=LIMITS.request_read_seconds * 0.9
        )
        await trio.sleep(LIMITS.request_read_seconds)
        await wait_all_tasks_blocked()
    assert (slow.answer, slow.end, server.score("honest")) == (frame(b"hello"), "answered", 0.0)
