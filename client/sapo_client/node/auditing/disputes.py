"""Proofs against auditors and postings, from the contributions that a node holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sapo_client.ledger.fraud import (
    AccountPlaces,
    Balance,
    Equivocation,
    FraudProof,
    OverCap,
)
from sapo_client.node.auditing.approvals import is_genuine
from sapo_protocol.contributions import Approval, Share, base_entries, cumulative_entries, point_entries
from sapo_protocol.eip712 import Domain, EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.merkle import EMPTY_ROOT, Entries, SumTree
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.working import Working, part

_Tree = tuple[Callable[[EpochRoot], Digest], Callable[[Sequence[Share]], Entries]]
"""One of the trees of a posting: its root, and its entries."""

_Proposed = Sequence[tuple[EpochRoot, Sequence[Share]]]
"""Epoch root and shares of each proposal of an epoch."""

_POINTS: _Tree = (lambda root: root.contribution_root, point_entries)
_BASE: _Tree = (lambda root: root.base_root, base_entries)
_CUMULATIVE: _Tree = (lambda root: root.cumulative_root, cumulative_entries)


@dataclass(frozen=True, slots=True)
class Dispute:
    """A live posting and the values against which the contract checks it.

    Attributes:
        last: root of the last final epoch, if there is one.
        points_cap: most points of one account in one epoch.
    """

    root: EpochRoot
    last: EpochRoot | None
    points_cap: int


@dataclass(frozen=True, slots=True)
class PostedTrees:
    """The trees of a posting, each None if the stored contributions do not contain it."""

    before: SumTree | None
    points: SumTree | None
    after: SumTree | None

    def places(self, account: Account) -> AccountPlaces | None:
        """Return an account's proofs in all three trees, or None if a tree is unknown."""
        if self.before is None or self.points is None or self.after is None:
            return None
        before, points, after = (tree.place(account) for tree in (self.before, self.points, self.after))
        return AccountPlaces(account, before, points, after)

    def placing(self, account: Account) -> Working[AccountPlaces | None]:
        """Return the same as ``places``; with 100,000 accounts the first call takes seconds."""
        rows = sum(len(tree.entries) for tree in (self.before, self.points, self.after) if tree is not None)
        return (yield from part(rows, partial(self.places, account)))


def posted_trees(dispute: Dispute, contributions: ContributionStore) -> PostedTrees:
    """Return the trees behind a posting, built from the stored proposals with these roots."""
    return posting_search(dispute, contributions)()


def posting_search(dispute: Dispute, contributions: ContributionStore) -> Callable[[], PostedTrees]:
    """Return a function that builds the trees behind a posting without access to the store."""
    last = dispute.last
    proposed = _proposed(contributions, dispute.root.epoch)
    return partial(_trees_among, dispute, proposed, _proposed(contributions, last.epoch) if last else [])


def _trees_among(dispute: Dispute, proposed: _Proposed, earlier: _Proposed) -> PostedTrees:
    root, last = dispute.root, dispute.last
    base = last.cumulative_root if last else EMPTY_ROOT
    return PostedTrees(
        before=_under(base, earlier, _CUMULATIVE) or _under(base, proposed, _BASE),
        points=_under(root.contribution_root, proposed, _POINTS),
        after=_under(root.cumulative_root, proposed, _CUMULATIVE),
    )


def final_trees(root: EpochRoot, contributions: ContributionStore) -> PostedTrees:
    """Return the trees behind the root of a final epoch, built from the stored proposals with these roots."""
    proposed = _proposed(contributions, root.epoch)
    return PostedTrees(
        before=_under(root.base_root, proposed, _BASE),
        points=_under(root.contribution_root, proposed, _POINTS),
        after=_under(root.cumulative_root, proposed, _CUMULATIVE),
    )


def find_fraud(dispute: Dispute, trees: PostedTrees) -> FraudProof | None:
    """Return a proof that a live posting is false, or None if its trees contain none."""
    points, after = trees.points, trees.after
    if points is not None:
        for account, count in points.entries:
            if count > dispute.points_cap:
                return OverCap(account, points.place(account))
    if trees.before is None or points is None or after is None:
        return None
    return _balance(trees, dict(trees.before.entries), dict(points.entries), dict(after.entries))


def equivocations(
    contributions: ContributionStore, epoch: int, domain: Domain
) -> Mapping[tuple[Account, int], Equivocation]:
    """Return the proofs against auditors that signed two roots in one turn, by auditor and turn."""
    signed: dict[tuple[Account, int], list[tuple[EpochRoot, Approval]]] = {}
    for content_id in contributions.proposals(epoch):
        root = contributions.epoch_root(content_id)
        if root is None:
            continue
        for approval in contributions.approvals(epoch, content_id):
            signed.setdefault((approval.account, approval.turn), []).append((root, approval))
    found: dict[tuple[Account, int], Equivocation] = {}
    for key, pairs in signed.items():
        if len({root for root, _ in pairs}) < 2:
            continue  # honest: recovering an account from a signature is what costs time here
        genuine = [(root, each.signature) for root, each in pairs if is_genuine(each, root, domain)]
        for root, signature in genuine[1:]:
            first, by = genuine[0]
            if root != first:
                found[key] = Equivocation(key[1], first, root, by, signature)
    return found


def _balance(
    trees: PostedTrees, had: Mapping[Account, int], earned: Mapping[Account, int], has: Mapping[Account, int]
) -> Balance | None:
    for account in {**had, **earned, **has}:
        if has.get(account, 0) != had.get(account, 0) + earned.get(account, 0):
            places = trees.places(account)
            return Balance(places) if places else None
    return None


def _proposed(contributions: ContributionStore, epoch: int) -> _Proposed:
    roots = ((contributions.epoch_root(id_), p.shares) for id_, p in contributions.proposals(epoch).items())
    return [(root, shares) for root, shares in roots if root is not None]


def _under(root: Digest, proposed: _Proposed, tree: _Tree) -> SumTree | None:
    """Return the tree with a root, from the shares of a proposal that have it, or None if there are none."""
    root_of, entries_of = tree
    if root == EMPTY_ROOT:
        return SumTree(())
    return next((SumTree(entries_of(shares)) for posted, shares in proposed if root_of(posted) == root), None)
