"""The auditor: counts an epoch's points, and agrees with the other auditors on the root that is posted.

After an epoch has ended, and a grace period for messages on their way:

1. every auditor publishes its tally;
2. the auditor whose turn it is proposes the settlement of the tallies it holds; if nothing is posted in time,
   the next one proposes;
3. every auditor approves the proposal if it follows from the tallies that it names, once per turn;
4. an auditor that holds a quorum of approvals posts the root, the proposer first;
5. every auditor approves the live root again in a later turn if convictions left it without a quorum.

``agreement.py`` decides each of these steps. Nodes of other accounts only store the contributions, which
prove their shares, and watch the postings.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol

import trio

from sapo_client.machine_marks import MachineApprovals
from sapo_client.node.auditing.accuser import Accuser
from sapo_client.node.auditing.agreement import Agreement, AgreementTerms, ChainState, Postable
from sapo_client.node.auditing.every_group import EveryGroup
from sapo_client.node.auditing.pace import settling_pause_seconds, watching_pause_seconds
from sapo_client.node.auditing.pages import PageExchange
from sapo_client.node.auditing.sample import SampleAudit
from sapo_client.node.auditing.scrutiny import scrutinise
from sapo_client.node.auditing.settlement import cumulative_points, grace_seconds
from sapo_client.node.auditing.watchtower import LedgerWatchtower, WatchtowerParts
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.context import Author
from sapo_client.node.runtime.offload import offload
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol.contributions import Approval, parse_approval, parse_proposal
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.envelope import Kind, SignedEnvelope
from sapo_protocol.epochs import epoch_at, epoch_start_seconds, present_epoch
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.merkle import sum_of
from sapo_protocol.settlement import tally_seconds
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.topics import contributions_topic
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.engine import Engine
from sapo_verification.signing.database import SigningDatabase

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient

_MIN_LOOK_SECONDS: Final = 0.5

_FIRST_WAIT_GRACES: Final = 2
"""Longest wait of a process before its first approval: one that another process of the same account sends is
heard within seconds, and an approval that is two turns late still counts for its own turn."""

_FOLLOW_SECONDS: Final = 2.0
"""Shortest interval of asking the chain for a new record; it is used if challenge windows are short."""

_LOOKS_PER_EPOCH: Final = 16
_MAX_PAUSE_SECONDS: Final = 30.0
"""Longest pause between two readings of the announced replacements of auditors."""

_EARLIER_LEDGER: Final = (
    "the swarm's ledger is of an earlier version of sapo: its points can be claimed, not audited"
)

_SERVED_EPOCHS: Final = 16
"""Epochs whose contributions are sent to a new peer; a claim needs those of the last one."""


@dataclass(frozen=True, slots=True)
class AuditorParts:
    """The parts that an auditor works with; without an account key it only follows the settlement.

    Attributes:
        machine: what the account approved on this machine with any data directory; None if that is not kept.
        draw: returns which part of the longest wait, from 0 to 1, the first approval waits.
    """

    author: Author
    account_key: bytes | None
    transport: Transport
    ledger: LedgerClient
    gossip: GossipHandlers
    engine: Engine
    telemetry: Telemetry
    clock: Clock
    signing: SigningDatabase
    beacons: Beacons
    machine: MachineApprovals | None = None
    draw: Callable[[], float] = random.SystemRandom().random

    @property
    def manifest(self) -> Manifest:
        """The swarm's manifest."""
        return self.engine.manifest

    @property
    def contributions(self) -> ContributionStore:
        """The contributions of all auditors."""
        return self.engine.contributions

    def auditors(self, epoch: int) -> tuple[Account, ...]:
        """Return the auditors of an epoch, ascending, as far as this node knows."""
        return self.engine.auditors.schedule.of(epoch)

    def watchtower(self) -> LedgerWatchtower:
        """Return the watchtower over the same ledger and contributions."""
        return LedgerWatchtower(
            WatchtowerParts(
                manifest=self.manifest,
                account=self.author.account,
                auditors=self.auditors,
                ledger=self.ledger,
                contributions=self.contributions,
                events=self.telemetry.events,
                clock=self.clock,
            )
        )

    def accuser(self) -> Accuser:
        """Return the accuser over the same ledger and the proofs that this node holds."""
        return Accuser(
            manifest=self.manifest,
            own=self.author.account,
            auditors=self.auditors,
            ledger=self.ledger,
            proofs=self.engine.proofs,
            events=self.telemetry.events,
            clock=self.clock,
        )


