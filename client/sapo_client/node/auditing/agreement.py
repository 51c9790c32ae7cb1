"""The auditors' agreement on an epoch (Byzantine fault tolerant), without network or chain access.

Of n auditors f = floor((n - 1) / 3) may lie, crash or be silent, and n - f agree:

1. A proposal names at least n - f tallies and is their settlement. At most f of these tallies are false, so
their lower median lies within the range of the honest ones. 2. An auditor approves one proposal per turn, and
may approve another one in a later turn. So a faulty proposer delays the agreement by one turn, and one honest
proposer suffices. 3. Whoever holds n - f approvals of one proposal posts it. The chain takes the first
posting of an epoch. 4. A posting whose leaves were not shown on request in time is rejected for ever, even if
it was correct. The same settlement can be proposed again in a later turn, since the turn is part of the
proposal, and so of its root's archive digest. 5. If convictions leave the live posting without a quorum, all
auditors approve its root in the present turn, whatever they approved in earlier ones, and post these
signatures. The pages of a proposal with many accounts are computed from its tallies and base, not requested.

The specification, with a sketch of the proof, is section 7 of ``protocol/README.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sapo_client.machine_marks import MachineApprovals
from sapo_client.node.auditing.approvals import Approver, signatures_by_turn
from sapo_client.node.auditing.settlement import (
    SettledShares,
    cumulative_points,
    last_record,
    settled_shares,
    settlement_check,
)
from sapo_client.node.runtime.context import Author
from sapo_protocol import merkle
from sapo_protocol.constants import SETTLED_EPOCHS
from sapo_protocol.contributions import (
    Approval,
    Proposal,
    Tally,
    granted_points,
    page_digest,
    to_pages,
)
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_start_seconds, present_epoch
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.settlement import grace_seconds, next_record, proposer, turn_count, turn_to_propose
from sapo_protocol.terms.difficulty import Outcomes
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.bounded_cache import BoundedCache
from sapo_verification.signing.database import SigningDatabase
from sapo_verification.working import Working, at_once, part

_TRAVEL_SHARE: Final = 0.5
"""Part of a grace after which a received tally has reached every node, with a conflicting one if there is
any."""

_KEPT_SETTLEMENTS: Final = 4
_KEPT_VERDICTS: Final = 1024

_Ground = tuple[Digest, int, int]
"""What a verdict on a proposal depends on: base root, granted points, and the revision of the store."""


@dataclass(frozen=True, slots=True)
class AgreementTerms:
    """Parameters of the agreement that the chain fixes.

    Attributes:
        auditors: returns the auditors of an epoch, ascending.
        quorum: how many tallies a proposal needs, and how many approvals a posting.
        points_cap: most points of one account in one epoch.
        epoch_budget: most points of one epoch.
    """

    auditors: Callable[[int], tuple[Account, ...]]
    quorum: int
    points_cap: int
    epoch_budget: int


@dataclass(frozen=True, slots=True)
class ChainState:
    """The relevant state of the chain at one time.

    Attributes:
        last: root of the last final epoch, if there is one.
        live: root that can still be challenged, if there is one.
        live_signatures: number of its signatures that count; those of convicted auditors do not.
        granted_points: points of all final epochs that were not recalled: the sum of the last one's root.
        bonded: the auditors whose signatures count.
        next_epoch: the first epoch that the chain still accepts: above all that were ever final, or recalled.
        rejected: digests of rejected roots, as far as the chain was asked.
    """

    last: EpochRoot | None
    live: EpochRoot | None
    granted_points: int
    bonded: frozenset[Account]
    next_epoch: int = 0
    rejected: frozenset[Digest] = frozenset()
    live_signatures: int = 0

    @property
    def base_root(self) -> Digest:
        """The cumulative root that the next posting must add to."""
        return self.last.cumulative_root if self.last else merkle.EMPTY_ROOT


@dataclass(frozen=True, slots=True)
class Postable:
    """A statement with the signatures of a quorum of bonded auditors."""

    statement: EpochApproval
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AgreementStep:
    """An auditor's next actions.

    Attributes:
        messages: to be published; they are stored already.
        postings: to be sent to the chain.
    """

    messages: tuple[SignedEnvelope, ...] = ()
    postings: tuple[Postable, ...] = ()


class Agreement:
    """One auditor's part in the agreement; its state is in the stores, so it continues after a restart.

    Args:
        account_key: the secret key of the auditor's account, 32 bytes.
        signing: records each approval before it is signed.
        machine: the account's approvals on this machine; None if they are not kept.
        wait_seconds: how long after a proposal this process approves its first one.
    """

    def __init__(
        self,
        *,
        author: Author,
        account_key: bytes,
        manifest: Manifest,
        terms: AgreementTerms,
        contributions: ContributionStore,
        signing: SigningDatabase,
        machine: MachineApprovals | None = None,
        wait_seconds: float = 0.0,
    ) -> None:
        self._author, self._manifest, self._terms = author, manifest, terms
        self._contributions = contributions
        self._approver = Approver(
            author, account_key, manifest, contributions, signing, machine, wait_seconds=wait_seconds
        )
        self._settled = BoundedCache[tuple[tuple[ContentId, ...], Digest], SettledShares](_KEPT_SETTLEMENTS)
        self._verdicts = BoundedCache[ContentId, tuple[_Ground, bool]](_KEPT_VERDICTS)
        self._granting = BoundedCache[tuple[ContentId, ...], bool](_KEPT_VERDICTS)
        self._completed = BoundedCache[tuple[ContentId, Digest], None](_KEPT_VERDICTS)
        self._limits = {"points_per_epoch": terms.points_cap, "epoch_budget": terms.epoch_budget}

    @property
    def quorum(self) -> int:
        """How many signatures a posting needs."""
        return self._terms.quorum

    @property
    def elsewhere(self) -> Approval | None:
        """An approval that another process has signed as this auditor; this one then approves nothing."""
        return self._approver.elsewhere

    def unsettled(self, now_seconds: float, last: EpochRoot | None, next_epoch: int = 0) -> range:
        """Return the epochs that have ended, are not final and can still be settled, oldest first.

        Args:
            next_epoch: the first one that the chain still accepts, as far as it was asked.
        """
        current = present_epoch(self._manifest, now_seconds)
        return range(max(0, current - SETTLED_EPOCHS, last.epoch + 1 if last else 0, next_epoch), current)

    def is_auditor(self, epoch: int) -> bool:
        """Whether this account is an auditor of an epoch."""
        return self._author.account in self._terms.auditors(epoch)

    def has_tallied(self, epoch: int) -> bool:
        """Whether this auditor has published its tally of an epoch."""
        tallies = self._contributions.tallies(epoch).values()
        return any(tally.account == self._author.account for tally in tallies)

    def tally(
        self,
        epoch: int,
        points: Sequence[tuple[Account, int]],
        evidence_root: Digest,
        now_seconds: float,
        outcomes: tuple[Outcomes, ...] = (),
    ) -> SignedEnvelope:
        """Store and return this auditor's tally of an epoch; with outcomes in a swarm with ladders."""
        return at_once(self.tallying(epoch, points, evidence_root, now_seconds, outcomes))

    def tallying(
        self,
        epoch: int,
        points: Sequence[tuple[Account, int]],
        evidence_root: Digest,
        now_seconds: float,
        outcomes: tuple[Outcomes, ...] = (),
    ) -> Working[SignedEnvelope]:
        """Tally as ``tally`` does; with 100,000 accounts the pages take half a second."""
        pages = yield from part(len(points), partial(to_pages, points))
        tally = Tally(
            node=self._author.node,
            account=self._author.account,
            epoch=epoch,
            points=points,
            evidence_root=evidence_root,
            pages=tuple(map(page_digest, pages)),
            outcomes=outcomes,
        )
        return (yield from self._sealing(Kind.TALLY, tally, now_seconds, pages))

    def step(self, now_seconds: float, state: ChainState) -> AgreementStep:
        """Return this auditor's next actions; approvals are recorded and messages stored before it returns.

        The chain accepts epochs in order, so each epoch waits until the one before it is settled, or known to
        have nothing to settle. While a posting is live all auditors wait, because the next proposal builds on
        its result; if it has lost its quorum of signatures, they approve it again and add theirs to it.
        """
        return at_once(self.stepping(now_seconds, state))

    def stepping(self, now_seconds: float, state: ChainState) -> Working[AgreementStep]:
        """Take a step as ``step`` does; messages may be admitted while its long parts run elsewhere.

        With 100,000 accounts they take seconds, for medians, pages and trees.
        """
        messages: list[SignedEnvelope] = []
        postings: list[Postable] = []
        if state.live is not None:
            return (yield from self._completing(state.live, state, now_seconds))
        if state.last is not None:
            yield from self._contributions.reading_proposal(ContentId(state.last.archive_digest))
        for epoch in self.unsettled(now_seconds, state.last, state.next_epoch):
            age_seconds = now_seconds - epoch_start_seconds(self._manifest, epoch + 1)
            turn, is_open = turn_to_propose(self._manifest, age_seconds)
            if turn < 0:
                break
            yield from self._contributions.reading(epoch)
            if self.is_auditor(epoch):
                self._approver.listen(epoch)
                yield from self._complete(epoch, state, now_seconds)
                messages.extend((yield from self._approve_all(epoch, turn, state, now_seconds)))
                if is_open and proposer(self._terms.auditors(epoch), epoch, turn) == self._author.account:
                    messages.extend((yield from self._propose(epoch, turn, state, now_seconds)))
                postings.extend(self._postings(epoch, turn, state))
            if (yield from self._may_have_something_to_settle(epoch)):
                break
        return AgreementStep(tuple(messages), tuple(postings))

    def _may_have_something_to_settle(self, epoch: int) -> Working[bool]:
        """Whether an epoch grants points, or may do so when missing tallies of a quorum arrive.

        It is worth waiting for late tallies, since the next epoch can be settled for a whole epoch longer.
        """
        tallies = self._contributions.tallies(epoch)
        if len(tallies) < self._terms.quorum:
            return any(points for tally in tallies.values() for _, points in tally.points)
        key = tuple(sorted(tallies))
        if key not in self._granting:
            granted = yield from part(
                _rows(tallies), partial(granted_points, [*tallies.values()], **self._limits)
            )
            self._granting[key] = any(granted.values())
        return self._granting[key]

    def _settlement(
        self, tallies: Mapping[ContentId, Tally], base_root: Digest, previous: Mapping[Account, int]
    ) -> Working[SettledShares]:
        """Return the settlement of tallies on top of the points granted before; the last results are
        cached."""
        key = tuple(sorted(tallies)), base_root
        if key not in self._settled:
            work = partial(settled_shares, [*tallies.values()], previous, self._limits)
            self._settled[key] = yield from part(_rows(tallies) + len(previous), work)
        return self._settled[key]

    def _complete(self, epoch: int, state: ChainState, now_seconds: float) -> Working[None]:
        """Compute the missing pages of those proposals that are the settlement of their tallies."""
        for content_id, proposal in self._contributions.incomplete_proposals(epoch).items():
            if (content_id, state.base_root) in self._completed:
                continue  # the pages that it names are not those of the settlement
            named = ((id_, self._contributions.tally(id_)) for id_ in proposal.tallies)
            tallies = {id_: tally for id_, tally in named if tally is not None and tally.epoch == epoch}
            previous = cumulative_points(self._contributions, state.last)
            if previous is not None and len(tallies) == len(proposal.tallies) >= self._terms.quorum:
                settled = yield from self._settlement(tallies, state.base_root, previous)
                yield from self._contributions.adding_pages(  # those that it names
                    settled.pages, received_seconds=now_seconds
                )
                yield from self._contributions.reading_proposal(content_id)
                self._completed[content_id, state.base_root] = None

    def _propose(
        self, epoch: int, turn: int, state: ChainState, now_seconds: float
    ) -> Working[Sequence[SignedEnvelope]]:
        """Propose the settlement of the tallies that every node has by now, once per turn, and approve it."""
        own = (p.account == self._author.account and p.turn == turn for p in self._proposals(epoch).values())
        travel_seconds = _TRAVEL_SHARE * grace_seconds(self._manifest)
        tallies = self._contributions.settled_tallies(epoch, now_seconds - travel_seconds)
        if any(own) or len(tallies) < self._terms.quorum or self._agreed(epoch, state):
            return ()
        previous = cumulative_points(self._contributions, state.last)
        before = last_record(self._contributions, self._manifest, state.last)
        if previous is None or before is None:
            return ()
        settled = yield from self._settlement(tallies, state.base_root, previous)
        if not settled.grants:
            return ()
        proposal = Proposal(
            node=self._author.node,
            account=self._author.account,
            epoch=epoch,
            tallies=tuple(sorted(tallies)),
            shares=settled.shares,
            turn=turn,
            pages=tuple(map(page_digest, settled.pages)),
            record=next_record(self._manifest.difficulty, before, [*tallies.values()]) or (),
        )
        envelope = yield from self._sealing(Kind.PROPOSAL, proposal, now_seconds, settled.pages)
        yield from self._contributions.reading_proposal(envelope.content_id)
        return [envelope, *(yield from self._approve(envelope.content_id, proposal, state, now_seconds))]

    def _approve_all(
        self, epoch: int, turn: int, state: ChainState, now_seconds: float
    ) -> Working[Sequence[SignedEnvelope]]:
        """Approve the proposal of each turn so far, in order, unless one of a later turn was approved."""
        approvals: list[SignedEnvelope] = []
        for content_id, proposal in self._proposals(epoch).items():
            if proposal.turn <= turn:
                approvals.extend((yield from self._approve(content_id, proposal, state, now_seconds)))
        return approvals

    def _approve(
        self,
        content_id: ContentId,
        proposal: Proposal,
        state: ChainState,
        now_seconds: float,
        turn: int | None = None,
    ) -> Working[Sequence[SignedEnvelope]]:
        """Approve a valid proposal in a turn; in its own one if none is given."""
        root = self._contributions.epoch_root(content_id)
        if root is None:
            return ()
        statement = EpochApproval(proposal.turn if turn is None else turn, root)
        if not self._approver.may_sign(content_id, statement):
            return ()
        is_valid = yield from self._is_valid(content_id, proposal, root, state)
        approval = self._approver.sign(content_id, statement, now_seconds) if is_valid else None
        if approval is None:
            return ()
        return [(yield from self._sealing(Kind.APPROVAL, approval, now_seconds))]

    def _is_valid(
        self, content_id: ContentId, proposal: Proposal, root: EpochRoot, state: ChainState
    ) -> Working[bool]:
        """Whether a proposal is the settlement of the tallies that it names, on the chain's base.

        The points granted on the chain must be the sum of that base. Otherwise a false sum has become final,
        and every root on top of it, honest ones included, could be proven false to the contract.
        """
        ground = state.base_root, state.granted_points, self._contributions.revision
        known = self._verdicts.get(content_id)
        if known is None or known[0] != ground:
            is_valid = yield from self._judge(proposal, root, state)
            self._verdicts[content_id] = known = ground, is_valid
        return known[1]

    def _judge(self, proposal: Proposal, root: EpochRoot, state: ChainState) -> Working[bool]:
        if proposer(self._terms.auditors(proposal.epoch), proposal.epoch, proposal.turn) != proposal.account:
            return False
        before = yield from part(len(proposal.shares), partial(_points_before, proposal))
        if before != state.granted_points:
            return False
        check = settlement_check(
            self._contributions,
            proposal,
            state.last,
            manifest=self._manifest,
            quorum=self._terms.quorum,
            points_cap=self._terms.points_cap,
            epoch_budget=self._terms.epoch_budget,
            base_root=root.base_root,
        )
        return (yield from part(len(proposal.shares), check))

    def _postings(self, epoch: int, turn: int, state: ChainState) -> Iterator[Postable]:
        """Yield the first proposal with a quorum of approvals; its proposer posts it at once, the others a
        turn later.

        The proposer posts only as many signatures as needed, since each costs gas. If the chain refuses that,
        because a signer has withdrawn its bond meanwhile, a later posting carries all signatures.
        """
        for proposal, postable in self._agreed(epoch, state):
            if turn > proposal.turn:
                yield postable
            elif proposal.account == self._author.account:
                yield replace(postable, signatures=postable.signatures[: self._terms.quorum])
            return

    def _completing(self, live: EpochRoot, state: ChainState, now_seconds: float) -> Working[AgreementStep]:
        """Approve the live posting again and return it with the signatures of a turn, if it lost its quorum.

        The auditors may have approved other roots in the turn of its proposal, so that no quorum of that turn
        exists. All of them approve the live root in every turn that begins until it has one again; nobody
        proposes anything else in these turns.
        """
        if state.live_signatures >= self._terms.quorum or not self.is_auditor(live.epoch):
            return AgreementStep()
        if state.last is not None:
            yield from self._contributions.reading_proposal(ContentId(state.last.archive_digest))
        yield from self._contributions.reading(live.epoch)
        self._approver.listen(live.epoch)
        yield from self._complete(live.epoch, state, now_seconds)
        content_id, messages = ContentId(live.archive_digest), list[SignedEnvelope]()
        proposal = self._contributions.proposal(content_id)
        if proposal is None or self._contributions.epoch_root(content_id) != live:
            return AgreementStep()
        turn = self._turn(live.epoch, now_seconds)
        if turn >= proposal.turn:
            messages.extend((yield from self._approve(content_id, proposal, state, now_seconds, turn)))
        found = self._postable(content_id, live, state)
        return AgreementStep(tuple(messages), tuple(found[-1:]))

    def _turn(self, epoch: int, now_seconds: float) -> int:
        """Return the present turn of an epoch, negative before the first; the last one once it has begun."""
        age_seconds = now_seconds - epoch_start_seconds(self._manifest, epoch + 1)
        return min(turn_to_propose(self._manifest, age_seconds)[0], turn_count(self._manifest) - 1)

    def _agreed(self, epoch: int, state: ChainState) -> list[tuple[Proposal, Postable]]:
        """Return the proposals that the chain would accept now, by turn."""
        agreed: list[tuple[Proposal, Postable]] = []
        for content_id, proposal in self._proposals(epoch).items():
            root = self._contributions.epoch_root(content_id)
            if root is None or root.base_root != state.base_root:
                continue
            if root.digest(self._manifest.ledger_domain) in state.rejected:
                continue
            agreed.extend((proposal, each) for each in self._postable(content_id, root, state)[:1])
        return agreed

    def _postable(self, content_id: ContentId, root: EpochRoot, state: ChainState) -> list[Postable]:
        """Return a root with the signatures of each turn in which a quorum of bonded auditors signed it."""
        found = signatures_by_turn(self._contributions, content_id, root, self._manifest.ledger_domain)
        return [
            Postable(
                EpochApproval(turn, root),
                tuple(valid[account] for account in sorted(state.bonded & valid.keys())),
            )
            for turn, valid in found.items()
            if len(state.bonded & valid.keys()) >= self._terms.quorum
        ]

    def _proposals(self, epoch: int) -> dict[ContentId, Proposal]:
        proposals = self._contributions.proposals(epoch)
        return dict(sorted(proposals.items(), key=lambda item: (item[1].turn, item[0])))

    def _sealing(
        self,
        kind: Kind,
        message: Tally | Proposal | Approval,
        now_seconds: float,
        pages: Sequence[bytes] = (),
    ) -> Working[SignedEnvelope]:
        envelope = seal(kind, self._manifest.swarm_id, message.to_payload(), self._author.seed)
        self._contributions.add(
            envelope.content_id, kind, message, envelope.to_bytes(), received_seconds=now_seconds
        )
        yield from self._contributions.adding_pages(pages, received_seconds=now_seconds)
        return envelope


def _rows(tallies: Mapping[ContentId, Tally]) -> int:
    return max((len(tally.points) for tally in tallies.values()), default=0)


def _points_before(proposal: Proposal) -> int:
    return sum(share.cumulative - share.points for share in proposal.shares)
