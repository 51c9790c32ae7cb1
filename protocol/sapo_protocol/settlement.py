"""Rules of settlement that anyone can recompute: the proposer of each turn, and which proposals are right.

Pure functions of parsed objects, so that a checker needs neither a node nor its database.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from sapo_protocol import merkle
from sapo_protocol.constants import ROUND_TURNS, SETTLED_EPOCHS
from sapo_protocol.contributions import Proposal, Tally, base_entries, settle
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.difficulty import Difficulty, Record, median_outcomes

_MAX_GRACE_TENTHS: Final = 300
"""Of a second. A grace is a tenth of an epoch at most, so in tenths it is as many as an epoch has seconds."""

_OPEN_SHARE: Final = 0.5
_AUDIT_GRACES: Final = 3


def max_faulty(auditors: int) -> int:
    """Return how many of n auditors may be faulty (dishonest or silent): f = floor((n - 1) / 3)."""
    return (auditors - 1) // 3


def quorum_size(auditors: int) -> int:
    """Return the quorum of approvals and of tallies among n auditors: n - f."""
    return auditors - max_faulty(auditors)


def grace_seconds(manifest: Manifest) -> float:
    """Return the seconds that each step after an epoch's end waits for messages: late rollouts, tallies,
    turns."""
    return _grace_tenths(manifest) / 10


def audit_delay_seconds(manifest: Manifest) -> float:
    """Return by how much a tally and all turns are later where audits are by sample; 0 elsewhere.

    The draw's block comes a grace after the commitments' deadline and has to be old enough; then there are
    two graces to ask for the groups that it draws.
    """
    return _delay_tenths(manifest) / 10


def tally_seconds(manifest: Manifest) -> float:
    """Return the seconds from an epoch's end until it can be tallied."""
    return grace_seconds(manifest) + audit_delay_seconds(manifest)


def _delay_tenths(manifest: Manifest) -> int:
    if manifest.audits is None:
        return 0
    return 10 * manifest.finality_seconds + _AUDIT_GRACES * _grace_tenths(manifest)


def _grace_tenths(manifest: Manifest) -> int:
    """Return a grace in tenths of a second."""
    return min(_MAX_GRACE_TENTHS, manifest.epoch_seconds)


def turn_to_propose(manifest: Manifest, age_seconds: float) -> tuple[int, bool]:
    """Return the number of the turn to propose, negative before the first, and whether it is open.

    The turns of the first round last a grace each, those of every following round twice as long: messages
    that take longer than a turn arrive within a later one. A turn is open in its first half: a proposal of
    the second half might not be approved before the next one competes with it.

    Args:
        age_seconds: how long ago the epoch ended.
    """
    tenths = 10 * age_seconds - _delay_tenths(manifest)  # whole, or 29.2 s are a bit more than a grace
    graces = tenths / _grace_tenths(manifest) - 2  # one for rollouts, one for tallies
    if graces < 0:
        return math.floor(graces), False
    round_ = math.floor(math.log2(graces / ROUND_TURNS + 1))
    turns = (graces - _begin_of_round(round_)) / (1 << round_)
    return ROUND_TURNS * round_ + math.floor(turns), turns % 1 < _OPEN_SHARE


def turn_begin_seconds(manifest: Manifest, turn: int) -> float:
    """Return the seconds from an epoch's end until a turn begins."""
    return ((_begin_of_turn(turn) + 2) * _grace_tenths(manifest) + _delay_tenths(manifest)) / 10


def turn_count(manifest: Manifest) -> int:
    """Return how many turns begin before an epoch can no longer be settled."""
    left = 10 * SETTLED_EPOCHS * manifest.epoch_seconds - _delay_tenths(manifest)
    last = -(-left // _grace_tenths(manifest)) - 3  # begins before the deadline
    round_ = math.floor(math.log2(last / ROUND_TURNS + 1))
    return ROUND_TURNS * round_ + (last - _begin_of_round(round_)) // (1 << round_) + 1


def proposer(auditors: Sequence[Account], epoch: int, turn: int) -> Account:
    """Return the auditor whose turn it is, of all in ascending order."""
    return auditors[(epoch + turn) % len(auditors)]


def _begin_of_round(round_: int) -> int:
    """Return when a round begins, in graces after the first one."""
    return ROUND_TURNS * ((1 << round_) - 1)


def _begin_of_turn(turn: int) -> int:
    round_, place = divmod(turn, ROUND_TURNS)
    return _begin_of_round(round_) + place * (1 << round_)


def cumulative_points_of(proposal: Proposal) -> dict[Account, int]:
    """Return every account's points of all epochs up to that of a proposal."""
    return {share.account: share.cumulative for share in proposal.shares}


def first_record(manifest: Manifest) -> Record:
    """Return the record in force before any epoch is final, empty without ladders."""
    return manifest.difficulty.start(len(manifest.suite.families)) if manifest.difficulty else ()


def next_record(difficulty: Difficulty | None, before: Record, tallies: Sequence[Tally]) -> Record | None:
    """Return the record of an epoch, empty without ladders, or None if the tallies do not fit to it.

    Args:
        before: that of the last final epoch.
    """
    if difficulty is None:
        return ()
    if not tallies or any(len(tally.outcomes) != len(before) for tally in tallies):
        return None
    return difficulty.follow(before, median_outcomes([tally.outcomes for tally in tallies]))


def is_settlement_of(
    proposal: Proposal,
    tallies: Mapping[ContentId, Tally],
    last_root: Digest,
    *,
    difficulty: Difficulty | None = None,
    last_record: Record = (),
    quorum: int,
    points_cap: int,
    epoch_budget: int,
    root_of: merkle.RootOf = merkle.sum_root,
    base_root: Digest | None = None,
) -> bool:
    """Whether the shares and record of a proposal follow from the tallies that it names and the last
    settlement.

    False, too, where one of the tallies is missing, of another epoch, or the second of one auditor.

    Args:
        tallies: the known tallies by the content id of their envelopes.
        last_root: the cumulative root of the last posted epoch; ``merkle.EMPTY_ROOT`` before the first.
        difficulty: the manifest's, if it has ladders.
        last_record: that of the last posted epoch; the first record before there is one.
        quorum: how many auditors' tallies a proposal needs. Nobody demands more: of n - f tallies f at most
            lie, so that the lower median lies within the honest ones.
        points_cap: most points that an account earns in an epoch, as in the manifest.
        epoch_budget: most points that the ledger grants in an epoch, as in its contract.
        root_of: root function of the ledger's tree.
        base_root: root over what the shares add to, if it is known: with 100,000 accounts it takes seconds.
    """
    named = [tallies[id_] for id_ in proposal.tallies if id_ in tallies]
    counted = [tally for tally in named if tally.epoch == proposal.epoch]
    auditors = {tally.account for tally in counted}
    if not quorum <= len(proposal.tallies) == len(counted) == len(auditors):
        return False
    if next_record(difficulty, last_record, counted) != proposal.record:
        return False
    previous = base_entries(proposal.shares)
    if (root_of(previous) if base_root is None else base_root) != last_root:
        return False
    return (
        settle(counted, dict(previous), points_per_epoch=points_cap, epoch_budget=epoch_budget)
        == proposal.shares
    )
