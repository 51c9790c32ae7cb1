"""Settlement of an epoch: its timing, and the check of a root against tallies and the previous root."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, Share, cumulative_leaves, settle
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.contribution_store import ContributionStore

_GRACE_SHARE: Final = 0.1
_LONGEST_GRACE_SECONDS: Final = 30.0
_OPEN_SHARE: Final = 0.5


def grace_seconds(manifest: Manifest) -> float:
    """Return the length of each step after an epoch's end: late rollouts, tallies, each proposer's turn."""
    return min(_LONGEST_GRACE_SECONDS, _GRACE_SHARE * manifest.epoch_seconds)


def turn_to_propose(manifest: Manifest, age_seconds: float) -> tuple[int, bool]:
    """Return the turn at a time after an epoch's end, negative before the first, and whether it is open.

    A turn is open in its first half: a proposal of the second half might not reach the next proposer before
    its turn, and two proposals divide the approvals, of which each auditor gives one.
    """
    graces = age_seconds / grace_seconds(manifest) - 2  # one for rollouts, one for tallies
    return math.floor(graces), graces >= 0 and graces % 1 < _OPEN_SHARE


def cumulative_points(
    contributions: ContributionStore, last: EpochRoot | None
) -> Mapping[Account, int] | None:
    """Return all accounts' points as of the last final epoch, or None if this node lacks its proposal."""
    if last is None:
        return {}
    proposal = contributions.proposal(ContentId(last.archive_digest))
    return {share.account: share.cumulative for share in proposal.shares} if proposal else None


def is_settlement(
    contributions: ContributionStore,
    proposal: Proposal,
    last: EpochRoot | None,
    *,
    quorum: int,
    points_cap: int,
    epoch_budget: int,
) -> bool:
    """Whether the tallies that a proposal names settle to its shares, added to the last root's.

    False, too, if this node does not hold all of them.
    """
    tallies = [contributions.tally(id_) for id_ in proposal.tallies]
    known = [tally for tally in tallies if tally is not None and tally.epoch == proposal.epoch]
    if len(known) != len(proposal.tallies) or len({tally.account for tally in known}) != len(known):
        return False
    if len(known) < quorum:
        return False
    previous = {s.account: s.cumulative - s.points for s in proposal.shares if s.cumulative > s.points}
    before = [Share(account, 0, cumulative) for account, cumulative in previous.items()]
    if merkle.root(cumulative_leaves(before)) != (last.cumulative_root if last else merkle.EMPTY_ROOT):
        return False
    shares = settle(known, previous, points_per_epoch=points_cap, epoch_budget=epoch_budget)
    return shares == proposal.shares
