"""Proofs of equivocation at the node: made where admission meets a second content, judged, handed on."""

from __future__ import annotations

import trio

from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.equivocation import EquivocationProof, open_proof
from sapo_protocol.errors import Reason, RemoteProtocolError, Verdict
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.topics import equivocations_topic
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.equivocations import ProofBook

_OUTBOX = 64
"""Proofs that wait to be sent, one of an account and epoch; what does not fit is found by others too."""


class Proofs:
    """The desk between gossip and the book of proofs."""

    def __init__(
        self,
        manifest: Manifest,
        transport: Transport,
        book: ProofBook,
        heard: EnvelopeStore,
        telemetry: Telemetry,
        own_account: Account,
        clock: Clock,
    ) -> None:
        self.book = book
        self.topic = equivocations_topic(manifest.swarm_id)
        self._manifest = manifest
        self._transport = transport
        self._heard = heard
        self._telemetry = telemetry
        self._own_account = own_account
        self._clock = clock
        self._to_send, self._outbox = trio.open_memory_channel[bytes](_OUTBOX)

    async def run(self) -> None:
        """Publishes what this node proves, until cancelled; may be run again after that."""
        async for message in self._outbox:
            await self._transport.publish(self.topic, message)

    def judge(self, message: bytes, forwarder: str) -> Verdict:
        """The verdict on a message of the equivocations topic."""
        try:
            proof = self.book.judge(message, self._clock())
        except RemoteProtocolError as error:
            if error.reason in (Reason.SEEN, Reason.EPOCH_PAST):
                return Verdict.IGNORE  # many find the same, and whoever was away is told of the past
            return self._telemetry.message_refused(error, message, forwarder)
        self._tell(proof, forwarder)
        return Verdict.ACCEPT

    def convict(self, message: bytes, first: ContentId) -> None:
        """Proves that an admitted content and a message that came after it equivocate.

        Of an own slot nothing is proved: what is wrong there, a second process with our key or a lost
        signing database, is for the owner to mend, and is written down.
        """
        earlier = self._heard.envelope(first)
        if earlier is None:
            return  # its epoch is long over
        proved = self.book.convict(earlier, message, self._clock())
        if proved is None:
            self._warn_of_own(message)
            return
        self._tell(open_proof(parse_envelope(proved, self._manifest.swarm_id)), None)
        try:
            self._to_send.send_nowait(proved)
        except trio.WouldBlock:
            return

    def _tell(self, proof: EquivocationProof, forwarder: str | None) -> None:
        epoch, account, slot = proof.place
        self._telemetry.proved(account, epoch, slot, forwarder)

    def _warn_of_own(self, message: bytes) -> None:
        rollout = parse_rollout(parse_envelope(message, self._manifest.swarm_id).payload)
        if rollout.account == self._own_account:
            self._telemetry.events.write("own_slot_taken_twice", epoch=rollout.epoch, slot=rollout.slot)
