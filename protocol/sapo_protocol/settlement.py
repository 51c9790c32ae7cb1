"""Rules that every third-party auditor recomputes: whose turn it is to propose, and what settles.

Pure functions of parsed objects, so that a checker needs neither a node nor its database.
"""

import math
from collections.abc import Mapping
from typing import Final

from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, Share, Tally, cumulative_leaves, settle
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest

_GRACE_SHARE: Final = 0.1
_LONGEST_GRACE_SECONDS: Final = 30.0
_OPEN_SHARE: Final = 0.5


def grace_seconds(manifest: Manifest) -> float:
    """Return how long each step after an epoch's end waits for others: late rollouts, tallies, turns."""
    return min(_LONGEST_GRACE_SECONDS, _GRACE_SHARE * manifest.epoch_seconds)


def turn_to_propose(manifest: Manifest, age_seconds: float) -> tuple[int, bool]:
    """Return the number of the turn to propose, negative before the first, and whether it is open.

    A turn is open in its first half: a proposal of the second half might not reach the next proposer before
    its turn, and two proposals share the approvals, of which each auditor has one.

    Args:
        age_seconds: how long ago the epoch ended.
    """
    graces = age_seconds / grace_seconds(manifest) - 2  # one for rollouts, one for tallies
    return math.floor(graces), graces >= 0 and graces % 1 < _OPEN_SHARE


def cumulative_points_of(proposal: Proposal) -> dict[Account, int]:
    """Return every account's points of all epochs up to that of a proposal."""
    return {share.account: share.cumulative for share in proposal.shares}


def is_settlement_of(
    proposal: Proposal,
    tallies: Mapping[ContentId, Tally],
    last_root: Digest,
    *,
    quorum: int,
    points_cap: int,
    epoch_budget: int,
) -> bool:
    """Whether the tallies that a proposal names settle to its shares, on top of the last posted root.

    False, too, where one of the tallies is missing, of another epoch, or the second of one auditor.

    Args:
        tallies: the known tallies by the content id of their envelopes.
        last_root: the cumulative root of the last posted epoch; ``merkle.EMPTY_ROOT`` before the first.
        quorum: how many auditors' tallies a proposal needs.
        points_cap: most points that an account earns in an epoch, as in the manifest.
        epoch_budget: most points that the ledger grants in an epoch, as in its contract.
    """
    named = [tallies[id_] for id_ in proposal.tallies if id_ in tallies]
    counted = [tally for tally in named if tally.epoch == proposal.epoch]
    auditors = {tally.account for tally in counted}
    if not quorum <= len(proposal.tallies) == len(counted) == len(auditors):
        return False
    previous = {s.account: s.cumulative - s.points for s in proposal.shares if s.cumulative > s.points}
    before = [Share(account, 0, cumulative) for account, cumulative in previous.items()]
    if merkle.root(cumulative_leaves(before)) != last_root:
        return False
    return (
        settle(counted, previous, points_per_epoch=points_cap, epoch_budget=epoch_budget) == proposal.shares
    )
