"""The auditors' agreement on an epoch (Byzantine fault tolerant), without network or chain access.

Of n auditors f = floor((n - 1) / 3) may lie, crash or be silent, and n - f agree:

1. A proposal names at least n - f tallies and is their settlement. At most f of these tallies are false, so
their lower median lies within the range of the honest ones. 2. An auditor approves one proposal per turn, and
may approve another one in a later turn. So a faulty proposer delays the agreement by one turn, and one honest
proposer suffices. 3. Whoever holds n - f approvals of one proposal posts it. The chain takes the first
posting of an epoch. 4. A posting whose leaves were not shown on request in time is rejected for ever, even if
it was correct. The same settlement can be proposed again in a later turn, since the turn is part of the
proposal, and so of its root's archive digest.

The pages of a proposal with many accounts are computed from its tallies and its base, not requested.

The specification, with a sketch of the proof, is section 7 of ``protocol/README.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from sapo_client.node.auditing.settlement import cumulative_points, last_record, settlement_check
from sapo_client.node.runtime.context import Author
from sapo_protocol import merkle, secp256k1
from sapo_protocol.constants import SETTLED_EPOCHS
from sapo_protocol.contributions import (
    Approval,
    Proposal,
    Share,
    Tally,
    granted_points,
    page_digest,
    settle,
    to_pages,
)
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_at, epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.settlement import grace_seconds, next_record, proposer, turn_to_propose
from sapo_protocol.terms.difficulty import Outcomes
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.signing.database import ApprovalMark, SigningDatabase
from sapo_verification.working import Working, at_once, part

_TRAVEL_SHARE: Final = 0.5
"""Part of a grace after which a received tally has reached every node, with a conflicting one if there is
any."""


_KEPT_SETTLEMENTS: Final = 4
_KEPT_VERDICTS: Final = 1024

_Ground = tuple[Digest, int, int]
"""What a verdict on a proposal depends on: base root, granted points, and the revision of the store."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """The settlement of some tallies.

    Attributes:
        pages: those that list the shares, if they do not fit into a message.
    """

    shares: tuple[Share, ...]
    pages: tuple[bytes, ...]

    @property
    def grants(self) -> bool:
        """Whether any account gets a point."""
        return any(share.points for share in self.shares)


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
    ) -> None:
        self._author = author
        self._account_key = account_key
        self._manifest = manifest
        self._terms = terms
        self._contributions = contributions
        self._signing = signing
        self._settled: dict[tuple[tuple[ContentId, ...], Digest], _Settled] = {}
        self._verdicts: dict[ContentId, tuple[_Ground, bool]] = {}
        self._granting: dict[tuple[ContentId, ...], bool] = {}
        self._completed: set[tuple[ContentId, Digest]] = set()
        self._limits = {"points_per_epoch": terms.points_cap, "epoch_budget": terms.epoch_budget}

    def unsettled(self, now_seconds: float, last: EpochRoot | None, next_epoch: int = 0) -> range:
        """Return the epochs that have ended, are not final and can still be settled, oldest first.

        Args:
            next_epoch: the first one that the chain still accepts, as far as it was asked.
        """
        current = epoch_at(self._manifest, max(now_seconds, self._manifest.genesis_seconds))
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
        its result; if it has lost a signature, they add theirs to it.
        """
        return at_once(self.stepping(now_seconds, state))

    def stepping(self, now_seconds: float, state: ChainState) -> Working[AgreementStep]:
        """Take a step as ``step`` does; messages may be admitted while its long parts run elsewhere.

        With 100,000 accounts they take seconds, for medians, pages and trees.
        """
        messages: list[SignedEnvelope] = []
        postings: list[Postable] = []
        if state.live is not None:
            return AgreementStep(postings=(yield from self._completing(state.live, state)))
        if state.last is not None:
            yield from self._contributions.reading_proposal(ContentId(state.last.archive_digest))
        for epoch in self.unsettled(now_seconds, state.last, state.next_epoch):
            age_seconds = now_seconds - epoch_start_seconds(self._manifest, epoch + 1)
            turn, is_open = turn_to_propose(self._manifest, age_seconds)
            if turn < 0:
                break
            yield from self._contributions.reading(epoch)
            if self.is_auditor(epoch):
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
            if len(self._granting) >= _KEPT_VERDICTS:
                self._granting.clear()
            self._granting[key] = any(granted.values())
        return self._granting[key]

    def _settlement(
        self, tallies: Mapping[ContentId, Tally], base_root: Digest, previous: Mapping[Account, int]
    ) -> Working[_Settled]:
        """Return the settlement of tallies on top of the points granted before; the last results are
        cached."""
        key = tuple(sorted(tallies)), base_root
        if key not in self._settled:
            work = partial(_settle, [*tallies.values()], previous, self._limits)
            settled = yield from part(_rows(tallies) + len(previous), work)
            if len(self._settled) >= _KEPT_SETTLEMENTS:
                self._settled.clear()
            self._settled[key] = settled
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
                if len(self._completed) >= _KEPT_VERDICTS:
                    self._completed.clear()
                self._completed.add((content_id, state.base_root))

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
        self, content_id: ContentId, proposal: Proposal, state: ChainState, now_seconds: float
    ) -> Working[Sequence[SignedEnvelope]]:
        author, root = self._author, self._contributions.epoch_root(content_id)
        if root is None:
            return ()
        statement = EpochApproval(proposal.turn, root)
        mark = ApprovalMark(
            self._manifest.swarm_id,
            author.account,
            proposal.epoch,
            proposal.turn,
            statement.root.digest(self._manifest.ledger_domain),
        )
        known = self._signing.approval_mark(mark.swarm_id, mark.account)
        if known is not None and not known.allows(mark):
            return ()
        approvals = self._contributions.approvals(proposal.epoch, content_id)
        if any(approval.account == author.account for approval in approvals):
            return ()
        is_valid = yield from self._is_valid(content_id, proposal, root, state)
        if not is_valid or not self._signing.approve(mark):
            return ()
        digest = statement.digest(self._manifest.ledger_domain)
        approval = Approval(
            node=author.node,
            account=author.account,
            epoch=proposal.epoch,
            proposal=content_id,
            signature=secp256k1.sign(self._account_key, digest),
            turn=proposal.turn,
        )
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
            if len(self._verdicts) >= _KEPT_VERDICTS:
                self._verdicts.clear()
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

    def _completing(self, live: EpochRoot, state: ChainState) -> Working[tuple[Postable, ...]]:
        """Return the live posting with all signatures, if convictions left it without a quorum."""
        if state.live_signatures >= self._terms.quorum or not self.is_auditor(live.epoch):
            return ()
        yield from self._contributions.reading(live.epoch)
        return tuple(each for _, each in self._agreed(live.epoch, state) if each.statement.root == live)

    def _agreed(self, epoch: int, state: ChainState) -> list[tuple[Proposal, Postable]]:
        """Return the proposals that the chain would accept now, by turn."""
        agreed = []
        for content_id, proposal in self._proposals(epoch).items():
            root = self._contributions.epoch_root(content_id)
            if root is None or root.base_root != state.base_root:
                continue
            if root.digest(self._manifest.ledger_domain) in state.rejected:
                continue
            statement = EpochApproval(proposal.turn, root)
            valid = self._signatures(statement, content_id)
            signatures = tuple(valid[account] for account in sorted(state.bonded & valid.keys()))
            if len(signatures) >= self._terms.quorum:
                agreed.append((proposal, Postable(statement, signatures)))
        return agreed

    def _signatures(self, statement: EpochApproval, content_id: ContentId) -> Mapping[Account, bytes]:
        """Return the signatures of the valid approvals of a proposal, by auditor."""
        digest = statement.digest(self._manifest.ledger_domain)
        return {
            approval.account: approval.signature
            for approval in self._contributions.approvals(statement.root.epoch, content_id)
            if _signer(digest, approval.signature) == approval.account
        }

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


def _settle(tallies: Sequence[Tally], previous: Mapping[Account, int], limits: Mapping[str, int]) -> _Settled:
    shares = settle(tallies, previous, **limits)
    return _Settled(shares, to_pages(shares))


def _rows(tallies: Mapping[ContentId, Tally]) -> int:
    return max((len(tally.points) for tally in tallies.values()), default=0)


def _points_before(proposal: Proposal) -> int:
    return sum(share.cumulative - share.points for share in proposal.shares)


@lru_cache(maxsize=4096)
def _signer(digest: Digest, signature: bytes) -> Account | None:
    return secp256k1.recover(digest, signature)
