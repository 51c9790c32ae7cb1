"""Attackers forward everything but the messages of one author: it is heard as long as it has an honest peer.

They announce these messages as well and send them to nobody who asks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from sapo_client.swarm.simulated.copies import Way
from sapo_client.swarm.simulated.events import EventQueue
from sapo_client.swarm.simulated.memory import LinkConditions
from sapo_client.swarm.simulated.mesh import MeshMessage, MeshNetwork, MeshNode
from sapo_protocol.errors import Verdict

TOPIC = "rollouts"
VICTIM = "honest-0"
HONEST = 12
ATTACKERS = 12
DIALS = 4
SECONDS = 30


class SelectiveRelay(MeshNode):
    """Forwards and hands out all messages but the victim's."""

    def _send(self, peer_id: str, message: MeshMessage, way: Way) -> None:
        if not message.data.startswith(VICTIM.encode() + b" "):
            super()._send(peer_id, message, way)


class SurroundedVictim:
    """Honest nodes and as many attackers, of which the victim has one honest peer and all attackers."""

    def __init__(self) -> None:
        self.queue = EventQueue()
        rng = random.Random(0)
        self.network = MeshNetwork(self.queue, random.Random(0), LinkConditions(0.02, 0.15, loss_share=0.02))
        self.heard: dict[str, dict[bytes, float]] = {}
        self.sent: dict[bytes, float] = {}
        self.honest = [self._node(f"honest-{number}", MeshNode) for number in range(HONEST)]
        attackers = [self._node(f"mallory-{number}", SelectiveRelay) for number in range(ATTACKERS)]
        self.everyone = [*self.honest, *attackers]
        victim, *others = self.honest
        assert victim.connect(others[0].peer_id)
        assert all(victim.connect(attacker.peer_id) for attacker in attackers)
        for node in [*others, *attackers]:
            for other in rng.sample([one for one in self.everyone if one not in (node, victim)], DIALS):
                node.connect(other.peer_id)

    def _node(self, name: str, kind: type[MeshNode]) -> MeshNode:
        def hear(message: bytes, _forwarder: str) -> Verdict:
            self.heard[name].setdefault(message, self.queue.now_seconds)
            return Verdict.ACCEPT

        self.heard[name] = {}
        node = kind(self.network, name, on_bug=_raise)
        node.start()
        node.subscribe(TOPIC, hear)
        return node

    def run(self) -> None:
        """Let everybody publish a message a second."""
        self.queue.run_until(5.0)
        for second in range(SECONDS):
            for node in self.everyone:
                message = f"{node.peer_id} {second} ".encode() + bytes(800)
                self.sent[message] = self.queue.now_seconds
                node.publish(TOPIC, message)
            self.queue.run_until(self.queue.now_seconds + 1)
        self.queue.run_until(self.queue.now_seconds + 15)

    def delays(self) -> Iterator[float | None]:
        """Yield how long each message of the victim took to each other honest node; None if it did not
        come."""
        for message, since in self.sent.items():
            if message.startswith(VICTIM.encode() + b" "):
                for node in self.honest[1:]:
                    came = self.heard[node.peer_id].get(message)
                    yield None if came is None else came - since


def test_an_author_with_one_honest_peer_is_heard_in_time() -> None:
    swarm = SurroundedVictim()
    swarm.run()
    delays = list(swarm.delays())
    assert len(delays) == SECONDS * (HONEST - 1)
    assert [delay for delay in delays if delay is None or delay > 4] == []


def _raise(error: Exception) -> None:
    raise error