class AuditedEpochs(Protocol):
    """Results of an auditor's checks of ended epochs: of every group, or of the drawn ones."""

    async def run(self) -> None:
        """Audit until cancelled, or return where another service does; may be run again."""

    def is_known(self, epoch: int) -> bool:
        """Whether it is known which groups of an epoch are counted and how they are paid."""

    def is_done(self, epoch: int) -> bool:
        """Whether all counted groups of an epoch are audited."""

    def points(
        self, epoch: int, live: Collection[Account], units: Mapping[Account, Fraction] | None, /
    ) -> tuple[tuple[Account, int], ...]:
        """Return the points of every account that has any, ascending by account.

        Args:
            live: the accounts that are registered now.
            units: each account's part of a whole account by the swarm's gate; None if every account counts in
                full.
        """

    def evidence_root(self, epoch: int) -> Digest:
        """Return the Merkle root over the ascending content ids behind the points."""


def _open_audited(parts: AuditorParts) -> AuditedEpochs:
    if parts.manifest.audits is None:
        return EveryGroup(parts.engine)
    return SampleAudit(
        engine=parts.engine,
        transport=parts.transport,
        ledger=parts.ledger,
        beacons=parts.beacons,
        clock=parts.clock,
        events=parts.telemetry.events,
    )


class AuditorRole(Protocol):
    """A node's part in the settlement of epochs."""

    @property
    def points(self) -> int:
        """Points of this account as of the last final epoch."""

    async def run(self) -> None:
        """Take part until cancelled; may be run again after that."""


