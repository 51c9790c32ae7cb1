"""The watchtower: every node's part in keeping the ledger honest.

A live posting is compared with the contributions that this node holds. If it can be proved false to the
contract, this node challenges it. If this node computes the same root, it finalises the posting after the
challenge window. Otherwise it reports the posting to the operator and leaves it to other nodes. Auditors that
sign two roots in one turn are challenged, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.auditing.disputes import (
    Dispute,
    PostedTrees,
    equivocations,
    find_fraud,
    posting_search,
)
from sapo_client.node.auditing.pace import watching_pause_seconds
from sapo_client.node.auditing.recall import FinalEpochs, begun_at
from sapo_client.node.auditing.settlement import cumulative_points, grace_seconds, settlement_check
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.offload import offload
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import SETTLED_EPOCHS
from sapo_protocol.epochs import present_epoch
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.merkle import RootOf, plain_root, sum_root
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.working import Working, part

if TYPE_CHECKING:
    from sapo_client.ledger.fraud import FraudProof
    from sapo_client.ledger.records import EpochRecord, LeafQuestion
    from sapo_client.ledger.service import LedgerClient
    from sapo_protocol.eip712 import EpochRoot

_MIN_LOOK_SECONDS: Final = 1.0
"""Shortest interval between two examinations of a posting, for short windows."""

_SEARCHED_EPOCHS: Final = SETTLED_EPOCHS + 1
"""Ended epochs that are searched for equivocations: approvals come while their epoch can be settled."""


_GROUPS: Final = 16
"""Number of groups of nodes that act one after another, so that not all pay for the same transaction."""


@dataclass(frozen=True, slots=True)
class WatchtowerParts:
    """The parts that the watchtower works with.

    Attributes:
        auditors: returns those of an epoch, ascending.
    """

    manifest: Manifest
    account: Account
    auditors: Callable[[int], tuple[Account, ...]]
    ledger: LedgerClient
    contributions: ContributionStore
    events: EventLog
    clock: Clock


@dataclass(frozen=True, slots=True)
class _Opinion:
    """A node's conclusion about a live posting.

    Attributes:
        proof: that it is false, if there is one; None on a ledger of version 0.1.0.
        is_explained: whether this node computes the same root.
        trees: its trees, as far as they are known.
    """

    proof: FraudProof | None
    is_explained: bool
    trees: PostedTrees | None

    @property
    def stands(self) -> bool:
        """Whether it is final: no later message can change it."""
        return self.proof is not None or self.is_explained


class LedgerWatchtower:
    """Service that challenges false postings and finalises correct ones."""

    def __init__(self, parts: WatchtowerParts) -> None:
        self._parts = parts
        self._quorum = 0
        self._challenge_seconds = 0
        self._points_cap = 0
        self._epoch_budget = 0
        self._reported: set[tuple[str, Digest, object]] = set()
        self._formed: tuple[tuple[Dispute, int], _Opinion] | None = None
        self._punished: set[tuple[Account, int, int]] = set()
        self._found_seconds: dict[tuple[Account, int, int], float] = {}
        self._due_seconds = math.inf
        self._finals = FinalEpochs(
            account=parts.account,
            ledger=parts.ledger,
            contributions=parts.contributions,
            events=parts.events,
            clock=parts.clock,
        )

    async def run(self) -> None:
        """Examine postings until cancelled; may be run again after that."""
        while True:
            await self.look()
            await trio.sleep(self._pause_seconds())

    async def look(self) -> None:
        """Examine signatures, final epochs and the live posting once; queue the transactions that follow.

        Each of the three is examined even if reading another from the chain fails.

        Raises:
            LedgerError: reading one of them from the chain failed.
        """
        if not self._quorum:
            await self._learn_terms()
        failed: list[LedgerError] = []
        for examine in (self._punish_equivocations, self._look_at_finals, self._look_at_live):
            try:
                await examine()
            except LedgerError as error:
                failed.append(error)
        if failed:
            raise next((error for error in failed if not error.transient), failed[0])

    def _pause_seconds(self) -> float:
        """Return the seconds until the next look, early enough for this node's own duties."""
        until_due_seconds = min(self._due_seconds, self._finals.due_seconds) - self._parts.clock()
        return watching_pause_seconds(self._challenge_seconds, _MIN_LOOK_SECONDS, until_due_seconds)

    async def _learn_terms(self) -> None:
        ledger = self._parts.ledger
        self._challenge_seconds = await ledger.challenge_seconds()
        self._points_cap = await ledger.points_cap()
        self._epoch_budget = await ledger.epoch_budget()
        _, self._quorum = await ledger.changes.auditors()

    def _current_epoch(self) -> int:
        return present_epoch(self._parts.manifest, self._parts.clock())

    async def _look_at_finals(self) -> None:
        parts = self._parts
        if await parts.ledger.can_settle():
            await self._finals.look(
                self._challenge_seconds,
                share=self._share(self._current_epoch()),
                answer_from=self._answer_from,
                wait_seconds=self._wait_seconds,
            )

    async def _look_at_live(self) -> None:
        self._due_seconds = math.inf
        live = await self._parts.ledger.live_record()
        if live is not None:
            await self._examine(live)

    async def _punish_equivocations(self) -> None:
        parts, current = self._parts, self._current_epoch()
        if not await parts.ledger.can_settle():
            return
        for epoch in range(max(0, current - _SEARCHED_EPOCHS), current):
            await offload(parts.contributions.reading_proposals(epoch))
            found = equivocations(parts.contributions, epoch, parts.manifest.ledger_domain)
            for (auditor, turn), proof in found.items():
                if (auditor, epoch, turn) in self._punished or not self._may_punish(auditor, epoch, turn):
                    continue
                if not await parts.ledger.has_equivocated(auditor, epoch, turn):
                    if not await parts.ledger.changes.is_punishable(auditor, epoch):
                        continue  # it may bond later
                    await parts.ledger.challenge(epoch, proof)
                    parts.events.write("challenge", epoch=epoch, auditor=auditor, proof=proof.FUNCTION)
                self._punished.add((auditor, epoch, turn))  # only now: it is tried again after an outage

    def _may_punish(self, auditor: Account, epoch: int, turn: int) -> bool:
        """Whether it is this node's turn to prove two signatures; nodes find them at about the same time."""
        now = self._parts.clock()
        found_seconds = self._found_seconds.setdefault((auditor, epoch, turn), now)
        return now >= found_seconds + self._wait_seconds(epoch)

    async def _examine(self, live: EpochRecord) -> None:
        parts = self._parts
        record = await parts.ledger.last_record()
        last = record.root if record else None
        dispute = Dispute(live.root, last, self._points_cap)
        if await parts.ledger.live_record() != live:
            return  # the state changed between these requests, so the answers are inconsistent
        opinion = await self._opinion(dispute)
        if opinion.proof is not None:
            self._due_seconds = self._challenge_from_seconds(live)
            if parts.clock() >= self._due_seconds:
                await parts.ledger.challenge(live.root.epoch, opinion.proof)  # queued once
                self._report("challenge", live.root, proof=opinion.proof.FUNCTION)
        elif not opinion.is_explained:
            self._report("posting_doubted", live.root)
            await self._ask(live, last)
        elif not await self._answer(live, opinion):
            self._due_seconds = self._final_seconds(live)
            if parts.clock() >= self._due_seconds:
                await parts.ledger.finalise(live)

    async def _answer(self, live: EpochRecord, opinion: _Opinion) -> bool:
        """Show the leaves that were asked for; return whether a question is open.

        Only the first answer earns the bond, so nodes take turns at each question.
        """
        parts = self._parts
        if not await parts.ledger.can_settle():
            return False
        questions = await self._questions_about(live)
        for account, question in begun_at(self._share(live.root.epoch), questions):
            places = await offload(opinion.trees.placing(account)) if opinion.trees else None
            answer_from = self._answer_from(live.root.epoch, account, question)
            if places is not None and parts.clock() >= answer_from:
                await parts.ledger.leaves.answer(live, places, question)
                self._report("leaf_shown", live.root, account=account)
            elif places is not None:
                self._due_seconds = min(self._due_seconds, answer_from)
        return bool(questions)

    async def _ask(self, live: EpochRecord, last: EpochRoot | None) -> None:
        """Ask for this account's leaves in a posting that this node cannot compute, if it has points to lose.

        It waits for half of the window, since messages may still arrive. A question that is not answered
        rejects the posting: after the deadline nodes take turns, since one rejection suffices.
        """
        parts, end_seconds = self._parts, live.posted_at_seconds + self._challenge_seconds
        if not await parts.ledger.can_settle():
            return
        questions = await self._questions_about(live)
        if questions:
            account = min(questions, key=lambda each: (questions[each].deadline_seconds, each))
            self._due_seconds = questions[account].deadline_seconds + self._wait_seconds(live.root.epoch)
            if parts.clock() >= self._due_seconds:
                await parts.ledger.leaves.reject_hidden(live, account)
                self._report("leaf_hidden", live.root, account=account)
                return
        granted = (cumulative_points(parts.contributions, last) or {}).get(parts.account, 0)
        is_time = end_seconds - self._challenge_seconds / 2 <= parts.clock() < end_seconds
        if not is_time or granted <= await parts.ledger.claimed():
            return
        if await parts.ledger.leaves.ask(live, parts.account):
            self._report("leaf_asked", live.root, account=parts.account)

    async def _questions_about(self, live: EpochRecord) -> Mapping[Account, LeafQuestion]:
        """Return the open questions about the live posting; none, and an event, if the chain does not answer.

        The caller can then continue, because the contract finalises nothing while a question is open.
        """
        try:
            return await self._parts.ledger.leaves.of_live(live)
        except LedgerError as error:
            self._report("questions_unread", live.root, error=str(error))
            return {}

    async def _opinion(self, dispute: Dispute) -> _Opinion:
        """Return this node's conclusion about a posting; it is computed again until it is final.

        A proof or the same root is final, since everything that it is computed from is fixed by digests.
        """
        known = dispute, self._parts.contributions.revision
        formed = self._formed
        if formed is not None and (formed[0] == known or (formed[0][0] == dispute and formed[1].stands)):
            return formed[1]
        by_turns = await self._parts.ledger.can_settle()
        opinion = await offload(self._forming(dispute, by_turns=by_turns))
        self._formed = known, opinion
        return opinion

    def _forming(self, dispute: Dispute, *, by_turns: bool) -> Working[_Opinion]:
        contributions, last = self._parts.contributions, dispute.last
        yield from contributions.reading(dispute.root.epoch)
        if last is not None:
            yield from contributions.reading_proposals(last.epoch)
        proposals = contributions.proposals(dispute.root.epoch).values()
        rows = sum(len(proposal.shares) for proposal in proposals)
        trees = (yield from part(rows, posting_search(dispute, contributions))) if by_turns else None
        proof = (yield from part(rows, partial(find_fraud, dispute, trees))) if trees else None
        root_of = sum_root if by_turns else plain_root
        is_explained = proof is None and (yield from self._explaining(dispute.root, last, root_of))
        return _Opinion(proof, is_explained, trees)

    def _explaining(self, root: EpochRoot, last: EpochRoot | None, root_of: RootOf) -> Working[bool]:
        """Whether this node computes the same root from the tallies behind it."""
        content_id, contributions = ContentId(root.archive_digest), self._parts.contributions
        proposal = contributions.proposal(content_id)
        if proposal is None or any(contributions.tally(tally) is None for tally in proposal.tallies):
            return False
        is_current = root_of is sum_root  # the store caches their roots
        told = contributions.epoch_root(content_id) if is_current else proposal.root(content_id, root_of)
        if told is None or told != root:
            return False
        check = settlement_check(
            contributions,
            proposal,
            last,
            manifest=self._parts.manifest,
            quorum=self._quorum,
            points_cap=self._points_cap,
            epoch_budget=self._epoch_budget,
            root_of=root_of,
            base_root=told.base_root,
        )
        return (yield from part(len(proposal.shares), check))

    def _challenge_from_seconds(self, live: EpochRecord) -> float:
        """Return the Unix time from which this node challenges a posting that is not challenged yet.

        Nodes take turns in the first half of the window; in the second half all may challenge, also with late
        proofs.
        """
        return live.posted_at_seconds + self._wait_seconds(live.root.epoch)

    def _wait_seconds(self, epoch: int) -> float:
        """Return how long this node leaves a proof, a rejection or a recall to others: less than half of the
        window."""
        turns = len(self._parts.auditors(epoch)) + _GROUPS
        return self._turn(epoch) * self._challenge_seconds / (2 * turns)

    def _answer_from(self, epoch: int, account: Account, question: LeafQuestion) -> float:
        """Return the Unix time from which this node answers a question about an account, in the first half of
        the time for it.

        The first turn is another auditor's for other accounts, so many questions are answered at once.
        """
        turn, auditors = self._turn(epoch), len(self._parts.auditors(epoch))
        if turn < auditors:
            turn = (turn + account[-1]) % auditors
        wait_seconds = turn * self._challenge_seconds / (2 * (auditors + _GROUPS))
        return question.deadline_seconds - self._challenge_seconds + wait_seconds

    def _final_seconds(self, live: EpochRecord) -> float:
        """Return the Unix time from which this node finalises a posting."""
        wait = self._turn(live.root.epoch) * grace_seconds(self._parts.manifest)
        return live.posted_at_seconds + self._challenge_seconds + wait

    def _share(self, epoch: int) -> float:
        """Return this node's place, from 0 to 1, among the auditors, or among the other nodes."""
        turn, auditors = self._turn(epoch), len(self._parts.auditors(epoch))
        return turn / auditors if turn < auditors else (turn - auditors) / _GROUPS

    def _turn(self, epoch: int) -> int:
        """Return this node's turn for a transaction that one node has to pay: auditors one by one, then
        groups."""
        auditors, account = self._parts.auditors(epoch), self._parts.account
        if account in auditors:
            return (auditors.index(account) - epoch) % len(auditors)
        return len(auditors) + account[-1] % _GROUPS

    def _report(self, event: str, root: EpochRoot, **fields: object) -> None:
        """Write an event once per posting and account, however often it is examined."""
        digest = root.digest(self._parts.manifest.ledger_domain)
        key = event, digest, fields.get("account")
        if key not in self._reported:
            self._reported.add(key)
            self._parts.events.write(event, epoch=root.epoch, digest=digest, **fields)
