"""Publishing of this node's own rollouts, and of the proofs of equivocation that it found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import trio

from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol.identifiers import SwarmId
from sapo_protocol.topics import equivocations_topic, rollouts_topic
from sapo_verification.islands import IslandMap
from sapo_verification.standing import Standing
from sapo_verification.types import AdmittedRollout

_MAX_PROOFS: Final = 64
"""Proofs that wait to be sent, one per account and epoch; more are dropped, since other nodes find them
too."""


_RETRY_SECONDS: Final = 1.0

_Proof = tuple[bytes, Collection[int]]


class Publisher:
    """Sender of this node's messages to its peers, each on the topics of its islands.

    Args:
        published: called with the island of each own rollout that was sent.
    """

    def __init__(
        self,
        *,
        swarm_id: SwarmId,
        islands: IslandMap,
        standing: Standing,
        transport: Transport,
        telemetry: Telemetry,
        published: Callable[[int], None],
    ) -> None:
        self._published = published
        self._swarm_id = swarm_id
        self._standing = standing
        self._islands = islands
        self._transport = transport
        self._telemetry = telemetry
        self._send_proof, self._proofs = trio.open_memory_channel[_Proof](_MAX_PROOFS)

    async def run(self) -> None:
        """Send queued proofs until cancelled; may be run again after that."""
        async for message, islands in self._proofs:
            for island in islands:
                await self._transport.publish(equivocations_topic(self._swarm_id, island), message)

    async def publish(self, admitted: AdmittedRollout, message: bytes) -> None:
        """Publish the message of an admitted own rollout once the home island of its epoch is known.

        An account without the bond that the gate requires sends nothing, since every node would drop it.
        """
        if not self._standing.units_of(admitted.account, admitted.rollout.epoch):
            return
        while (home := self._islands.home(admitted.account, admitted.rollout.epoch)) is None:
            await trio.sleep(_RETRY_SECONDS)
        peers = await self._transport.publish(rollouts_topic(self._swarm_id, home), message)
        self._telemetry.published(admitted, peers)
        self._published(home)

    def queue_proof(self, message: bytes, islands: Collection[int]) -> None:
        """Queue a proof for sending on some islands; drop it if too many wait."""
        try:
            self._send_proof.send_nowait((message, islands))
        except trio.WouldBlock:
            return
