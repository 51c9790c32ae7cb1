"""Proofs against auditors and postings, from the contributions that a node holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sapo_client.ledger.fraud import (
    ContributionSum,
    CumulativeDecrease,
    CumulativeSum,
    Equivocation,
    FraudProof,
    OverCap,
    Unearned,
)
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Proposal
from sapo_protocol.eip712 import Domain, EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_verification.admission.contribution_store import ContributionStore

Leaves = Sequence[tuple[Account, int]]
"""Accounts and values of a tree's leaves, in order."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """A live posting and the values against which the contract checks it.

    Attributes:
        last: root of the last final epoch, if there is one.
        granted: points of all final epochs.
        points_cap: most points of one account in one epoch.
    """

    root: EpochRoot
    last: EpochRoot | None
    granted: int
    points_cap: int


def find_fraud(dispute: Dispute, contributions: ContributionStore) -> FraudProof | None:
    """Return a proof that a live posting is false, or None if the contributions contain none."""
    root, last = dispute.root, dispute.last
    proposals = [*contributions.proposals(root.epoch).values()]
    points = _leaves_of(root.contribution_root, proposals, _points)
    cumulative = _leaves_of(root.cumulative_root, proposals, _cumulative)
    if points is not None:
        if (over := _over_cap(points, dispute.points_cap)) is not None:
            return over
        if _sum(points) != root.total:
            return ContributionSum(points)
    if cumulative is None:
        return None
    if _sum(cumulative) != dispute.granted + root.total:
        return CumulativeSum(cumulative)
    earlier = contributions.proposals(last.epoch).values() if last else ()
    before = _leaves_of(last.cumulative_root, earlier, _cumulative) if last else ()
    if before is None:
        return None
    if (decrease := _decrease(before, cumulative)) is not None or points is None:
        return decrease
    return _unearned(before, points, cumulative, dispute.points_cap)


def equivocations(
    contributions: ContributionStore, epoch: int, domain: Domain
) -> Mapping[tuple[Account, int], Equivocation]:
    """Return the proofs against auditors that signed two roots in one turn, by auditor and turn."""
    first: dict[tuple[Account, int], tuple[EpochRoot, bytes]] = {}
    found: dict[tuple[Account, int], Equivocation] = {}
    for content_id, proposal in contributions.proposals(epoch).items():
        statement = proposal.approval(content_id)
        digest, root = statement.digest(domain), statement.root
        for approval in contributions.approvals(epoch, content_id):
            if secp256k1.recover(digest, approval.signature) != approval.account:
                continue
            key = approval.account, proposal.turn
            other, signature = first.setdefault(key, (root, approval.signature))
            if other != root:
                found[key] = Equivocation(proposal.turn, other, root, signature, approval.signature)
    return found


def _over_cap(points: Leaves, cap: int) -> OverCap | None:
    for index, (account, count) in enumerate(points):
        if count > cap:
            return OverCap(account, count, merkle.proof(_hashes(points), index))
    return None


def _decrease(before: Leaves, cumulative: Leaves) -> CumulativeDecrease | None:
    places = {account: index for index, (account, _) in enumerate(cumulative)}
    for index, (account, had) in enumerate(before):
        place = places.get(account)
        if place is not None and (has := cumulative[place][1]) < had:
            proof_before = merkle.proof(_hashes(before), index)
            proof_after = merkle.proof(_hashes(cumulative), place)
            return CumulativeDecrease(
                account=account, before=had, proof_before=proof_before, after=has, proof_after=proof_after
            )
    return None


def _unearned(before: Leaves, points: Leaves, cumulative: Leaves, cap: int) -> Unearned | None:
    had, earned = dict(before), dict(points)
    for index, (account, has) in enumerate(cumulative):
        if has > had.get(account, 0) + min(earned.get(account, 0), cap):
            return Unearned(
                account=account,
                cumulative=has,
                proof=merkle.proof(_hashes(cumulative), index),
                before=before,
                points=points,
            )
    return None


def _leaves_of(
    root: Digest, proposals: Iterable[Proposal], leaves: Callable[[Proposal], Leaves]
) -> Leaves | None:
    """Return the leaves under a root from the proposal that has them, or None if no proposal has."""
    found = (leaves(proposal) for proposal in proposals)
    return next((some for some in found if merkle.root(_hashes(some)) == root), None)


def _points(proposal: Proposal) -> Leaves:
    return [(share.account, share.points) for share in proposal.shares if share.points]


def _cumulative(proposal: Proposal) -> Leaves:
    return [(share.account, share.cumulative) for share in proposal.shares]


def _hashes(leaves: Leaves) -> list[Digest]:
    return [merkle.leaf(account, value) for account, value in leaves]


def _sum(leaves: Leaves) -> int:
    return sum(value for _, value in leaves)
