"""Keeps a node on the islands that it has to carry, from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.paid_accounts import PaidAccounts
from sapo_client.swarm.transport import Transport, Validator
from sapo_protocol.identifiers import NodeId
from sapo_verification.engine import Engine

_LOOK_SECONDS: Final = 0.5
"""Islands change when an epoch begins; half a second is the clocks' tolerance."""

TopicsOf = Callable[[int, bool], dict[str, Validator]]
"""The topics of an island, each with its validator; that of its rollouts only if it is wanted."""


class IslandKeeper:
    """Service that joins and leaves the topics of islands, and tells the engine which ones are carried.

    A swarm that is not divided has island 0 alone, which is joined at once and never left.

    Args:
        beacons: recalls the beacons that decide homes; needed in a swarm of islands alone.
        paid: tells how many accounts were paid, where the number of islands follows the chain.
        moved: called when the homes of the own account have changed.
        joined: called when an island was joined: its members' certificates are missing here.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        node: NodeId,
        clock: Clock,
        topics_of: TopicsOf,
        beacons: Beacons | None,
        paid: PaidAccounts | None,
        moved: Callable[[], None],
        joined: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._node = node
        self._clock = clock
        self._topics_of = topics_of
        self._beacons = beacons
        self._paid = paid
        self._moved = moved
        self._tell_joined = joined
        self._joined: set[str] = set()
        self._homes: set[int | None] = set()

    def join_known(self) -> None:
        """Join what is known to be due now: island 0 where there is no other."""
        if self._engine.manifest.islands is None:
            self._join(frozenset({0}), frozenset({0}))
        else:
            self._follow(self._clock())

    async def run(self) -> None:
        """Follow the islands until cancelled, if there are several; may be run again after that."""
        while self._engine.manifest.islands is not None:
            now_seconds = self._clock()
            epochs = self._engine.islands.epochs_at(now_seconds)
            if self._beacons is not None:
                await self._beacons.recall(epochs[-1])
            if self._paid is not None:
                await self._paid.learn(epochs)
            self._follow(now_seconds)
            await trio.sleep(_LOOK_SECONDS)

    def homes(self) -> frozenset[int]:
        """Return the islands on which the own certificate is published: an auditor's on all."""
        islands, own, now_seconds = self._engine.islands, self._engine.own, self._clock()
        if own in islands.everywhere:
            return islands.carried
        found = (islands.home(own, epoch) for epoch in islands.carried_epochs(now_seconds))
        return frozenset(home for home in found if home is not None)

    def _follow(self, now_seconds: float) -> None:
        islands, own = self._engine.islands, self._engine.own
        near = islands.due(self._node, own, now_seconds)
        due = islands.all_at(now_seconds) if own in islands.everywhere else near
        if self._engine.manifest.audits is None:
            near = due  # else an auditor hears the commitments of all, and rollouts as every node does
        if due and ((due, near) != (islands.carried, islands.rollouts) or not self._joined):
            self._join(due, near)
        homes = {islands.home(own, epoch) for epoch in islands.carried_epochs(now_seconds)}
        if homes != self._homes:
            self._homes = homes
            self._moved()

    def _join(self, due: frozenset[int], near: frozenset[int]) -> None:
        """Join all topics of some islands, those of rollouts only of the near ones."""
        self._engine.carry(due, near)
        topics: dict[str, Validator] = {}
        for island in sorted(due):
            topics |= self._topics_of(island, island in near)
        if topics.keys() - self._joined:  # also at the first time: peers may have been asked before
            self._tell_joined()
        for topic in sorted(self._joined - topics.keys()):
            self._transport.unsubscribe(topic)
        for topic, validator in topics.items():
            if topic not in self._joined:  # a topic has one validator, also after this service's restart
                self._transport.subscribe(topic, validator)
        self._joined = set(topics)
