"""The engine: all trust state of one node in one swarm, opened in one place.

It takes messages, returns decisions, and stores every effect of a decision: certificates, slots, pool,
evidence, proofs, pay count. It reads no socket and no environment, and no clock but the monotonic one of the
sampler; time, randomness, beacons and the jailed checkers are arguments. Node, lab, benchmarks and tests use
the same engine.

    engine = Engine(manifest, database, own=account, check=checkers.check, beacon_of=beacons.known, key=key)
    received = engine.receive(topic, message, now_seconds)      # stages 0 to 8
    verified = await engine.verify(received.admitted)           # stages 9 to 11
    external = await engine.draw(epoch, rng)                    # stages 12 and 13, weights and caps

All stores but that of contributions share one connection, so each decision is stored atomically.
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sapo_protocol.constants import CONTRIBUTION_EPOCHS, EPOCH_WINDOW
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.epochs import NotBegun, epoch_start_seconds, present_epoch
from sapo_protocol.equivocation import open_proof
from sapo_protocol.errors import Reason, RemoteProtocolError, Verdict
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.topics import (
    certificates_topic,
    commitments_topic,
    contributions_topic,
    equivocations_topic,
    rollouts_topic,
)
from sapo_verification.admission.arrivals import Incoming, Received
from sapo_verification.admission.certificates import CertificateStore, NotIntroduced
from sapo_verification.admission.commitments import CommitmentStore
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import AuditorSet, ContributionAdmission
from sapo_verification.admission.envelope_store import KEPT_EPOCHS, EnvelopeStore
from sapo_verification.admission.equivocations import ProofStore
from sapo_verification.admission.rollouts import Admission, SlotTaken
from sapo_verification.admission.sampled_audits import SampledAudits
from sapo_verification.admission.storage_budget import Retention
from sapo_verification.epoch_count import EpochCount
from sapo_verification.island_counts import IslandCounts
from sapo_verification.islands import IslandMap
from sapo_verification.levels import BeaconOf, Levels, RecordOf
from sapo_verification.observer import Observer, Observers
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.reputation.origins import Origins
from sapo_verification.reputation.penalties import verdict
from sapo_verification.sampling.audit_queue import AuditQueue
from sapo_verification.sampling.demonstrations import DemonstrationPool
from sapo_verification.sampling.engine_terms import USUAL_TERMS, Terms
from sapo_verification.sampling.newcomers import NewcomerLots
from sapo_verification.sampling.own_success import OwnSuccess
from sapo_verification.sampling.pool import Pool
from sapo_verification.sampling.sampler import Sampler
from sapo_verification.sampling.step_values import JudgedSteps
from sapo_verification.screens.imitation import Imitation
from sapo_verification.screens.screens import Screens
from sapo_verification.store import open_database, transaction
from sapo_verification.types import (
    AdmittedRollout,
    Demonstration,
    PractisedGroup,
    PrivateGroup,
    VerifiedRollout,
)
from sapo_verification.verifier import Check, Verifier

_EXPECTED: Final = frozenset({Reason.SEEN, Reason.EPOCH_PAST})
"""Refusals that are not reported: peers resend what they have to new nodes, and many nodes find one proof."""

_EXPECTED_OF_LIVE_ROLLOUTS: Final[frozenset[Reason]] = frozenset()
"""The same for gossiped rollouts: gossip delivers each once and in time, so copies and late ones are
reported."""

_Handler = Callable[[Incoming], Received]


class Engine:
    """Trust state of one node; single-threaded.

    Its parts (``certificates``, ``islands``, ``standing``, ``levels``, ``reputation``, ``pool``,
    ``contributions``, ``count``, ``audits``, ``sampler`` and others) are public to be read and drawn from.

    Args:
        database: file of all trust state, or ":memory:".
        own: this node's account, which has no reputation here and is not screened.
        check: the jailed checkers.
        beacon_of: the beacon of an epoch, or none while it is unknown.
        record_of: the record in force in an epoch; by default that of a swarm in which no epoch is final.
        key: 32 secret random bytes, new at each start, so that no attacker can predict screens and audits.
        observers: every decision is reported to them, after the pay count.
    """

    def __init__(
        self,
        manifest: Manifest,
        database: Path | str,
        *,
        own: Account,
        check: Check,
        beacon_of: BeaconOf,
        key: bytes,
        terms: Terms = USUAL_TERMS,
        observers: Iterable[Observer] = (),
        record_of: RecordOf | None = None,
    ) -> None:
        self.manifest: Final = manifest
        self.own: Final = own
        self._terms = terms
        self._rng = random.Random(key)
        self.auditors = AuditorSet()
        self._connection = connection = open_database(database)
        self.count: Final = EpochCount(connection, manifest.difficulty)
        self.levels: Final = Levels(manifest, beacon_of, record_of)
        self._check = check
        self.success: Final = OwnSuccess(own, len(manifest.suite.families))
        self.reputation: Final = Reputation(connection)
        is_newcomer = self.reputation.is_newcomer
        self._screens = screens = Screens(manifest, key, own, is_newcomer)
        imitation = Imitation(manifest.suite.families, own)
        self.demonstrations: Final = DemonstrationPool(own, imitation.imitable, screens.is_usual, is_newcomer)
        imitated = [imitation, self.demonstrations] if terms.sampling.text_use.demonstrates else []
        self._observers = Observers([self.count, self.success, *imitated, *observers])
        self.islands: Final = IslandMap(manifest, beacon_of, IslandCounts(connection))
        self.certificates: Final = CertificateStore(
            manifest, connection, islands=self.islands, own=own, is_newcomer=is_newcomer, key=key
        )
        self.standing: Final = self.certificates.standing
        self.admission: Final = Admission(manifest, self.certificates, path=connection)
        self.newcomers: Final = NewcomerLots(key, self.standing, self.reputation.passing_part)
        self.pool: Final = Pool(connection, terms.pool, self.reputation, self.newcomers)
        self.envelopes: Final = EnvelopeStore(
            connection, Retention(own, self.reputation, self.count, terms.kept_bytes)
        )
        self.origins: Final = Origins(connection)
        self.proofs: Final = ProofStore(
            manifest, self.certificates, self.reputation, own=own, path=connection, terms=self.admission.terms
        )
        self.contributions: Final = ContributionStore(database, manifest.swarm_id)
        self.contribution_admission: Final = ContributionAdmission(
            manifest, self.certificates, self.contributions, lambda: self.auditors
        )
        self.audits: Final = AuditQueue(terms.audits_waiting)
        self._verifier = self._open_verifier()
        self._commitments = CommitmentStore(manifest, self.certificates, connection, self.admission.terms)
        self.sampled: Final = self._open_sampled_audits()
        self.sampler: Final = Sampler(
            self.pool, self.reputation, self._verifier, terms.sampling, screens, self.origins.network_of
        )
        self._handlers: dict[str, tuple[_Handler, int]] = {t: (one, 0) for t, one in self._topics(0).items()}

    def _open_verifier(self) -> Verifier:
        return Verifier(
            check=self._check,
            levels=self.levels,
            reputation=self.reputation,
            count=self.count,
            observer=self._observers,
            screens=self._screens,
            connection=self._connection,
        )

    def _open_sampled_audits(self) -> SampledAudits:
        return SampledAudits(
            self.manifest,
            commitments=self._commitments,
            admission=self.admission,
            envelopes=self.envelopes,
            count=self.count,
            verify=self.verify,
            is_silenced=self.reputation.is_banned,
        )

    def observe(self, observer: Observer) -> None:
        """Report every later decision to one more observer."""
        self._observers.append(observer)

    def restore(self, now_seconds: float) -> None:
        """Admit again what was stored before a restart, and queue what was admitted but not audited.

        Stored messages are validated again: what admission refuses now is dropped.
        """
        self.certificates.restore(now_seconds)

        def readmit(envelope: bytes) -> AdmittedRollout:
            admitted = self.admission.admit(envelope, now_seconds, stored=True)
            self._screens.note_arrival(admitted, now_seconds, live=False)
            if not self.count.is_decided(admitted.content_id):
                self._draw_for_audit(admitted)  # one at a time: all together may be gigabytes
            return admitted

        self.pool.restore(self.envelopes.envelope, readmit)
        self.proofs.restore(now_seconds)
        for envelope in self.envelopes.since(max(0, self.epoch(now_seconds) - EPOCH_WINDOW)):
            with suppress(RemoteProtocolError):  # in the pool already, or its epoch is over
                readmit(envelope)

    def receive(
        self,
        topic: str,
        message: bytes,
        now_seconds: float,
        *,
        source: str = "",
        live: bool = True,
        arrived_seconds: float | None = None,
    ) -> Received:
        """Decide on a message and store all effects of the decision.

        Args:
            source: label of the peer that forwarded it, for observers only.
            live: false for catch-up, in which late and known messages are normal.
            arrived_seconds: Unix time of its first arrival, if it could not be decided then.

        Raises:
            KeyError: the topic is not one of this swarm, or of an island that this node never carried.
        """
        handler, island = self._handlers[topic]
        is_rollout = handler == self._receive_rollout
        near = self.islands.rollouts if is_rollout else self.islands.carried
        topic_islands = frozenset({island}) if live else near
        arrival = Incoming(message, now_seconds, arrived_seconds or now_seconds, source, live, topic_islands)
        try:
            return handler(arrival)
        except RemoteProtocolError as error:
            return self._refuse(error, arrival, is_rollout=is_rollout)

    def carry(self, islands: Collection[int], rollouts: Collection[int] | None = None) -> None:
        """Accept the topics of these islands, and responses to requests if they belong to these islands.

        Args:
            rollouts: the islands whose rollouts are accepted; None for all of them.
        """
        near = islands if rollouts is None else rollouts
        self.islands.carried, self.islands.rollouts = frozenset(islands), frozenset(near)
        self.islands.has_joined = True
        for island in islands:
            self._handlers |= {topic: (handler, island) for topic, handler in self._topics(island).items()}

    def admit_own(self, message: bytes, now_seconds: float) -> AdmittedRollout:
        """Admit a rollout that this node made, and store it before it is published.

        Raises:
            RemoteProtocolError: with the rule that it breaks.
        """
        admitted = self.admission.admit(message, now_seconds)
        self._keep(admitted, message, now_seconds, live=True)
        return admitted

    async def verify(self, admitted: AdmittedRollout) -> VerifiedRollout:
        """Return the rollout with its prompt and rewards; see ``Verifier.verify``."""
        return await self._verifier.verify(admitted)

    async def draw(self, epoch: int, rng: random.Random) -> tuple[VerifiedRollout, ...]:
        """Return up to J verified, informative groups of other accounts; see ``Sampler.draw_external``."""
        return await self.sampler.draw_external(epoch, rng)

    async def practise(self, hint: VerifiedRollout, completions: Sequence[bytes]) -> PractisedGroup:
        """Return own answers to the task of another account's rollout with their rewards.

        Raises:
            CheckFailed: the answers cannot be scored.
        """
        checked = await self._check(hint.task, completions)
        return PractisedGroup(hint, tuple(completions), checked.rewards)

    async def answer_privately(
        self, task: Task, prompt: str, completions: Sequence[bytes], handle: int
    ) -> PrivateGroup:
        """Return own answers to a task that fills no slot, with their rewards.

        Raises:
            CheckFailed: the answers cannot be scored.
        """
        checked = await self._check(task, completions)
        return PrivateGroup(task, prompt, tuple(completions), checked.rewards, handle)

    def demonstrate(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """Return right answers of other accounts to imitate, each only once.

        The places are divided like those of a batch, among the accounts with answers in families that this
        node has not mastered; the less it has mastered a family, the more places the family gets.
        """
        return self.sampler.demonstrate(self.demonstrations, self.success, epoch, rng)

    def take_to_judge(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """Return right answers in families that this node has mastered; their steps are judged, not trained.

        They are of other accounts, by their shares, and this node's own.
        """
        return self.sampler.take_to_judge(self.demonstrations, self.success, epoch, rng)

    def judge_steps(
        self, epoch: int, values: Iterable[JudgedSteps], known: Iterable[JudgedSteps] = ()
    ) -> None:
        """See ``Sampler.judge_steps``."""
        self.sampler.judge_steps(epoch, values, known, self.own)

    def task_of(self, epoch: int, account: Account, family: int, slot: int) -> Task:
        """Return the task that a slot holds.

        Raises:
            RemoteProtocolError: ``BEACON_UNKNOWN``.
        """
        return self._verifier.task_of(epoch, account, family, slot)

    def set_auditors(self, auditors: Auditors, epoch: int = 0, *, by_turns: bool = True) -> None:
        """Admit the contributions of these accounts from now on, and of no others.

        Args:
            epoch: the present one; the certificates of the auditors at work in it are accepted on every
                island.
            by_turns: see ``AuditorSet``.
        """
        self.auditors = AuditorSet(auditors, by_turns)
        self.islands.everywhere = self.standing.exempt = auditors.at_work(epoch)

    def learn_origin(self, account: Account, host: str) -> None:
        """Record the network from which an account's own node sent its rollout to this one."""
        self.origins.learn(account, host)

    def forget(self, epoch: int) -> None:
        """Drop what is too old for an epoch, and the certificates of accounts on other islands."""
        start = epoch_start_seconds(self.manifest, epoch)
        self.certificates.forget(lambda one: one == self.own or self.islands.is_near(one, start))
        self.pool.expire(epoch - EPOCH_WINDOW)
        self.admission.forget(epoch - EPOCH_WINDOW - 1)  # one more, which is accepted while clocks differ
        self.envelopes.forget(epoch)
        self.proofs.forget(epoch)
        self.sampled.commitments.forget(epoch)
        self.count.forget(before_epoch=epoch - KEPT_EPOCHS)
        self.contributions.forget(before_epoch=epoch - CONTRIBUTION_EPOCHS)

    def epoch(self, now_seconds: float) -> int:
        """Return the epoch at a time, the first one before genesis."""
        return present_epoch(self.manifest, now_seconds)

    def _topics(self, island: int) -> dict[str, _Handler]:
        swarm_id = self.manifest.swarm_id
        topics: dict[str, _Handler] = {
            certificates_topic(swarm_id, island): self._receive_certificate,
            rollouts_topic(swarm_id, island): self._receive_rollout,
            equivocations_topic(swarm_id, island): self._receive_proof,
            contributions_topic(swarm_id): self._receive_contribution,
        }
        if self.manifest.audits is not None:
            topics[commitments_topic(swarm_id, island)] = self._receive_commitment
        return topics

    def _receive_certificate(self, came: Incoming) -> Received:
        certificate = self.certificates.admit(came.message, came.now_seconds, came.topic_islands)
        return Received(Verdict.ACCEPT, admitted=certificate)

    def _receive_commitment(self, came: Incoming) -> Received:
        commitment = self.sampled.commitments.admit(came.message, came.now_seconds, came.topic_islands)
        return Received(Verdict.ACCEPT, admitted=commitment)

    def _receive_contribution(self, came: Incoming) -> Received:
        admitted = self.contribution_admission.admit(came.message, came.now_seconds)
        self.contributions.add(
            admitted.content_id,
            admitted.kind,
            admitted.content,
            came.message,
            received_seconds=came.now_seconds,
        )
        return Received(Verdict.ACCEPT, admitted=admitted)

    def _receive_proof(self, came: Incoming) -> Received:
        with transaction(self._connection):
            proof = self.proofs.admit(came.message, came.now_seconds, came.topic_islands)
            self._observers.proved(proof, came.source)
        return Received(Verdict.ACCEPT, admitted=proof)

    def _receive_rollout(self, came: Incoming) -> Received:
        admitted = self.admission.admit(came.message, came.now_seconds, came.topic_islands)
        if self.envelopes.knows(admitted.content_id):  # from before a restart
            return Received(Verdict.IGNORE, Rule.ROLLOUT_NEW)
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:  # all effects below are stored together
            refusal = self._offer(admitted)
            self._keep(admitted, came.message, came.arrived_seconds, live=came.live)
            self._observers.admitted(admitted, came.message, came.source)
            if admitted.rollout.account == self.own:  # another machine of it made this one
                self._note_sibling(admitted)
            elif refusal is not None:
                self._observers.refused(refusal.rule, admitted, refusal.detail)
            else:
                self._draw_for_audit(admitted)
        return Received(Verdict.ACCEPT, refusal.rule if refusal else None, admitted)

    def _note_sibling(self, admitted: AdmittedRollout) -> None:
        """Do not audit a rollout of another machine of the own account, unless this node commits to it."""
        if self.manifest.audits is None:
            self.count.leave_out(admitted)
        else:
            self._queue(admitted, known=True)

    def _offer(self, admitted: AdmittedRollout) -> RemoteProtocolError | None:
        """Offer the rollout to the pool; return the refusal, or None if the pool took it."""
        if admitted.rollout.account == self.own:
            return None
        try:
            self.pool.offer(admitted)
        except RemoteProtocolError as error:
            return error
        return None

    def _keep(self, admitted: AdmittedRollout, message: bytes, arrived_seconds: float, *, live: bool) -> None:
        self._screens.note_arrival(admitted, arrived_seconds, live=live)
        self.envelopes.add(admitted, message)

    def _draw_for_audit(self, admitted: AdmittedRollout) -> None:
        """Queue a rollout for an audit: each one of a newcomer, of others a random part; a full queue drops
        one."""
        is_known = not self.reputation.is_newcomer(admitted.account)
        share = self._terms.audit_share
        if not share or (is_known and self._rng.random() >= share):
            return
        self._queue(admitted, known=is_known)

    def _queue(self, admitted: AdmittedRollout, *, known: bool) -> None:
        if (displaced := self.audits.put(admitted, known=known)) is not None:
            self._observers.displaced(displaced)
        if displaced is not admitted:
            self._observers.queued(admitted)

    def _refuse(self, error: RemoteProtocolError, came: Incoming, *, is_rollout: bool) -> Received:
        if error.reason in (_EXPECTED_OF_LIVE_ROLLOUTS if is_rollout and came.live else _EXPECTED):
            return Received(verdict(error.reason), error.rule)
        first = error.first if isinstance(error, SlotTaken) else None
        proof = None if first is None else self._prove(came.message, first, came.now_seconds)
        self._observers.message_refused(error, came.message, came.source)
        if proof is not None:
            rollout = parse_rollout(parse_envelope(came.message, self.manifest.swarm_id).payload)
            islands = self.islands.proof_islands(rollout.account, rollout.epoch, came.now_seconds)
            return Received(verdict(error.reason), error.rule, proof=proof, islands=islands)
        unknown = error.node if isinstance(error, NotIntroduced) else None
        begins = error.begins_seconds if isinstance(error, NotBegun) else None
        return Received(verdict(error.reason), error.rule, unknown=unknown, begins_seconds=begins)

    def _prove(self, message: bytes, first: ContentId, now_seconds: float) -> bytes | None:
        """Prove that an admitted content and a later message are an equivocation.

        For an own slot there is no proof but a report: a second process with this node's key, or a lost
        signing database, is for the operator to repair.

        Returns:
            The proof as a message, or None if other nodes need not be sent it.
        """
        if (earlier := self.envelopes.envelope(first)) is None:
            return None  # its epoch is long over, or it was dropped because the space was full
        with suppress(RemoteProtocolError), transaction(self._connection):  # a certificate may have expired
            proof = self.proofs.prove(earlier, message, now_seconds)
            if proof is not None:
                self._observers.proved(open_proof(parse_envelope(proof, self.manifest.swarm_id)), None)
                return proof
        rollout = parse_rollout(parse_envelope(message, self.manifest.swarm_id).payload)
        if rollout.account == self.own:
            self._observers.own_slot_conflict(rollout.epoch, rollout.slot)
        return None
