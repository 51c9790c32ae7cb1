"""The in-memory swarm: validates as libp2p does, and is deterministic for a seed and link conditions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.simulated.memory import LinkConditions, MemoryHub, MemoryTransport
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


class SimulatedSwarm:
    """Nodes of one hub and every message that they accepted."""

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
async def simulated_swarm(seed: int = 0, conditions: LinkConditions | None = None) -> Any:
    async with trio.open_nursery() as nursery:
        yield SimulatedSwarm(MemoryHub(seed, conditions), nursery)
        nursery.cancel_scope.cancel()


async def test_a_message_reaches_everyone_through_others(autojump_clock: MockClock) -> None:
    async with simulated_swarm() as swarm:
        await swarm.add("a")
        await swarm.add("b", "a")
        await swarm.add("c", "b")
        assert await swarm.nodes["a"].publish(TOPIC, b"hello") == 1
        await trio.sleep(1)
        assert [(m.data, m.forwarder) for m in swarm.accepted["c"]] == [(b"hello", "b")]
        assert swarm.data("a") == []


async def test_an_ignored_message_stops_without_a_penalty_and_a_rejected_one_with_one(
    autojump_clock: MockClock,
) -> None:
    async with simulated_swarm() as swarm:
        await swarm.add("a")
        await swarm.add("b", "a")
        await swarm.add("c", "b")
        await swarm.nodes["a"].publish(TOPIC, b"ignore me")
        await swarm.nodes["a"].publish(TOPIC, b"reject me")
        await trio.sleep(1)
        assert swarm.data("b") == swarm.data("c") == []
        assert swarm.nodes["b"].score("a") == pytest.approx(-5, abs=0.1)
        assert swarm.nodes["c"].score("b") == 0
        [info] = [peer for peer in swarm.nodes["b"].peers() if peer.peer_id == "a"]
        assert (info.received, info.rejected, info.direction) == (2, 1, Direction.OUTBOUND)


async def test_a_peer_with_repeated_faults_is_disconnected_for_a_time(autojump_clock: MockClock) -> None:
    async with simulated_swarm() as swarm:
        await swarm.add("a")
        await swarm.add("b", "a")
        for number in range(4):
            await swarm.nodes["a"].publish(TOPIC, b"r" + bytes([number]))
        await trio.sleep(1)
        assert swarm.nodes["b"].peers() == swarm.nodes["a"].peers() == ()
        await swarm.nodes["a"].connect(swarm.nodes["b"].addresses[0])  # just above the line again
        await swarm.nodes["a"].publish(TOPIC, b"r again")
        await trio.sleep(1)
        with pytest.raises(TransportError):
            await swarm.nodes["a"].connect(swarm.nodes["b"].addresses[0])
        await trio.sleep(600)
        await swarm.nodes["a"].connect(swarm.nodes["b"].addresses[0])


async def test_latency_passes_in_virtual_time(autojump_clock: MockClock) -> None:
    async with simulated_swarm(
        conditions=LinkConditions(min_latency_seconds=3600, max_latency_seconds=3600)
    ) as swarm:
        await swarm.add("a")
        await swarm.add("b", "a")
        started = trio.current_time()
        await swarm.nodes["a"].publish(TOPIC, b"slow")
        await trio.sleep(4000)
        [message] = swarm.accepted["b"]
        assert message.seconds - started == pytest.approx(3600)


async def test_a_partition_separates_and_heals(autojump_clock: MockClock) -> None:
    async with simulated_swarm() as swarm:
        await swarm.add("a")
        await swarm.add("b", "a")
        await swarm.add("c", "a", "b")
        swarm.hub.partition({"a"}, {"b", "c"})
        await swarm.nodes["b"].publish(TOPIC, b"among us")
        with pytest.raises(TransportError):
            await swarm.nodes["a"].request("b", "/x", b"", max_response_bytes=1)
        await trio.sleep(1)
        swarm.hub.heal()
        await swarm.nodes["b"].publish(TOPIC, b"after")
        await trio.sleep(1)
        assert swarm.data("a") == [b"after"]
        assert swarm.data("c") == [b"among us", b"after"]


async def test_loss_duplication_and_reordering(autojump_clock: MockClock) -> None:
    conditions = LinkConditions(max_latency_seconds=10, loss_share=0.3, duplicate_share=0.5)
    async with simulated_swarm(seed=3, conditions=conditions) as swarm:
        await swarm.add("a")
        await swarm.add("b", "a")
        sent = [b"%04d" % number for number in range(300)]
        for data in sent:
            await swarm.nodes["a"].publish(TOPIC, data)
        await trio.sleep(60)
        received = swarm.data("b")
        assert 0.6 < len(received) / len(sent) < 0.8
        assert received != sorted(received)
        assert len(set(received)) == len(received)
        assert swarm.nodes["b"].counters()["duplicates"] > 50


async def _history(seed: int) -> dict[str, list[Accepted]]:
    conditions = LinkConditions(
        min_latency_seconds=0.01, max_latency_seconds=2, loss_share=0.1, duplicate_share=0.2
    )
    async with simulated_swarm(seed, conditions) as swarm:
        started = trio.current_time()
        await swarm.add("a")
        for number in range(1, 6):
            await swarm.add(f"n{number}", "a", *(["n1"] if number > 1 else []))
        for number in range(20):
            await swarm.nodes[f"n{number % 5 + 1}"].publish(TOPIC, bytes([number]))
            await trio.sleep(0.3)
        await trio.sleep(30)
        return {
            name: [replace(message, seconds=round(message.seconds - started, 6)) for message in accepted]
            for name, accepted in swarm.accepted.items()
        }


async def test_the_same_seed_gives_the_same_deliveries(autojump_clock: MockClock) -> None:
    first, second, other = await _history(11), await _history(11), await _history(12)
    assert first == second
    assert first != other


async def test_a_flood_is_cut_and_its_sender_disconnected(autojump_clock: MockClock) -> None:
    async with simulated_swarm() as swarm:
        await swarm.add("flooder")
        limits = TransportLimits(messages=Rate(per_second=1, burst=50))
        await swarm.add("b", "flooder", limits=limits)
        for number in range(200):
            await swarm.nodes["flooder"].publish(TOPIC, number.to_bytes(2, "big"))
        await trio.sleep(1)
        assert len(swarm.data("b")) == 50
        assert swarm.nodes["b"].peers() == ()


async def test_a_relay_of_many_accounts_with_known_quotas_is_not_a_flooder(
    autojump_clock: MockClock,
) -> None:
    """Three messages a second for 200 s, where one connection may bring two; then ten times as many."""
    async with simulated_swarm() as swarm:
        limits = TransportLimits(messages=Rate(per_second=2, burst=8))
        await swarm.add("relay")
        for name in ("strict", "informed"):
            await swarm.add(name, limits=limits)
        swarm.nodes["informed"].expect(3)
        for name in ("strict", "informed"):
            await swarm.nodes[name].connect(swarm.nodes["relay"].addresses[0])
        for number in range(600):
            await swarm.nodes["relay"].publish(TOPIC, number.to_bytes(2, "big"))
            await trio.sleep(1 / 3)
        assert swarm.nodes["strict"].peers() == ()
        assert (len(swarm.data("informed")), swarm.nodes["informed"].score("relay")) == (600, 0)
        for number in range(600, 1200):
            await swarm.nodes["relay"].publish(TOPIC, number.to_bytes(2, "big"))
            await trio.sleep(1 / 30)
        assert swarm.nodes["informed"].peers() == ()


async def test_where_quotas_exceed_the_ceiling_a_flood_is_cut_without_penalty(
    autojump_clock: MockClock,
) -> None:
    """Free accounts must not make honest relays blame each other."""
    async with simulated_swarm() as swarm:
        limits = TransportLimits(messages=Rate(per_second=2, burst=8))
        await swarm.add("relay")
        victim = await swarm.add("victim", "relay", limits=limits)
        victim.expect(1e6)
        for number in range(2000):
            await swarm.nodes["relay"].publish(TOPIC, number.to_bytes(2, "big"))
            await trio.sleep(0.01)
        most = limits.max_growth * (limits.messages.burst + 20 * limits.messages.per_second)
        assert 0.9 * most < len(swarm.data("victim")) <= most
        assert (victim.score("relay"), len(victim.peers())) == (0, 1)


async def test_requests_are_answered_within_their_limits(autojump_clock: MockClock) -> None:
    async with simulated_swarm() as swarm:
        await swarm.add("a")
        await swarm.add("b", "a")
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

        swarm.nodes["a"].serve("/x", handler)
        ask = swarm.nodes["b"].request
        assert await ask("a", "/x", b"ping", max_response_bytes=4) == b"pong"
        for payload in (b"big", b"slow", b"bug", b"bad"):
            with pytest.raises(TransportError):
                await ask("a", "/x", payload, max_response_bytes=99)
        with pytest.raises(TransportError):
            await ask("a", "/unserved", b"", max_response_bytes=1)
        with pytest.raises(TransportError):
            await ask("nobody", "/x", b"", max_response_bytes=1)
        assert swarm.bugs == [bug]
        assert swarm.nodes["a"].score("b") == pytest.approx(-5, abs=0.2)


async def test_a_node_that_stops_is_gone_and_may_come_back(autojump_clock: MockClock) -> None:
    async with simulated_swarm() as swarm:
        await swarm.add("a")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                guest = MemoryTransport(swarm.hub, "guest", on_bug=swarm.bugs.append)
                await nursery.start(guest.run)
                await guest.connect(swarm.nodes["a"].addresses[0])
                assert [peer.peer_id for peer in swarm.nodes["a"].peers()] == ["guest"]
                scope.cancel()
        assert swarm.nodes["a"].peers() == ()
        await swarm.add("guest", "a")
        await swarm.nodes["guest"].publish(TOPIC, b"back")
        await trio.sleep(1)
        assert swarm.data("a") == [b"back"]
