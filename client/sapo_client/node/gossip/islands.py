"""Joining and leaving of islands, so that a node carries the right ones in every epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from sapo_client.node.gossip.authors import author_of
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.paid_accounts import PaidAccounts
from sapo_client.swarm.transport import Transport, Validator
from sapo_protocol.identifiers import NodeId
from sapo_verification.engine import Engine

_LOOK_SECONDS: Final = 0.5
"""Islands change when an epoch begins; half a second is the clocks' tolerance."""

TopicsOf = Callable[[int, bool], dict[str, Validator]]
"""Returns the topics of an island with their validators; that of rollouts only if the flag is set."""


class IslandKeeper:
    """Service that joins and leaves the topics of islands, and informs the engine of the carried ones.

    A swarm that is not divided has only island 0, which is joined at once and never left.

    Args:
        beacons: obtains the beacons that determine homes; needed only in a swarm with islands.
        paid: provides the numbers of paid accounts, if the number of islands is derived from the chain.
        moved: called when the homes of the own account have changed.
        joined: called when an island was joined, since its members' certificates are missing here.
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
        self._author_of = author_of(engine.manifest.swarm_id)
        self._beacons = beacons
        self._paid = paid
        self._moved = moved
        self._tell_joined = joined
        self._joined: set[str] = set()
        self._homes: set[int | None] = set()

    def join_known(self) -> None:
        """Join the islands that are known to be due now: island 0 in a swarm that is not divided."""
        if self._engine.manifest.islands is None:
            self._join(frozenset({0}), frozenset({0}))
        else:
            self._follow(self._clock())

    async def run(self) -> None:
        """Join and leave islands until cancelled, if there are several; may be run again after that."""
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
            near = due  # else an auditor receives all commitments, but rollouts as any node
        if due and ((due, near) != (islands.carried, islands.rollouts) or not self._joined):
            self._join(due, near)
        homes = {islands.home(own, epoch) for epoch in islands.carried_epochs(now_seconds)}
        if homes != self._homes:
            self._homes = homes
            self._moved()

    def _join(self, due: frozenset[int], near: frozenset[int]) -> None:
        """Join the topics of the ``due`` islands, those of rollouts only of the ``near`` ones."""
        self._engine.carry(due, near)
        topics: dict[str, Validator] = {}
        for island in sorted(due):
            topics |= self._topics_of(island, island in near)
        if topics.keys() - self._joined:  # also the first time: peers may have been asked before
            self._tell_joined()
        for topic in sorted(self._joined - topics.keys()):
            self._transport.unsubscribe(topic)
        for topic, validator in topics.items():
            if topic not in self._joined:  # join only once, also when this service was restarted
                self._transport.subscribe(topic, validator, self._author_of)
        self._joined = set(topics)
