"""The in-memory swarm: same validation as over libp2p, deterministic under its seed, any weather."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport, Weather
from sapo_client.swarm.transport import Direction, TransportError, Validator
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.rules import Rule

TOPIC = "sapo/1/test/rollouts"


def _verdict(data: bytes) -> Verdict:
    return {b"i": Verdict.IGNORE, b"r": Verdict.REJECT}.get(data[:1], Verdict.ACCEPT)


@dataclass(frozen=True)
class Accepted:
    """One message that a node's validator accepted, and when."""

    seconds: float
    data: bytes
    forwarder: str


class Village:
    """Nodes of one hub and everything they accepted."""

    def __init__(self, hub: MemoryHub, nursery: trio.Nursery) -> None:
        self.hub, self.nursery = hub, nursery
        self.nodes: dict[str, MemoryTransport] = {}
        self.accepted: dict[str, list[Accepted]] = {}
        self.bugs: list[Exception] = []

    async def add(
        self, name: str, *neighbours: str, limits: TransportLimits | None = None
    ) -> MemoryTransport:
        node = MemoryTransport(self.hub, name, on_bug=self.bugs.append, limits=limits)
        self.nodes[name], self.accepted[name] = node, []
        node.subscribe(TOPIC, self._validator(self.accepted[name]))
        await self.nursery.start(node.run)
        for neighbour in neighbours:
            await node.connect(self.nodes[neighbour].addresses[0])
        return node

    @staticmethod
    def _validator(accepted: list[Accepted]) -> Validator:
        def validate(data: bytes, forwarder: str) -> Verdict:
            verdict = _verdict(data)
            if verdict is Verdict.ACCEPT:
                accepted.append(Accepted(trio.current_time(), data, forwarder))
            return verdict

        return validate

    def data(self, name: str) -> list[bytes]:
        return [message.data for message in self.accepted[name]]


@asynccontextmanager
async def village(seed: int = 0, weather: Weather | None = None) -> Any:
    async with trio.open_nursery() as nursery:
        yield Village(MemoryHub(seed, weather), nursery)
        nursery.cancel_scope.cancel()


async def test_a_message_reaches_everyone_through_others(autojump_clock: MockClock) -> None:
    async with village() as place:
        await place.add("a")
        await place.add("b", "a")
        await place.add("c", "b")
        assert await place.nodes["a"].publish(TOPIC, b"hello") == 1
        await trio.sleep(1)
        assert [(m.data, m.forwarder) for m in place.accepted["c"]] == [(b"hello", "b")]
        assert place.data("a") == []


async def test_ignored_stops_without_blame_rejected_with_blame(autojump_clock: MockClock) -> None:
    async with village() as place:
        await place.add("a")
        await place.add("b", "a")
        await place.add("c", "b")
        await place.nodes["a"].publish(TOPIC, b"ignore me")
        await place.nodes["a"].publish(TOPIC, b"reject me")
        await trio.sleep(1)
        assert place.data("b") == place.data("c") == []
        assert place.nodes["b"].score("a") == pytest.approx(-5, abs=0.1)
        assert place.nodes["c"].score("b") == 0
        [info] = [peer for peer in place.nodes["b"].peers() if peer.peer_id == "a"]
        assert (info.received, info.rejected, info.direction) == (2, 1, Direction.OUTBOUND)


async def test_a_persistent_offender_loses_its_connection_for_a_while(autojump_clock: MockClock) -> None:
    async with village() as place:
        await place.add("a")
        await place.add("b", "a")
        for number in range(4):
            await place.nodes["a"].publish(TOPIC, b"r" + bytes([number]))
        await trio.sleep(1)
        assert place.nodes["b"].peers() == place.nodes["a"].peers() == ()
        await place.nodes["a"].connect(place.nodes["b"].addresses[0])  # just above the line again
        await place.nodes["a"].publish(TOPIC, b"r again")
        await trio.sleep(1)
        with pytest.raises(TransportError):
            await place.nodes["a"].connect(place.nodes["b"].addresses[0])
        await trio.sleep(600)
        await place.nodes["a"].connect(place.nodes["b"].addresses[0])


async def test_latency_is_on_the_clock(autojump_clock: MockClock) -> None:
    async with village(weather=Weather(min_latency_seconds=3600, max_latency_seconds=3600)) as place:
        await place.add("a")
        await place.add("b", "a")
        started = trio.current_time()
        await place.nodes["a"].publish(TOPIC, b"slow")
        await trio.sleep(4000)
        [message] = place.accepted["b"]
        assert message.seconds - started == pytest.approx(3600)


