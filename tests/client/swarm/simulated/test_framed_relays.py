"""Attackers send valid messages over several connections, each within its rate, so that who forwards them
looks like a flooder.

A relay that is cut off for that earns nothing: its own messages reach nobody.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.simulated.events import EventQueue
from sapo_client.swarm.simulated.memory import LinkConditions
from sapo_client.swarm.simulated.mesh import MeshNetwork, MeshNode
from sapo_protocol.errors import Verdict

TOPIC = "rollouts"
LIMITS: Final = replace(TransportLimits(), messages=Rate(per_second=20, burst=80))
"""A tenth of the real rates, so that a flood is a tenth as long."""

UNPACED: Final = replace(TransportLimits(), messages=Rate(1e9, 1e9), bytes=Rate(1e12, 1e12))
HONEST: Final = 8
ATTACKERS: Final = 6
SECONDS: Final = 40


@dataclass
class Framing:
    """Honest nodes, each connected with all others, and attackers connected with the first two of them."""

    messages_per_second: int

    def __post_init__(self) -> None:
        self.queue = EventQueue()
        self.network = MeshNetwork(
            self.queue,
            random.Random(0),
            LinkConditions(0.02, 0.1),
            limits=LIMITS,
            uplink_bits_per_second=1e9,
        )
        self.heard: dict[str, set[bytes]] = {}
        self.honest = [self._node(f"honest-{number}") for number in range(HONEST)]
        self.attackers = [self._node(f"mallory-{number}", UNPACED) for number in range(ATTACKERS)]
        for one, other in combinations(self.honest, 2):
            assert one.connect(other.peer_id)
        for attacker in self.attackers:
            assert all(attacker.connect(relay.peer_id) for relay in self.honest[:2])

    def _node(self, name: str, limits: TransportLimits | None = None) -> MeshNode:
        def hear(message: bytes, _forwarder: str) -> Verdict:
            self.heard[name].add(message)
            return Verdict.ACCEPT

        self.heard[name] = set()
        node = MeshNode(self.network, name, on_bug=_raise, limits=limits)
        node.start()
        node.subscribe(TOPIC, hear)
        return node

    def run(self) -> None:
        """Let honest nodes publish one message a second, and attackers as many as they want."""
        self.queue.run_until(5.0)
        for second in range(SECONDS):
            self._publish(self.attackers, self.messages_per_second, second)
            self._publish(self.honest, 1, second)
            self.queue.run_until(self.queue.now_seconds + 1)
        self.queue.run_until(self.queue.now_seconds + 15)

    def _publish(self, nodes: list[MeshNode], count: int, second: int) -> None:
        for node in nodes:
            for number in range(count):
                node.publish(TOPIC, f"{node.peer_id} {second} {number} ".encode() + bytes(400))

    def delivered(self) -> float:
        """Return the share of the relays' own messages that honest nodes heard."""
        found = [
            sum(message.startswith(relay.peer_id.encode()) for message in self.heard[other.peer_id])
            for relay in self.honest[:2]
            for other in self.honest
            if other is not relay
        ]
        return sum(found) / len(found) / SECONDS

    def blamed(self) -> dict[str, float]:
        """Return the scores of honest peers at honest nodes that are not zero."""
        now_seconds = self.queue.now_seconds
        return {
            f"{other.peer_id} at {node.peer_id}": score
            for node in self.honest
            for other in self.honest
            if (score := node.discipline.scores.score(other.peer_id, now_seconds))
        }


def test_a_relay_is_not_framed_as_a_flooder() -> None:
    """Without a pace 24 % of their messages were heard, and hardly two honest nodes stayed connected."""
    framing = Framing(messages_per_second=15)
    framing.run()
    assert (framing.blamed(), framing.delivered()) == ({}, 1.0)


def test_without_attackers_everything_is_heard() -> None:
    framing = Framing(messages_per_second=0)
    framing.run()
    assert (framing.blamed(), framing.delivered()) == ({}, 1.0)


def _raise(error: Exception) -> None:
    raise error
