"""The node's ears: judges for every topic, introductions, catch-up."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.proofs import Proofs
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.transport import Transport, TransportError, Validator
from sapo_protocol.constants import EPOCH_WINDOW
from sapo_protocol.epochs import epoch_at
from sapo_protocol.errors import Reason, RemoteProtocolError, Verdict
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.requests import parse_response, to_response
from sapo_protocol.topics import (
    catch_up_protocol,
    certificates_protocol,
    certificates_topic,
    equivocations_protocol,
    rollouts_topic,
)
from sapo_verification.admission.certificates import MAX_CERTIFICATES, CertificateBook
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.rollouts import Admission, SlotTaken
from sapo_verification.reputation.origins import Origins
from sapo_verification.sampling.pool import Pool
from sapo_verification.screens.screens import Screens
from sapo_verification.types import AdmittedRollout

RECENT_ENVELOPES: Final = 128
"""What a newcomer is told of the past, at most 1 MiB: enough for its first batches."""

MAX_ANSWER_BYTES: Final = 1024 * 1024

AUDIT_QUEUE: Final = 4096
"""Rollouts that wait for an audit; beyond it new ones are not audited, and counted as such."""

_REINTRODUCE_SECONDS: Final = 60.0
"""Certificates are repeated: a peer may have joined behind two others."""

_LOOK_SECONDS: Final = 1.0

_LONGEST_PAUSE_SECONDS: Final = 30.0
"""How long a peer that did not answer, or answered badly, is left alone; it may only have been starting."""


@dataclass(slots=True)
class _Question:
    """One protocol on which one connected peer is asked.

    Attributes:
        due_seconds: when it may be asked again, on trio's clock.
    """

    answered: bool = False
    failures: int = 0
    due_seconds: float = 0.0

    def postpone(self) -> None:
        """Waits longer after every failure."""
        self.due_seconds = trio.current_time() + min(_LONGEST_PAUSE_SECONDS, 2.0**self.failures)
        self.failures += 1


class GossipHandlers:
    """Hears and introduces; everything it lets through is an ``AdmittedRollout``."""

    def __init__(
        self,
        manifest: Manifest,
        transport: Transport,
        certificates: CertificateBook,
        admission: Admission,
        pool: Pool,
        heard: EnvelopeStore,
        telemetry: Telemetry,
        own_account: Account,
        own_certificate: OwnCertificate,
        clock: Clock,
        origins: Origins,
        proofs: Proofs,
        screens: Screens,
    ) -> None:
        self._manifest = manifest
        self._transport = transport
        self._certificates = certificates
        self._admission = admission
        self._pool = pool
        self._heard = heard
        self._telemetry = telemetry
        self._own_account = own_account
        self._own_certificate = own_certificate
        self._clock = clock
        self._origins = origins
        self._shown: set[Account] = set()
        self.on_own: Callable[[AdmittedRollout], None] = lambda _admitted: None
        self._proofs = proofs
        self._screens = screens
        self._recent: deque[bytes] = deque(maxlen=RECENT_ENVELOPES)
        self._is_subscribed = False
        self._questions: dict[str, dict[str, _Question]] = {}
        self._strangers: set[str] = set()
        self._first = certificates_protocol(manifest.swarm_id)  # without it nothing else is understood
        self._introductions: dict[str, Validator] = {
            self._first: self.judge_certificate,
            catch_up_protocol(manifest.swarm_id): self._catch_up,
            equivocations_protocol(manifest.swarm_id): proofs.judge,
        }
        self._send_audit, self.audit_queue = trio.open_memory_channel[AdmittedRollout](AUDIT_QUEUE)

    async def run(self) -> None:
        """Listens, answers and introduces until cancelled; may be run again after that."""
        swarm_id = self._manifest.swarm_id
        self._introduce_oneself()
        self.serve_messages(self._first, self._certificates.envelopes)
        self.serve_messages(catch_up_protocol(swarm_id), lambda: tuple(self._recent))
        self.serve_messages(equivocations_protocol(swarm_id), self._proofs.book.messages)
        if not self._is_subscribed:
            self._is_subscribed = True
            self._transport.subscribe(certificates_topic(swarm_id), self.judge_certificate)
            self._transport.subscribe(rollouts_topic(swarm_id), self.judge_rollout)
            self._transport.subscribe(self._proofs.topic, self._proofs.judge)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._proofs.run)
            nursery.start_soon(self._introduce)
            nursery.start_soon(self._reintroduce)

    def restore(self) -> None:
        """Takes in what was kept before a restart, lest it be lost, or a copy of it weighed twice."""
        now_seconds = self._clock()
        self._certificates.restore(now_seconds)
        self._pool.restore(self._heard.envelope, self._readmit)
        self._proofs.book.restore(now_seconds)
        for envelope in self._heard.since(max(0, self._epoch(now_seconds) - EPOCH_WINDOW)):
            with suppress(RemoteProtocolError):  # known from the pool, or over
                self._readmit(envelope)
            self._recent.append(envelope)

    def serve_messages(self, protocol: str, messages: Callable[[], tuple[bytes, ...]]) -> None:
        """Answers requests with the newest messages that fit."""

        async def answer(peer_id: str, request: bytes) -> bytes:
            return _bounded(messages())

        self._transport.serve(protocol, answer)

    def introduce_with(self, protocol: str, take_in: Validator) -> None:
        """Asks every peer, also those that are here already, once on one more protocol."""
        self._introductions[protocol] = take_in

    def judge_certificate(self, message: bytes, forwarder: str) -> Verdict:
        """The verdict on a message of the certificates topic."""
        try:
            self._certificates.judge(message, self._clock())
        except RemoteProtocolError as error:
            if error.reason is Reason.SEEN:
                return Verdict.IGNORE  # introductions repeat themselves; that is no refusal
            return self._telemetry.message_refused(error, message, forwarder)
        return Verdict.ACCEPT

    def judge_rollout(self, message: bytes, forwarder: str) -> Verdict:
        """The verdict on a message of the rollouts topic; what it lets through is in the pool."""
        try:
            admitted = self._admission.judge(message, self._clock())
        except RemoteProtocolError as error:
            if error.reason is Reason.CERTIFICATE_UNKNOWN:
                self._strangers.add(forwarder)
            return self._refuse(error, message, forwarder)
        return self._take_in(admitted, forwarder, live=True)

    @property
    def peer_count(self) -> int:
        """How many peers are connected."""
        return len(self._transport.peers())

    def forget(self, epoch: int) -> None:
        """Drops the proofs that nobody hears any more in an epoch."""
        self._proofs.book.forget(epoch)

    async def publish(self, admitted: AdmittedRollout) -> None:
        """Sends an own rollout, which went through the own admission first."""
        self._keep(admitted, live=True)
        peers = await self._transport.publish(rollouts_topic(self._manifest.swarm_id), admitted.envelope)
        self._telemetry.published(admitted, peers)

    def _refuse(self, error: RemoteProtocolError, message: bytes, forwarder: str) -> Verdict:
        if isinstance(error, SlotTaken):
            self._proofs.convict(message, error.first)
        return self._telemetry.message_refused(error, message, forwarder)

    def _epoch(self, now_seconds: float) -> int:
        return epoch_at(self._manifest, max(now_seconds, self._manifest.genesis_seconds))

    def _readmit(self, envelope: bytes) -> AdmittedRollout:
        """A rollout that was kept, admitted again."""
        now_seconds = self._clock()
        admitted = self._admission.judge(envelope, now_seconds)
        self._screens.heard(admitted, now_seconds, live=False)
        return admitted

    def _keep(self, admitted: AdmittedRollout, *, live: bool) -> None:
        self._screens.heard(admitted, self._clock(), live=live)
        self._recent.append(admitted.envelope)
        self._heard.add(admitted)

    def _take_in(self, admitted: AdmittedRollout, forwarder: str, *, live: bool) -> Verdict:
        """ACCEPT, unless an earlier life took it in, which a start under a wrong clock forgets."""
        if self._heard.has(admitted.content_id):
            return Verdict.IGNORE
        is_own = admitted.account == self._own_account
        refusal = None if is_own else self._offer(admitted)  # first: what no archive holds is offered again
        self._keep(admitted, live=live)
        self._telemetry.admitted(admitted, forwarder)
        if is_own:
            self.on_own(admitted)  # another node of ours: its work is paid to us, not weighed by us
            return Verdict.ACCEPT
        self._learn_origin(admitted, forwarder)
        if refusal is not None:
            self._telemetry.refused(refusal.rule, admitted.content_id, admitted.account, refusal.detail)
        else:
            self._queue_audit(admitted)
        return Verdict.ACCEPT

    def _offer(self, admitted: AdmittedRollout) -> RemoteProtocolError | None:
        """Why the pool did not take a rollout, if it did not."""
        try:
            self._pool.offer(admitted)
        except RemoteProtocolError as error:
            return error
        return None

    def _queue_audit(self, admitted: AdmittedRollout) -> None:
        try:
            self._send_audit.send_nowait(admitted)
        except trio.WouldBlock:
            self._telemetry.events.write("audit_skipped", content_id=admitted.content_id)

    def _learn_origin(self, admitted: AdmittedRollout, forwarder: str) -> None:
        """Notes where an author is, once per run, if it hands us its rollout itself."""
        if admitted.account in self._shown or forwarder != peer_id_from_key(admitted.rollout.node):
            return
        if len(self._shown) >= MAX_CERTIFICATES:  # accounts cost nothing: forget, and look again
            self._shown.clear()
        self._shown.add(admitted.account)
        for peer in self._transport.peers():
            if peer.peer_id == forwarder and peer.remote_host is not None:
                self._origins.learn(admitted.account, peer.remote_host)

    async def _introduce(self) -> None:
        """Asks every new peer, and whoever forwarded a stranger, for certificates and recent rollouts."""
        while True:
            present = {peer.peer_id for peer in self._transport.peers()}
            self._note_changes(present)
            strangers, self._strangers = self._strangers, set()
            async with trio.open_nursery() as nursery:  # a silent peer delays no other of its round
                for peer_id in sorted(present):
                    nursery.start_soon(self._meet, peer_id, peer_id in strangers)
            await trio.sleep(_LOOK_SECONDS)

    def _note_changes(self, present: set[str]) -> None:
        for peer_id in sorted(self._questions.keys() - present):
            questions = self._questions.pop(peer_id)
            if questions[self._first].answered:
                self._telemetry.events.write("peer_lost", peer_id=peer_id)
        self._telemetry.metrics.peers(len(present))

    async def _meet(self, peer_id: str, brought_stranger: bool) -> None:
        """Asks a peer what it did not answer yet, in order, and about the strangers that it brings."""
        questions = self._questions.setdefault(peer_id, defaultdict(_Question))
        for protocol in tuple(self._introductions):
            question = questions[protocol]
            is_urgent = brought_stranger and protocol == self._first
            if question.answered and not is_urgent:
                continue
            if trio.current_time() < question.due_seconds and not is_urgent:
                return
            try:
                await self._learn(peer_id, protocol)
            except (TransportError, RemoteProtocolError) as error:
                question.postpone()
                self._telemetry.events.write("introduction_failed", peer_id=peer_id, detail=str(error))
                return
            if protocol == self._first and not question.answered:
                self._telemetry.events.write("peer_connected", peer_id=peer_id)
            question.answered = True

    async def _learn(self, peer_id: str, protocol: str) -> None:
        """Takes in what a peer answers, up to the first message that no honest node hands on.

        Raises:
            TransportError: it does not answer, or hands such a message on.
            RemoteProtocolError: it does not answer in messages.
        """
        for message in await self._ask(peer_id, protocol):
            if self._introductions[protocol](message, peer_id) is Verdict.REJECT:
                raise TransportError("it hands on what every node refuses")
            await trio.lowlevel.checkpoint()  # judging a full answer takes a second or more

    def _catch_up(self, message: bytes, peer_id: str) -> Verdict:
        """Takes a rollout of the past in; being late is expected here and counts as nothing."""
        try:
            admitted = self._admission.judge(message, self._clock())
        except RemoteProtocolError as error:
            if error.reason in (Reason.SEEN, Reason.EPOCH_PAST):
                return Verdict.IGNORE
            return self._refuse(error, message, peer_id)
        return self._take_in(admitted, peer_id, live=False)

    async def _ask(self, peer_id: str, protocol: str) -> tuple[bytes, ...]:
        answer = await self._transport.request(peer_id, protocol, b"", max_response_bytes=MAX_ANSWER_BYTES)
        return parse_response(answer)

    async def _reintroduce(self) -> None:
        topic = certificates_topic(self._manifest.swarm_id)
        while True:
            await self._transport.publish(topic, self._introduce_oneself())
            await trio.sleep(_REINTRODUCE_SECONDS)

    def _introduce_oneself(self) -> bytes:
        """The own certificate, known here too: own rollouts go through the own admission."""
        message = self._own_certificate.message()
        self.judge_certificate(message, self._transport.peer_id)
        return message


def _bounded(messages: tuple[bytes, ...]) -> bytes:
    """As many of the newest messages as fit an answer."""
    room = MAX_ANSWER_BYTES - 1024  # for the framing
    kept: list[bytes] = []
    for message in reversed(messages):
        room -= len(message) + 5  # its CBOR head
        if room < 0:
            break
        kept.append(message)
    return to_response(tuple(reversed(kept)))
