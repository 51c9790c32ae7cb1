"""One attacker: an account with the node's own network parts that publishes composed rollouts."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.lab.agent import ALL_TIME, MEMORY, certificate_of, open_telemetry, open_transport
from sapo_client.lab.attackers.questions import Knowledge, Questioner
from sapo_client.lab.learner import ROUND_SECONDS
from sapo_client.node.auditing.audit import Audit
from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.rollout import Rollout
from sapo_protocol.topics import certificates_topic, rollouts_topic
from sapo_verification.engine import Engine
from sapo_verification.tasks.generators import Underivable, derive

if TYPE_CHECKING:
    from sapo_client.lab.agent import LabWorld
    from sapo_client.lab.attackers.catalogue import LabAttack
    from sapo_client.lab.attackers.questions import Completions
    from sapo_client.lab.plan import AgentKeys

AFTER_ROUND_SECONDS: Final = 0.5
"""Seconds into a round at which attackers publish: all earlier messages have been delivered and audited."""

MAX_TRIES: Final = 64
"""Maximum number of slots that an attacker searches for one round's rollouts; one day in seven is a
Sunday."""


class LabAttacker:
    """An account that listens and audits like an agent, and publishes the rollouts that its attack composes.

    Args:
        number: number of the attacker, from 0.
        neighbours: addresses that it connects to.
    """

    def __init__(self, world: LabWorld, number: int, attack: LabAttack, neighbours: tuple[str, ...]) -> None:
        self._world = world
        self._number = number
        self._attack = attack
        self._turn = 0
        self._last_epoch = -1
        self._keys = keys = world.run.attacker(number)
        self._families = families = world.manifest.suite.families
        self._draw = random.Random(keys.name)
        self._slots: Counter[tuple[str, int]] = Counter()
        self._questioner = Questioner(world.run.plan.completions)
        self._knowledge = Knowledge(families, world.run.honest(), world.run.plan.rounds)
        peer_id = peer_id_from_key(keys.node)
        self.address = f"/memory/{peer_id}/p2p/{peer_id}"
        self.transport = open_transport(world, peer_id, neighbours)
        self._telemetry = open_telemetry(world, keys)
        self._beacons = Beacons(world.manifest, NoChain().block_hash_before, self._telemetry.events)
        self._engine = Engine(
            world.manifest,
            MEMORY,
            own=keys.account,
            check=world.checker.check,
            beacon_of=self._beacons.known,
            key=keys.node_seed,
            observers=[self._knowledge],
        )
        self._gossip = GossipHandlers(
            engine=self._engine,
            transport=self.transport,
            own_certificate=certificate_of(world, keys),
            telemetry=self._telemetry,
            clock=world.clock,
        )
        self._audit = Audit(engine=self._engine, beacons=self._beacons, time_share=ALL_TIME)

    async def listen(self) -> None:
        """Validate, audit and answer until cancelled."""
        with self._telemetry.events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._gossip.run)
                nursery.start_soon(self._audit.run)

    async def attack(self) -> None:
        """Publish rollouts in every round until cancelled."""
        await trio.sleep(AFTER_ROUND_SECONDS)
        while True:
            self._turn += 1
            self._knowledge.round = self._world.rounds_done()
            epoch = self._engine.epoch(self._world.clock())
            await self._beacons.obtain(epoch)
            self._engine.forget(epoch)
            for keys, wanted in await self._accounts(epoch):
                await self._publish(keys, epoch, wanted)
            await trio.sleep(ROUND_SECONDS)

    async def _accounts(self, epoch: int) -> list[tuple[AgentKeys, int]]:
        """Return the accounts of this round and how many rollouts each of them publishes."""
        local, is_first, self._last_epoch = self._world.run.arm.local, epoch > self._last_epoch, epoch
        if self._attack.at_once:
            return [(self._keys, local * self._world.run.plan.rounds_per_epoch)] if is_first else []
        if not self._attack.fresh_accounts:
            return [(self._keys, local)]
        opened = []
        for count in range(self._attack.fresh_accounts):
            keys = self._world.run.attacker(self._number, f"{self._turn}/{count}")
            certificate = certificate_of(self._world, keys).message()
            await self.transport.publish(certificates_topic(self._engine.manifest.swarm_id), certificate)
            opened.append((keys, max(1, local // self._attack.fresh_accounts)))
        return opened

    async def _publish(self, keys: AgentKeys, epoch: int, wanted: int) -> None:
        for _ in range(MAX_TRIES):
            if wanted == 0:
                return
            slot = self._slots[keys.name, epoch]
            self._slots[keys.name, epoch] += 1
            family = self._draw_family()
            if (completions := self._composed(keys, epoch, family, slot)) is not None:
                wanted -= 1
                await self._send(keys, epoch, family, slot, completions)

    def _draw_family(self) -> int:
        names = [family.name for family in self._families]
        chosen = self._draw.randrange(len(names))
        return chosen if self._attack.family is None else names.index(self._attack.family)

    def _composed(self, keys: AgentKeys, epoch: int, family: int, slot: int) -> Completions | None:
        """Return the completions for a slot; None if its task has no answer or the attack is silent."""
        task = self._engine.task_of(epoch, keys.account, family, slot)
        try:
            item = derive(self._families[family], task.seed)
        except Underivable:
            return None
        question = self._questioner.question(self._families[family], item)
        return None if question is None else self._attack.compose(question, self._knowledge, self._draw)

    async def _send(
        self, keys: AgentKeys, epoch: int, family: int, slot: int, completions: Completions
    ) -> None:
        rollout = Rollout(
            node=keys.node,
            account=keys.account,
            epoch=epoch,
            slot=slot,
            family=family,
            completions=tuple(text.encode() for text in completions),
        )
        envelope = seal(Kind.ROLLOUT, self._engine.manifest.swarm_id, rollout.to_payload(), keys.node_seed)
        await self.transport.publish(rollouts_topic(self._engine.manifest.swarm_id), envelope.to_bytes())
