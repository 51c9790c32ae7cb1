"""Handlers of gossip topics and request protocols: validate with the engine, send certificates, answer.

A message is validated on the topic that it came over. What a peer sends on request is validated on the topic
of its kind as if it came over one of the islands that this node carries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

from sapo_client.node.gossip.address_records import RecordExchange
from sapo_client.node.gossip.catch_up import CatchUp
from sapo_client.node.gossip.catch_up_server import CatchUpServer
from sapo_client.node.gossip.certificate_quotas import CertificateQuotas
from sapo_client.node.gossip.committer import Committer
from sapo_client.node.gossip.early import EarlyMessages
from sapo_client.node.gossip.islands import IslandKeeper
from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.publisher import Publisher
from sapo_client.node.gossip.ratings import auditor_of
from sapo_client.node.gossip.sync import PeerSync
from sapo_client.node.gossip.unintroduced import UnintroducedMessages
from sapo_client.node.gossip.waiting_messages import WaitingMessage
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.paid_accounts import FinalRootsBefore, PaidAccounts
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.intake import FirstArrivals
from sapo_client.swarm.peer_id import key_from_peer_id, peer_id_from_key
from sapo_client.swarm.transport import Transport, Validator
from sapo_protocol.certificate import Certificate, parse_certificate
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.requests import parse_request
from sapo_protocol.rules import Rule
from sapo_protocol.topics import (
    certificates_protocol,
    certificates_topic,
    commitments_topic,
    contributions_protocol,
    contributions_topic,
    equivocations_protocol,
    equivocations_topic,
    rollouts_topic,
)
from sapo_verification.admission.arrivals import Received
from sapo_verification.admission.certificates import MAX_CERTIFICATES
from sapo_verification.engine import Engine
from sapo_verification.types import AdmittedRollout

_REPEAT_SECONDS: Final = 60.0
"""Interval of publishing the own certificate again, for peers that could not accept it before."""


class GossipHandlers:
    """Handlers that pass messages of the transport's topics and protocols to the engine; without trust state.

    Args:
        beacons: needed in a swarm with islands, to derive homes.
        final_roots_before: needed if the number of islands is derived from the chain.
        records_file: keeps address records for the next start; None keeps none.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        own_certificate: OwnCertificate,
        telemetry: Telemetry,
        clock: Clock,
        beacons: Beacons | None = None,
        final_roots_before: FinalRootsBefore | None = None,
        records_file: Path | None = None,
    ) -> None:
        self._engine = engine
        self._swarm_id = swarm_id = engine.manifest.swarm_id
        self._certificates = certificates_topic(swarm_id)
        self._rollouts = rollouts_topic(swarm_id)
        self._equivocations = equivocations_topic(swarm_id)
        self._contributions = contributions_topic(swarm_id)
        self._transport = transport
        self._own_certificate = own_certificate
        self._clock = clock
        self._telemetry = telemetry
        self._publisher = Publisher(
            swarm_id=swarm_id,
            islands=engine.islands,
            standing=engine.standing,
            transport=transport,
            telemetry=telemetry,
            published=lambda island: self.records.published(island),
        )
        self._sync = self._open_sync()
        self._catch_up = self._open_catch_up()
        self._catch_up_server = CatchUpServer(engine, transport, clock)
        self.uploads = ListUploads(transport, self._is_auditor)
        self._moved = trio.Event()
        node = NodeId(key_from_peer_id(transport.peer_id) or bytes(NodeId.SIZE))
        self.records = RecordExchange(
            engine=engine,
            transport=transport,
            node=node,
            own_certificate=own_certificate,
            clock=clock,
            file=records_file,
        )
        self._islands = self._open_islands(node, beacons, final_roots_before)
        self._committer = Committer(
            engine=engine,
            transport=transport,
            uploads=self.uploads,
            own_certificate=own_certificate,
            node=node,
            clock=clock,
            events=telemetry.events,
        )
        self.hears_contributions = False
        self._unintroduced = UnintroducedMessages()
        self._early = EarlyMessages(clock, engine.standing.is_known, self._receive_waiting)
        self._certificate_quotas = CertificateQuotas(swarm_id)
        self._ignored = FirstArrivals()
        self._located: set[Account] = set()

    def _open_islands(
        self, node: NodeId, beacons: Beacons | None, final_roots_before: FinalRootsBefore | None
    ) -> IslandKeeper:
        return IslandKeeper(
            engine=self._engine,
            transport=self._transport,
            node=node,
            clock=self._clock,
            topics_of=self._topics_of,
            beacons=beacons,
            paid=None if final_roots_before is None else self._paid_accounts(final_roots_before),
            moved=lambda: self._moved.set(),
            joined=self.repeat_requests,
        )

    def _open_catch_up(self) -> CatchUp:
        return CatchUp(
            engine=self._engine,
            transport=self._transport,
            telemetry=self._telemetry,
            clock=self._clock,
            receive=self.receive_past_rollout,
            ask_for_certificates=self._sync.fetch_certificates,
        )

    def _open_sync(self) -> PeerSync:
        swarm_id = self._swarm_id
        return PeerSync(
            transport=self._transport,
            telemetry=self._telemetry,
            validators={
                certificates_protocol(swarm_id): self.validate_certificate,
                equivocations_protocol(swarm_id): self.validate_proof,
            },
            node_of=self._node_of,
            introduced=lambda peer_id: self._catch_up.begin(peer_id),
        )

    async def run(self) -> None:
        """Validate, answer requests and send the own certificate until cancelled; may be run again."""
        swarm_id = self._swarm_id
        self._admit_own_certificate()
        self._transport.serve(certificates_protocol(swarm_id), self._answer_certificates)
        self._catch_up_server.serve()
        self._serve(equivocations_protocol(swarm_id), self._engine.proofs.messages)
        self._islands.join_known()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._islands.run)
            nursery.start_soon(self._publisher.run)
            nursery.start_soon(self._early.run)
            nursery.start_soon(self._committer.run)
            nursery.start_soon(self._sync.run)
            nursery.start_soon(self._catch_up.run)
            nursery.start_soon(self.records.run)
            nursery.start_soon(self._repeat_certificate)

    def _paid_accounts(self, final_roots_before: FinalRootsBefore) -> PaidAccounts:
        return PaidAccounts(
            self._engine,
            final_roots_before,
            ask=self.ask_for_contributions,
            events=self._telemetry.events,
        )

    def open_contributions(self, recent: Callable[[], tuple[bytes, ...]]) -> None:
        """Join the exchange of contributions; the engine must know the auditors before.

        Args:
            recent: returns the contributions to send to a new peer.
        """
        self._serve(contributions_protocol(self._swarm_id), recent)
        self._sync.add(contributions_protocol(self._swarm_id), self.validate_contribution)
        if not self.hears_contributions:  # join only once, also when the ledger's service was restarted
            self.hears_contributions = True
            self._transport.subscribe(self._contributions, self.validate_contribution)

    def ask_for_contributions(self) -> None:
        """Ask all peers for their contributions again, because one that the chain names is missing here."""
        self._sync.repeat(contributions_protocol(self._swarm_id))

    def repeat_requests(self) -> None:
        """Send all requests to all peers once more, because some messages could not be decided before."""
        self._catch_up.reconsider()
        self._sync.repeat_all()

    async def publish(self, admitted: AdmittedRollout, message: bytes) -> None:
        """Publish an own rollout that the engine has admitted; ``message`` is its encoding."""
        await self._publisher.publish(admitted, message)

    @property
    def peer_count(self) -> int:
        """The number of connected peers."""
        return len(self._transport.peers())

    def validate_certificate(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on a certificate that a peer sent on request."""
        return self._receive(self._certificates, message, forwarder, live=False).verdict

    def _node_of(self, message: bytes) -> NodeId | None:
        """Return the node that a certificate names; None if a message is no certificate (which validation
        refuses)."""
        with suppress(RemoteProtocolError):
            envelope = parse_envelope(message, self._swarm_id)
            return parse_certificate(open_payload(envelope, Kind.CERTIFICATE)).node
        return None

    def validate_proof(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on a proof of equivocation that a peer sent on request."""
        return self._receive(self._equivocations, message, forwarder, live=False).verdict

    def validate_contribution(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on a tally, proposal or approval."""
        return self._receive(self._contributions, message, forwarder).verdict

    def validate_rollout(self, message: bytes, forwarder: str, island: int = 0) -> Verdict:
        """Return the verdict on a rollout that came by gossip, over the topic of an island."""
        return self._receive(rollouts_topic(self._swarm_id, island), message, forwarder).verdict

    def receive_past_rollout(self, message: bytes, forwarder: str) -> Received:
        """Return the decision on a rollout that a peer sent for catch-up."""
        return self._receive(self._rollouts, message, forwarder, live=False)

    def _topics_of(self, island: int, rollouts: bool) -> dict[str, Validator]:
        """Return the topics of an island with their validators, that of its rollouts if ``rollouts``."""
        names = [certificates_topic, equivocations_topic]
        if rollouts:
            names.append(rollouts_topic)
        if self._engine.manifest.audits is not None:
            names.append(commitments_topic)
        topics = [name(self._swarm_id, island) for name in names]
        validators = {topic: self._validator(topic) for topic in topics}
        return validators | {topics[0]: self._within_quotas(validators[topics[0]])}

    def _validator(self, topic: str) -> Validator:
        return lambda message, forwarder: self._receive(topic, message, forwarder).verdict

    def _within_quotas(self, validate: Validator) -> Validator:
        """Return a validator of certificates that ignores those of accounts with too many new ones."""

        def validate_within(message: bytes, forwarder: str) -> Verdict:
            if not self._certificate_quotas.allows(message, self._clock()):
                return Verdict.IGNORE
            return validate(message, forwarder)

        return validate_within

    def _receive(self, topic: str, message: bytes, forwarder: str, *, live: bool = True) -> Received:
        now_seconds = self._clock()
        arrived_seconds = self._ignored.first_seconds(topic, message, now_seconds) if live else None
        received = self._engine.receive(
            topic, message, now_seconds, source=forwarder, live=live, arrived_seconds=arrived_seconds
        )
        if received.verdict is Verdict.IGNORE and live:
            self._keep_for_later(received, topic, message, forwarder, now_seconds)
        if isinstance(received.admitted, Certificate):
            if live:
                self._certificate_quotas.count(received.admitted.account, now_seconds)
            self._sync.has_come(received.admitted.node)
            for waiting in self._unintroduced.take(received.admitted.node, now_seconds):
                self._receive_waiting(waiting)
        if received.proof is not None:
            self._publisher.queue_proof(received.proof, received.islands)
        if isinstance(received.admitted, AdmittedRollout):
            self._learn_origin(received.admitted, forwarder)
            if live:
                self.records.received(received.admitted, forwarder)
        return received

    def _keep_for_later(
        self, received: Received, topic: str, message: bytes, forwarder: str, now_seconds: float
    ) -> None:
        """Keep an ignored message that may be accepted once a certificate, its epoch or a bond is there."""
        self._ignored.note(topic, message, now_seconds)
        if received.unknown is not None:
            self._sync.ask_for(received.unknown, forwarder)
            self._unintroduced.add(topic, message, forwarder, received.unknown, now_seconds)
        if received.begins_seconds is not None:
            self._early.add(topic, message, forwarder, received.begins_seconds)
        if received.rule is Rule.AUTHOR_BONDED:
            self._early.add_without_bond(topic, message, forwarder, self._engine.epoch(now_seconds))

    def _receive_waiting(self, waiting: WaitingMessage[Any]) -> None:
        """Decide on a message that was ignored when it came.

        Honest peers do not forward what they ignore, so whoever sent what no node accepts is to blame.
        """
        received = self._receive(waiting.topic, waiting.message, waiting.forwarder)
        if received.verdict is Verdict.ACCEPT:
            self._transport.relay(waiting.topic, waiting.message, waiting.forwarder)
        elif received.verdict is Verdict.REJECT:
            self._transport.blame(waiting.forwarder)

    def _learn_origin(self, admitted: AdmittedRollout, forwarder: str) -> None:
        """Record an author's network, once per run, if its own node sent its rollout."""
        account = admitted.account
        if account == self._engine.own or account in self._located:
            return
        if forwarder != peer_id_from_key(admitted.rollout.node):
            return
        if len(self._located) >= MAX_CERTIFICATES:  # bounded, since accounts cost nothing to create
            self._located.clear()
        self._located.add(account)
        for peer in self._transport.peers():
            if peer.peer_id == forwarder and peer.remote_host is not None:
                self._engine.learn_origin(account, peer.remote_host)

    def _serve(self, protocol: str, messages: Callable[[], tuple[bytes, ...]]) -> None:
        """Answer requests with the newest messages that fit."""

        async def answer(peer_id: str, request: bytes) -> bytes:
            listed = messages() if self.uploads.may_ask(peer_id) else ()
            return self.uploads.response(peer_id, listed)

        self._transport.serve(protocol, answer)

    async def _answer_certificates(self, peer_id: str, request: bytes) -> bytes:
        """Answer with the certificates of the requested nodes, or of all with the newest that fit."""
        certificates, wanted = self._engine.certificates, parse_request(request)
        known = certificates.envelopes_of(wanted) if wanted else certificates.envelopes()
        return self.uploads.response(peer_id, known)

    def _is_auditor(self, peer_id: str) -> bool:
        return auditor_of(self._engine, peer_id) is not None

    async def _repeat_certificate(self) -> None:
        while True:
            message, self._moved = self._admit_own_certificate(), trio.Event()
            for island in sorted(self._islands.homes()):
                await self._transport.publish(certificates_topic(self._swarm_id, island), message)
            with trio.move_on_after(_REPEAT_SECONDS):
                await self._moved.wait()

    def keep_certificate_valid(self) -> None:
        """Renew the own certificate if it is not valid now: the clock may have been set back."""
        if self._own_certificate.is_due:
            self._admit_own_certificate()
            self._moved.set()

    def _admit_own_certificate(self) -> bytes:
        """Admit and return the own certificate, which is needed for the admission of own rollouts."""
        message = self._own_certificate.message()
        with suppress(RemoteProtocolError):  # known
            self._engine.certificates.admit(message, self._clock())
        return message