async def test_a_partition_separates_and_heals(autojump_clock: MockClock) -> None:
    async with village() as place:
        await place.add("a")
        await place.add("b", "a")
        await place.add("c", "a", "b")
        place.hub.partition({"a"}, {"b", "c"})
        await place.nodes["b"].publish(TOPIC, b"among us")
        with pytest.raises(TransportError):
            await place.nodes["a"].request("b", "/x", b"", max_response_bytes=1)
        await trio.sleep(1)
        place.hub.heal()
        await place.nodes["b"].publish(TOPIC, b"after")
        await trio.sleep(1)
        assert place.data("a") == [b"after"]
        assert place.data("c") == [b"among us", b"after"]


async def test_loss_duplication_and_reordering(autojump_clock: MockClock) -> None:
    weather = Weather(max_latency_seconds=10, loss_share=0.3, duplicate_share=0.5)
    async with village(seed=3, weather=weather) as place:
        await place.add("a")
        await place.add("b", "a")
        sent = [b"%04d" % number for number in range(300)]
        for data in sent:
            await place.nodes["a"].publish(TOPIC, data)
        await trio.sleep(60)
        received = place.data("b")
        assert 0.6 < len(received) / len(sent) < 0.8
        assert received != sorted(received)
        assert len(set(received)) == len(received)
        assert place.nodes["b"].counters()["duplicates"] > 50


async def _history(seed: int) -> dict[str, list[Accepted]]:
    weather = Weather(min_latency_seconds=0.01, max_latency_seconds=2, loss_share=0.1, duplicate_share=0.2)
    async with village(seed, weather) as place:
        started = trio.current_time()
        await place.add("a")
        for number in range(1, 6):
            await place.add(f"n{number}", "a", *(["n1"] if number > 1 else []))
        for number in range(20):
            await place.nodes[f"n{number % 5 + 1}"].publish(TOPIC, bytes([number]))
            await trio.sleep(0.3)
        await trio.sleep(30)
        return {
            name: [replace(message, seconds=round(message.seconds - started, 6)) for message in accepted]
            for name, accepted in place.accepted.items()
        }


async def test_the_same_seed_gives_the_same_deliveries(autojump_clock: MockClock) -> None:
    first, second, other = await _history(11), await _history(11), await _history(12)
    assert first == second
    assert first != other


async def test_a_flood_is_cut_and_its_sender_expelled(autojump_clock: MockClock) -> None:
    async with village() as place:
        await place.add("flooder")
        limits = TransportLimits(messages=Rate(per_second=1, burst=50))
        await place.add("b", "flooder", limits=limits)
        for number in range(200):
            await place.nodes["flooder"].publish(TOPIC, number.to_bytes(2, "big"))
        await trio.sleep(1)
        assert len(place.data("b")) == 50
        assert place.nodes["b"].peers() == ()


async def test_requests(autojump_clock: MockClock) -> None:
    async with village() as place:
        await place.add("a")
        await place.add("b", "a")
        answers = {b"ping": b"pong", b"big": bytes(100)}
        bug = KeyError("ours")

        async def handler(asker: str, payload: bytes) -> bytes:
            await trio.sleep(20 if payload == b"slow" else 0)
            if payload == b"bug":
                raise bug
            if payload == b"bad":
                raise RemoteProtocolError(Rule.ENVELOPE_KEYS, "as asked for")
            assert asker == "b"
            return answers[payload]

        place.nodes["a"].serve("/x", handler)
        ask = place.nodes["b"].request
        assert await ask("a", "/x", b"ping", max_response_bytes=4) == b"pong"
        for payload in (b"big", b"slow", b"bug", b"bad"):
            with pytest.raises(TransportError):
                await ask("a", "/x", payload, max_response_bytes=99)
        with pytest.raises(TransportError):
            await ask("a", "/unserved", b"", max_response_bytes=1)
        with pytest.raises(TransportError):
            await ask("nobody", "/x", b"", max_response_bytes=1)
        assert place.bugs == [bug]
        assert place.nodes["a"].score("b") == pytest.approx(-5, abs=0.2)


async def test_a_node_that_stops_is_gone_and_may_come_back(autojump_clock: MockClock) -> None:
    async with village() as place:
        await place.add("a")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                guest = MemoryTransport(place.hub, "guest", on_bug=place.bugs.append)
                await nursery.start(guest.run)
                await guest.connect(place.nodes["a"].addresses[0])
                assert [peer.peer_id for peer in place.nodes["a"].peers()] == ["guest"]
                scope.cancel()
        assert place.nodes["a"].peers() == ()
        await place.add("guest", "a")
        await place.nodes["guest"].publish(TOPIC, b"back")
        await trio.sleep(1)
        assert place.data("a") == [b"back"]
