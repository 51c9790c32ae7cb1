"""Accounts that saved their slots send them at once, over several connections: the links of the relays are
full for some seconds, and what other authors send meanwhile has its turns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.simulated.events import EventQueue
from sapo_client.swarm.simulated.memory import LinkConditions
from sapo_client.swarm.simulated.mesh import MeshNetwork, MeshNode
from sapo_protocol.errors import Verdict

TOPIC = "rollouts"
LIMITS: Final = replace(TransportLimits(), messages=Rate(per_second=20, burst=80), outbound_queue=51)
"""A tenth of the real rates and places, so that the attack is a tenth as long: a message that waits here for
two seconds waits for 0.2."""

UNPACED: Final = replace(
    TransportLimits(), messages=Rate(1e9, 1e9), bytes=Rate(1e12, 1e12), outbound_queue=410
)
HONEST: Final = 12
ATTACKERS: Final = 10
SAVED: Final = 205
QUIET_SECONDS: Final = 4
LOUD_SECONDS: Final = 8


@dataclass
class Burst:
    """Honest nodes in a mesh, and attackers connected with two of them each."""

    queue: EventQueue = field(default_factory=EventQueue)
    heard: dict[str, dict[bytes, float]] = field(default_factory=dict)
    sent: dict[bytes, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        conditions = LinkConditions(0.02, 0.1)
        self.network = MeshNetwork(
            self.queue, random.Random(0), conditions, limits=LIMITS, uplink_bits_per_second=1e9
        )
        rng = random.Random(0)
        self.honest = [self._node(f"honest-{number}") for number in range(HONEST)]
        self.attackers = [self._node(f"mallory-{number}", UNPACED) for number in range(ATTACKERS)]
        for node in self.honest:
            for other in rng.sample([one for one in self.honest if one is not node], 2):
                node.connect(other.peer_id)
        for attacker in self.attackers:
            assert all(attacker.connect(relay.peer_id) for relay in rng.sample(self.honest, 2))

    def _node(self, name: str, limits: TransportLimits | None = None) -> MeshNode:
        def hear(message: bytes, _forwarder: str) -> Verdict:
            self.heard[name].setdefault(message, self.queue.now_seconds)
            return Verdict.ACCEPT

        self.heard[name] = {}
        node = MeshNode(self.network, name, on_bug=_raise, limits=limits, relays=limits is None)
        node.start()
        node.subscribe(TOPIC, hear, lambda message: message.split()[0].decode())
        return node

    def run(self) -> None:
        """Let attackers send all they saved, within what honest nodes take, and honest nodes a group in
        four seconds each."""
        self.queue.run_until(QUIET_SECONDS)
        for step in range(4 * LOUD_SECONDS):
            for attacker in self.attackers:
                done = 0 if not step else min(SAVED, 75 + 5 * (step - 1))
                for number in range(done, min(SAVED, 75 + 5 * step)):
                    attacker.publish(TOPIC, f"{attacker.peer_id} {number} ".encode() + bytes(400))
            for number, node in enumerate(self.honest):
                if (step + number) % 16 == 0:
                    message = f"{node.peer_id} {step} ".encode() + bytes(400)
                    self.sent[message] = self.queue.now_seconds
                    node.publish(TOPIC, message)
            self.queue.run_until(self.queue.now_seconds + 0.25)
        self.queue.run_until(self.queue.now_seconds + 12)

    def delays(self) -> list[float | None]:
        """Return how long each group of an honest node took to each other one, in order; None if it did not
        come."""
        return [
            None if (came := self.heard[node.peer_id].get(message)) is None else came - since
            for message, since in self.sent.items()
            for node in self.honest
            if not message.startswith(node.peer_id.encode() + b" ")
        ]


def test_what_quiet_authors_send_during_a_burst_comes_in_time() -> None:
    """In the order of arrival a fifth came late or not at all."""
    burst = Burst()
    burst.run()
    delays = burst.delays()
    assert sum(node.counters.dropped_before_sending for node in burst.honest) > 1000
    assert [delay for delay in delays if delay is None or delay > 3] == []
    scores = {
        node.discipline.scores.score(other.peer_id, 0.0) for node in burst.honest for other in burst.honest
    }
    assert scores == {0.0}


def _raise(error: Exception) -> None:
    raise error
