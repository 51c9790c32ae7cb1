"""``sapo_protocol.settlement`` applied to this node's store of contributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, Share, Tally, settle, to_pages
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.settlement import (
    cumulative_points_of,
    first_record,
    grace_seconds,
    is_settlement_of,
)
from sapo_protocol.terms.difficulty import Record
from sapo_verification.admission.contribution_store import ContributionStore

__all__ = [
    "SettledShares",
    "cumulative_points",
    "grace_seconds",
    "last_record",
    "settled_shares",
    "settlement_check",
]


@dataclass(frozen=True, slots=True)
class SettledShares:
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


def settled_shares(
    tallies: Sequence[Tally], previous: Mapping[Account, int], limits: Mapping[str, int]
) -> SettledShares:
    """Return the settlement of tallies; ``limits`` are the keyword arguments of ``settle``."""
    shares = settle(tallies, previous, **limits)
    return SettledShares(shares, to_pages(shares))


def cumulative_points(
    contributions: ContributionStore, last: EpochRoot | None
) -> Mapping[Account, int] | None:
    """Return all accounts' points as of the last final epoch, or None if its proposal is missing."""
    if last is None:
        return {}
    proposal = contributions.proposal(ContentId(last.archive_digest))
    return cumulative_points_of(proposal) if proposal else None


def last_record(
    contributions: ContributionStore, manifest: Manifest, last: EpochRoot | None
) -> Record | None:
    """Return the record as of the last final epoch, () without ladders, None if its proposal is missing."""
    if last is None or manifest.difficulty is None:
        return first_record(manifest)
    return contributions.record(ContentId(last.archive_digest))


def settlement_check(
    contributions: ContributionStore,
    proposal: Proposal,
    last: EpochRoot | None,
    *,
    manifest: Manifest,
    quorum: int,
    points_cap: int,
    epoch_budget: int,
    root_of: merkle.RootOf = merkle.sum_root,
    base_root: Digest | None = None,
) -> Callable[[], bool]:
    """Return a function that checks whether a proposal is the settlement of the tallies that it names.

    It returns False, too, if a message behind the proposal is missing. It reads no store, so it may run in a
    thread: with 100,000 accounts it takes a second.

    Args:
        base_root: as for ``is_settlement_of``.
    """
    before = last_record(contributions, manifest, last)
    if before is None:
        return lambda: False
    stored = ((id_, contributions.tally(id_)) for id_ in proposal.tallies)
    return partial(
        is_settlement_of,
        proposal,
        {id_: tally for id_, tally in stored if tally is not None},
        last.cumulative_root if last else merkle.EMPTY_ROOT,
        difficulty=manifest.difficulty,
        last_record=before,
        quorum=quorum,
        points_cap=points_cap,
        epoch_budget=epoch_budget,
        root_of=root_of,
        base_root=base_root,
    )
