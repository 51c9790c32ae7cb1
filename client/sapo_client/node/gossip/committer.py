"""Sending of the own account's commitments, once per epoch, and answers with the groups behind them."""

from __future__ import annotations

from typing import Final

import trio

from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.runtime.clock import Clock
from sapo_client.observe.events import EventLog
from sapo_client.swarm.transport import Transport
from sapo_protocol.audits.commitment import deadline_seconds
from sapo_protocol.audits.groups import parse_group_request
from sapo_protocol.envelope import Kind
from sapo_protocol.epochs import present_epoch
from sapo_protocol.identifiers import NodeId
from sapo_protocol.requests import to_response
from sapo_protocol.settlement import grace_seconds
from sapo_protocol.topics import commitments_topic, groups_protocol
from sapo_verification.engine import Engine

_LOOK_SECONDS: Final = 0.5

_TRAVEL_SHARE: Final = 0.5
"""Part of a grace before the deadline at which the commitment is sent: late enough for rollouts of the
account's other machines, early enough to reach every auditor."""


class Committer:
    """Service that sends the own account's commitments and answers requests for drawn groups.

    It does nothing in a swarm without audits by sample.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        uploads: ListUploads,
        own_certificate: OwnCertificate,
        node: NodeId,
        clock: Clock,
        events: EventLog,
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._uploads = uploads
        self._own_certificate = own_certificate
        self._node = node
        self._clock = clock
        self._events = events
        self._sent = -1

    async def run(self) -> None:
        """Commit and answer until cancelled; may be run again after that."""
        if self._engine.manifest.audits is None:
            return
        self._transport.serve(groups_protocol(self._engine.manifest.swarm_id), self._answer)
        while True:
            await self._look()
            await trio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        """Send the commitment of the epoch that has just ended; send it again if no peer has received it."""
        manifest, now_seconds = self._engine.manifest, self._clock()
        epoch = present_epoch(manifest, now_seconds) - 1
        left = deadline_seconds(manifest, epoch) - now_seconds
        if epoch < 0 or epoch == self._sent or not 0 < left <= _TRAVEL_SHARE * grace_seconds(manifest):
            return
        home = self._engine.islands.home(self._engine.own, epoch)
        if home is None or (message := self._message(epoch, now_seconds)) is None:
            return
        if await self._transport.publish(commitments_topic(manifest.swarm_id, home), message):
            self._sent = epoch

    def _message(self, epoch: int, now_seconds: float) -> bytes | None:
        """Return the own commitment of an epoch; it is stored before it is sent, since a second one would
        void both."""
        own, sampled = self._engine.own, self._engine.sampled
        if sampled.commitments.has(own, epoch):
            return sampled.commitments.message(own, epoch)
        units = self._engine.standing.units_of(own, epoch)
        commitment = sampled.own_commitment(self._node, own, epoch, units)
        if commitment is None:
            return None
        message = self._own_certificate.seal(Kind.COMMITMENT, commitment.to_payload())
        sampled.commitments.admit(message, now_seconds)
        self._events.write("committed", epoch=epoch, groups=len(commitment.slots))
        return message

    async def _answer(self, peer_id: str, request: bytes) -> bytes:
        asked = parse_group_request(request)
        if asked is None or not self._uploads.may_ask(peer_id):
            return to_response(())
        groups = self._engine.sampled.open_groups(asked)
        return self._uploads.response(peer_id, tuple(group.to_bytes() for group in groups))
