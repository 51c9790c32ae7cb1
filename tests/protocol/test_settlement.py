"""Rules that third parties recompute: turns to propose, and whether a proposal settles its tallies."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from support.swarm import Identity, make_manifest

from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, Share, Tally, settle
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.settlement import (
    cumulative_points_of,
    first_record,
    grace_seconds,
    is_settlement_of,
    max_faulty,
    next_record,
    quorum_size,
    turn_begin_seconds,
    turn_count,
    turn_to_propose,
)
from sapo_protocol.terms.difficulty import Difficulty, Outcomes, Record

EPOCH = 3
CAP, BUDGET = 10, 12
A, B, C = (Account(bytes(19) + bytes((n,))) for n in (1, 2, 3))
IDS = tuple(ContentId(bytes((n,)) * 32) for n in (1, 2, 3))
COUNTS = ({A: 4, B: 20}, {A: 6, B: 20}, {A: 6})
PREVIOUS = {A: 5, C: 2}


def tally(auditor: int, counts: dict[Account, int]) -> Tally:
    author = Identity(auditor)
    return Tally(
        node=author.node,
        account=author.account,
        epoch=EPOCH,
        points=tuple(sorted(counts.items())),
        evidence_root=Digest(bytes(32)),
    )


TALLIES = dict(zip(IDS, map(tally, range(1, 4), COUNTS), strict=True))
SHARES = settle(tuple(TALLIES.values()), PREVIOUS, points_per_epoch=CAP, epoch_budget=BUDGET)
PROPOSAL = Proposal(
    node=Identity(1).node, account=Identity(1).account, epoch=EPOCH, tallies=IDS, shares=SHARES
)
LAST_ROOT = merkle.sum_root([(account, had) for account, had in PREVIOUS.items() if had])


def settles(
    proposal: Proposal, tallies: dict[ContentId, Tally], last_root: Digest = LAST_ROOT, quorum: int = 2
) -> bool:
    return is_settlement_of(proposal, tallies, last_root, quorum=quorum, points_cap=CAP, epoch_budget=BUDGET)


def test_a_turn_is_open_in_its_first_half() -> None:
    manifest = make_manifest(epoch_seconds=60)
    assert grace_seconds(manifest) == 6.0
    ages = (0, 6, 11.9, 12, 14.9, 15, 17.9, 18, 20.9, 21)
    assert [turn_to_propose(manifest, age) for age in ages] == [
        *((-2, False), (-1, False), (-1, False)),
        *((0, True), (0, True), (0, False), (0, False)),
        *((1, True), (1, True), (1, False)),
    ]


@pytest.mark.parametrize("epoch_seconds", [1, 7, 50, 299, 300, 600, 3600, 86_400])
def test_turns_fill_the_time_of_a_settlement(epoch_seconds: int) -> None:
    """Sixteen of one grace, sixteen of two, and so on, until the second epoch after has ended."""
    manifest = make_manifest(epoch_seconds=epoch_seconds)
    turns = turn_count(manifest)
    begins = [turn_begin_seconds(manifest, turn) for turn in range(turns + 1)]
    assert begins[turns - 1] < 2 * epoch_seconds <= begins[turns] + 1e-6
    for turn, (begin, end) in enumerate(pairwise(begins)):
        assert turn_to_propose(manifest, begin + 1e-6) == (turn, True)
        assert turn_to_propose(manifest, (begin + end) / 2 + 1e-6) == (turn, False)
    grace = grace_seconds(manifest)
    lengths = [round((end - begin) / grace) for begin, end in pairwise(begins)]
    assert lengths == [2 ** (turn // 16) for turn in range(turns)]


@pytest.mark.parametrize(("auditors", "liars"), [(1, 0), (3, 0), (4, 1), (6, 1), (7, 2), (10, 3), (64, 21)])
def test_up_to_a_third_of_n_auditors_may_be_faulty(auditors: int, liars: int) -> None:
    """Two groups that agree share an honest one; without the liars there are still enough to agree."""
    assert (max_faulty(auditors), quorum_size(auditors)) == (liars, auditors - liars)
    assert 2 * quorum_size(auditors) - auditors > liars


def test_the_grace_of_a_long_epoch_is_bounded() -> None:
    assert grace_seconds(make_manifest(epoch_seconds=86_400)) == 30.0


def test_a_proposal_by_the_rules_settles() -> None:
    assert (Share(A, 4, 9), Share(B, 7, 7), Share(C, 0, 2)) == SHARES  # 6 and 10 earned, 12 granted
    assert settles(PROPOSAL, TALLIES)
    assert settles(PROPOSAL, TALLIES, quorum=3)
    assert cumulative_points_of(PROPOSAL) == {A: 9, B: 7, C: 2}


def test_the_first_epoch_settles_on_the_empty_root() -> None:
    shares = settle(tuple(TALLIES.values()), {}, points_per_epoch=CAP, epoch_budget=BUDGET)
    first = replace(PROPOSAL, shares=shares)
    assert settles(first, TALLIES, merkle.EMPTY_ROOT)
    assert not settles(first, TALLIES, LAST_ROOT)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda: settles(PROPOSAL, {IDS[0]: TALLIES[IDS[0]], IDS[1]: TALLIES[IDS[1]]}),
        lambda: settles(PROPOSAL, {**TALLIES, IDS[2]: replace(TALLIES[IDS[2]], epoch=EPOCH + 1)}),
        lambda: settles(PROPOSAL, {**TALLIES, IDS[2]: tally(1, COUNTS[2])}),
        lambda: settles(PROPOSAL, {**TALLIES, IDS[2]: tally(3, {A: 5})}),
        lambda: settles(PROPOSAL, TALLIES, quorum=4),
        lambda: settles(PROPOSAL, TALLIES, merkle.EMPTY_ROOT),
        lambda: settles(replace(PROPOSAL, shares=SHARES[:2]), TALLIES),
        lambda: settles(replace(PROPOSAL, shares=(Share(A, 5, 10), *SHARES[1:])), TALLIES),
        lambda: settles(replace(PROPOSAL, tallies=IDS[:2]), TALLIES),
    ],
    ids=[
        "a missing tally",
        "a tally of another epoch",
        "two tallies of one auditor",
        "a tally with other counts",
        "fewer tallies than the quorum",
        "another last root",
        "an account left out",
        "a point too many",
        "other tallies than were settled",
    ],
)
def test_a_proposal_against_the_rules_does_not_settle(break_it: Callable[[], bool]) -> None:
    assert not break_it()


LADDERS = Difficulty(ladders=((0, 1),))
FIRST = LADDERS.start(2)
COUNTED = ((9, 0, 0), (7, 1, 1), (0, 0, 90))
"""What each auditor counted of the lowest level."""


def with_ladders(**changes: Any) -> tuple[Proposal, dict[ContentId, Tally]]:
    """Return the proposal and tallies above in a swarm with ladders, the proposal after changes."""
    tallies = {
        id_: replace(tally, outcomes=(Outcomes(*counts), Outcomes(1, 2, 3)))
        for (id_, tally), counts in zip(TALLIES.items(), COUNTED, strict=True)
    }
    record = next_record(LADDERS, FIRST, list(tallies.values()))
    return replace(PROPOSAL, **{"record": record, **changes}), tallies


def test_the_record_is_settled_by_the_lower_median_of_every_count() -> None:
    proposal, tallies = with_ladders()
    middle = (Outcomes(7, 0, 1), Outcomes(1, 2, 3))
    assert proposal.record == LADDERS.follow(FIRST, middle)
    assert settles_with(proposal, tallies)


def settles_with(proposal: Proposal, tallies: dict[ContentId, Tally], before: Record = FIRST) -> bool:
    return is_settlement_of(
        proposal,
        tallies,
        LAST_ROOT,
        difficulty=LADDERS,
        last_record=before,
        quorum=2,
        points_cap=CAP,
        epoch_budget=BUDGET,
    )


def test_a_proposal_with_another_record_does_not_settle() -> None:
    proposal, tallies = with_ladders()
    moved = LADDERS.follow(proposal.record, (Outcomes(9, 0, 0), Outcomes()))
    assert not settles_with(replace(proposal, record=moved), tallies)
    assert not settles_with(replace(proposal, record=()), tallies)
    assert not settles_with(proposal, tallies, before=moved)
    assert not settles_with(proposal, tallies, before=LADDERS.start(3))
    assert not settles_with(proposal, {**tallies, IDS[0]: replace(tallies[IDS[0]], outcomes=())})
    assert not settles(proposal, tallies), "a record where there are no ladders"


def test_the_first_record_follows_from_the_manifest() -> None:
    assert first_record(make_manifest()) == ()
    manifest = make_manifest(version=2, difficulty=LADDERS)
    assert first_record(manifest) == LADDERS.start(len(manifest.suite.families))
