"""Rules that third parties recompute: turns to propose, and whether a proposal settles its tallies."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.swarm import Identity, make_manifest

from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, Share, Tally, cumulative_leaves, settle
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.settlement import (
    cumulative_points_of,
    grace_seconds,
    is_settlement_of,
    turn_to_propose,
)

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
LAST_ROOT = merkle.root(cumulative_leaves([Share(account, 0, had) for account, had in PREVIOUS.items()]))


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
