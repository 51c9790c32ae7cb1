"""Classification of the auditors' tallies of a final epoch: counted, late, or far from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sapo_protocol.contributions import Tally
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.admission.contribution_store import ContributionStore


@dataclass(frozen=True, slots=True)
class TallyScrutiny:
    """The tallies of a final epoch that a node holds.

    Attributes:
        counted: auditors whose tallies the final proposal names.
        late: auditors whose tallies arrived after that proposal.
        apart: points by which an auditor's tally lies outside the range of the counted ones, summed over the
            accounts, by auditor; tallies within the range are left out.
    """

    counted: tuple[Account, ...]
    late: tuple[Account, ...]
    apart: Mapping[Account, int]


def scrutinise(contributions: ContributionStore, root: EpochRoot) -> TallyScrutiny | None:
    """Return the classification of the tallies of an epoch; None while a message behind its root is
    missing."""
    content_id = ContentId(root.archive_digest)
    proposal = contributions.proposal(content_id)
    proposed_seconds = contributions.received_seconds(content_id)
    if proposal is None or proposed_seconds is None:
        return None
    named = [tally for id_ in proposal.tallies if (tally := contributions.tally(id_)) is not None]
    if len(named) < len(proposal.tallies):
        return None
    counted = tuple(sorted(tally.account for tally in named))
    others = {
        id_: tally for id_, tally in contributions.tallies(root.epoch).items() if tally.account not in counted
    }
    late = (t.account for id_, t in others.items() if _came_after(contributions, id_, proposed_seconds))
    apart = {tally.account: _apart(tally, named) for tally in others.values()}
    return TallyScrutiny(
        counted, tuple(sorted(late)), {account: points for account, points in apart.items() if points}
    )


def _came_after(contributions: ContributionStore, content_id: ContentId, seconds: float) -> bool:
    received = contributions.received_seconds(content_id)
    return received is not None and received > seconds


def _apart(tally: Tally, named: Sequence[Tally]) -> int:
    counts, own = [dict(other.points) for other in named], dict(tally.points)
    accounts = set(own).union(*counts)
    return sum(_outside(own.get(a, 0), [count.get(a, 0) for count in counts]) for a in accounts)


def _outside(points: int, others: Sequence[int]) -> int:
    return max(points - max(others), min(others) - points, 0)