class Auditor:
    """Service that follows the settlement of epochs, and takes part in it if its account is an auditor's."""

    def __init__(self, parts: AuditorParts) -> None:
        self._parts = parts
        self._last: EpochRoot | None = None
        self._followed = -1
        self._scrutinised = -1
        self._challenge_seconds = 0
        self._asked_seconds = -math.inf
        self._started_seconds = -math.inf
        self._pages = PageExchange(
            transport=parts.transport,
            uploads=parts.gossip.uploads,
            contributions=parts.contributions,
            swarm_id=parts.manifest.swarm_id,
            clock=parts.clock,
        )
        self.audited: Final = _open_audited(parts)
        self._known, self._by_turns = Auditors(), True
        self._rejected = frozenset[Digest]()
        self._is_elsewhere = False
        self.points = 0

    async def run(self) -> None:
        """Follow and audit until cancelled; may be run again after that."""
        parts = self._parts
        self._started_seconds = trio.current_time()
        terms = await self._join_contributions()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            nursery.start_soon(self._learn_replacements)
            nursery.start_soon(self._pages.run)
            nursery.start_soon(parts.watchtower().run)
            if parts.account_key is not None:  # also for an auditor of later epochs only
                if await parts.ledger.can_settle():
                    nursery.start_soon(self._audit, parts.account_key, terms)
                    nursery.start_soon(parts.accuser().run)
                    nursery.start_soon(self.audited.run)
                else:
                    parts.telemetry.events.write("audit_refused", why=_EARLIER_LEDGER)

    async def _join_contributions(self) -> AgreementTerms:
        """Learn the ledger's terms, then exchange contributions with peers."""
        parts = self._parts
        cap = min(await parts.ledger.points_cap(), parts.manifest.points_cap)
        budget = await parts.ledger.epoch_budget()
        self._challenge_seconds = await parts.ledger.challenge_seconds()
        self._known, quorum = await parts.ledger.changes.auditors()
        self._by_turns = await parts.ledger.can_settle()
        self._set_auditors()
        parts.gossip.open_contributions(self._recent)
        self._pages.serve()
        return AgreementTerms(auditors=parts.auditors, quorum=quorum, points_cap=cap, epoch_budget=budget)

    async def _learn_replacements(self) -> None:
        """Read the announced replacements of auditors periodically, long before they take effect."""
        pause_seconds = min(_MAX_PAUSE_SECONDS, self._parts.manifest.epoch_seconds / _LOOKS_PER_EPOCH)
        while True:
            await trio.sleep(max(_FOLLOW_SECONDS, pause_seconds))
            announced = await self._parts.ledger.successions()
            replacements = tuple(each.replacement for each in announced if each.replacement is not None)
            for new in [each for each in replacements if each not in self._known.replacements]:
                self._parts.telemetry.events.write(
                    "auditor_replaced", epoch=new.epoch, leaving=new.leaving, entering=new.entering
                )
            self._known = replace(self._known, replacements=replacements)
            self._set_auditors()

    def _set_auditors(self) -> None:
        manifest = self._parts.manifest
        epoch = present_epoch(manifest, self._parts.clock())
        self._parts.engine.set_auditors(self._known, epoch, by_turns=self._by_turns)

    async def _follow(self) -> None:
        """Follow the records on the chain and this account's points in them."""
        parts = self._parts
        while True:
            record, live = await parts.ledger.last_record(), await parts.ledger.live_record()
            if record is not None and record.root.epoch > self._followed:
                self._followed = record.root.epoch
                self._report_final(record.root)
            for found in (live, record):
                if found is not None:
                    self._obtain(found.root, is_final=found is record)
            if record is not None and record.root.epoch > self._scrutinised:
                await offload(parts.contributions.reading(record.root.epoch))
                self._scrutinise(record.root)
            if record is not None:  # every time: its proposal may arrive long after it
                proposal = ContentId(record.root.archive_digest)
                await offload(parts.contributions.reading_proposal(proposal))
                shares = cumulative_points(parts.contributions, record.root) or {}
                self.points = shares.get(parts.author.account, self.points)
            await trio.sleep(watching_pause_seconds(self._challenge_seconds, _FOLLOW_SECONDS))

    def _obtain(self, root: EpochRoot, *, is_final: bool) -> None:
        """Ask the peers for the proposal behind a posting if it is missing, with pauses.

        Also for the tallies that a live one names: without them nobody can check it.
        """
        proposal = ContentId(root.archive_digest)
        self._parts.contributions.note_posted(root.epoch, proposal, is_final=is_final)
        pause_seconds = grace_seconds(self._parts.manifest)
        is_due = trio.current_time() >= self._asked_seconds + pause_seconds
        contributions = self._parts.contributions
        is_missing = not contributions.has(proposal) or (
            not is_final and contributions.lacks_tallies(proposal)
        )
        if is_due and is_missing:
            self._asked_seconds = trio.current_time()
            self._parts.gossip.ask_for_contributions()

    def _recent(self) -> tuple[bytes, ...]:
        since_epoch = max(0, self._followed - _SERVED_EPOCHS)
        return self._parts.contributions.newest(since_epoch, MAX_ANSWER_BYTES)

    async def _audit(self, account_key: bytes, terms: AgreementTerms) -> None:
        parts = self._parts
        agreement = Agreement(
            author=parts.author,
            account_key=account_key,
            manifest=parts.manifest,
            terms=terms,
            contributions=parts.contributions,
            signing=parts.signing,
            machine=parts.machine,
            wait_seconds=_FIRST_WAIT_GRACES * grace_seconds(parts.manifest) * parts.draw(),
        )
        while True:
            is_posted = await self._advance(agreement)
            await trio.sleep(self._pause_seconds(is_posted=is_posted))

    def _pause_seconds(self, *, is_posted: bool) -> float:
        """Return the seconds until the next look, at most until the present epoch ends."""
        manifest, now_seconds = self._parts.manifest, self._parts.clock()
        if not is_posted:
            return settling_pause_seconds(grace_seconds(manifest), _MIN_LOOK_SECONDS)
        end_seconds = epoch_start_seconds(manifest, epoch_at(manifest, now_seconds) + 1)
        return watching_pause_seconds(self._challenge_seconds, _MIN_LOOK_SECONDS, end_seconds - now_seconds)

    async def _advance(self, agreement: Agreement) -> bool:
        """Take the next step for all ended epochs; return whether the newest one is posted, with a quorum."""
        parts = self._parts
        if not any(map(agreement.is_auditor, agreement.unsettled(parts.clock(), self._last))):
            return False  # nothing to ask the chain about
        record = await parts.ledger.last_record()
        self._last = record.root if record else None
        unsettled = agreement.unsettled(parts.clock(), self._last)
        newest = unsettled[-1] if unsettled and agreement.is_auditor(unsettled[-1]) else None
        if newest is not None and not agreement.has_tallied(newest) and self._may_count(newest):
            await self._publish_tally(agreement, newest)
        if not unsettled:
            return False
        state = await self._state(unsettled)
        step = await offload(agreement.stepping(parts.clock(), state))
        self._report_elsewhere(agreement.elsewhere)
        for envelope in step.messages:
            await self._publish(envelope)
        for posting in step.postings:
            await self._post(posting)
        is_complete = state.live_signatures >= agreement.quorum
        return state.live is not None and state.live.epoch == unsettled[-1] and is_complete

    async def _post(self, posting: Postable) -> None:
        """Post, unless the chain has rejected that root: then the settlement has to be proposed again.

        To a root that is live the signatures are added.
        """
        parts, statement = self._parts, posting.statement
        live = await parts.ledger.live_record()
        if live is not None and live.root == statement.root:
            await parts.ledger.changes.complete(live, statement, posting.signatures)
            return
        if not await parts.ledger.changes.is_rejected(statement):
            await parts.ledger.post(statement, posting.signatures)
            return
        digest = statement.root.digest(parts.manifest.ledger_domain)
        self._rejected |= {digest}
        parts.telemetry.events.write(
            "root_rejected", epoch=statement.root.epoch, turn=statement.turn, digest=digest
        )

    async def _state(self, epochs: range) -> ChainState:
        """Return the chain's state; bonds are read only if a proposal may need them."""
        ledger, last = self._parts.ledger, self._last
        live = await ledger.live_record()
        expiry_seconds = self._challenge_seconds + self._parts.manifest.epoch_seconds
        if live is not None and self._parts.clock() >= live.posted_at_seconds + expiry_seconds:
            live = None  # no node finalised it: the next posting replaces it
        granted = sum_of(last.cumulative_root) if last else 0
        is_proposed = any(self._parts.contributions.proposals(epoch) for epoch in epochs)
        auditors = self._known.within(epochs[0], epochs[-1])
        bonded = await ledger.changes.bonded(auditors) if is_proposed else frozenset[Account]()
        next_epoch = await ledger.next_epoch()
        root = live.root if live else None
        signatures = live.signers.bit_count() if live else 0
        return ChainState(last, root, granted, bonded, next_epoch, self._rejected, live_signatures=signatures)

    def _may_count(self, epoch: int) -> bool:
        """Whether an epoch can be tallied: late messages are in, and admitted rollouts audited or out of
        time.

        Only the newest ended epoch is tallied. A restarted auditor first finishes the audits that it had not.
        """
        parts = self._parts
        grace, begin = grace_seconds(parts.manifest), tally_seconds(parts.manifest)
        age_seconds = parts.clock() - epoch_start_seconds(parts.manifest, epoch + 1)
        if age_seconds < begin or epoch != epoch_at(parts.manifest, parts.clock()) - 1:
            return False
        if not parts.engine.standing.is_known(epoch) or not self.audited.is_known(epoch):
            return False
        waited = min(age_seconds - begin, trio.current_time() - self._started_seconds)
        is_late = waited >= grace / 2
        return is_late or self.audited.is_done(epoch)

    async def _publish_tally(self, agreement: Agreement, epoch: int) -> None:
        parts, units = self._parts, self._parts.engine.standing.units(epoch)
        live = {account for account, _ in await parts.ledger.live_accounts()}
        points, root = self.audited.points(epoch, live, units), self.audited.evidence_root(epoch)
        outcomes = parts.engine.count.outcomes(epoch, live, len(parts.manifest.suite.families), units)
        await self._publish(await offload(agreement.tallying(epoch, points, root, parts.clock(), outcomes)))
        by_account = {str(account): count for account, count in points}
        parts.telemetry.events.write("tally", epoch=epoch, points=by_account)

    async def _publish(self, envelope: SignedEnvelope) -> None:
        parts = self._parts
        await parts.transport.publish(contributions_topic(parts.manifest.swarm_id), envelope.to_bytes())
        content_id, events = envelope.content_id, parts.telemetry.events
        if envelope.kind is Kind.PROPOSAL:
            proposal = parse_proposal(envelope.payload)
            total = sum(share.points for share in proposal.shares)
            events.write(
                "proposal", epoch=proposal.epoch, turn=proposal.turn, content_id=content_id, total=total
            )
        elif envelope.kind is Kind.APPROVAL:
            approval = parse_approval(envelope.payload)
            events.write(
                "approval",
                epoch=approval.epoch,
                turn=approval.turn,
                proposal=approval.proposal,
                by=approval.account,
            )

    def _report_elsewhere(self, approval: Approval | None) -> None:
        """Report once that another process approves as this auditor; this one then approves nothing."""
        if approval is not None and not self._is_elsewhere:
            self._is_elsewhere = True
            self._parts.telemetry.events.write(
                "approved_elsewhere", epoch=approval.epoch, turn=approval.turn, proposal=approval.proposal
            )

    def _scrutinise(self, root: EpochRoot) -> None:
        """Report whether the auditors' tallies were counted, once the messages behind a final root are
        here."""
        found = scrutinise(self._parts.contributions, root)
        if found is not None:
            self._scrutinised = root.epoch
            apart = {str(account): points for account, points in found.apart.items()}
            lists = {"counted": [*map(str, found.counted)], "late": [*map(str, found.late)]}
            self._parts.telemetry.events.write("tallies", epoch=root.epoch, **lists, apart=apart)

    def _report_final(self, root: EpochRoot) -> None:
        self._parts.telemetry.events.write(
            "epoch_final",
            epoch=root.epoch,
            total=root.total,
            contribution_root=root.contribution_root,
            cumulative_root=root.cumulative_root,
        )
