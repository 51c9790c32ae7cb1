"""Tallies, proposals and approvals; and the settlement that no single liar can raise."""

from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import approvals, damaged, fixed, proposals, tallies
from support.swarm import Identity
from support.verdicts import reason_of

from sapo_protocol import merkle
from sapo_protocol.contributions import (
    Approval,
    Proposal,
    Share,
    Tally,
    entries_on,
    parse_approval,
    parse_proposal,
    parse_tally,
    settle,
)
from sapo_protocol.decoding import Value
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.encoding import encode
from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.rules import Rule

ALICE = Identity(1)
A, B, C = (Account(bytes(19) + bytes((n,))) for n in (1, 2, 3))
AUTHOR = (ALICE.node, ALICE.account, 3)
TALLY = Tally(*AUTHOR, ((A, 4), (B, 0)), Digest(b"\x09" * 32))
PROPOSAL = Proposal(
    *AUTHOR, (ContentId(b"\x01" * 32), ContentId(b"\x02" * 32)), (Share(A, 4, 10), Share(B, 0, 6))
)
APPROVAL = Approval(*AUTHOR, ContentId(b"\x01" * 32), bytes(65))


@given(tallies())
def test_a_tally_is_parsed_from_its_payload(tally: Tally) -> None:
    assert parse_tally(tally.to_payload()) == tally


@given(proposals())
def test_a_proposal_is_parsed_from_its_payload(proposal: Proposal) -> None:
    assert parse_proposal(proposal.to_payload()) == proposal


@given(approvals)
def test_an_approval_is_parsed_from_its_payload(approval: Approval) -> None:
    assert parse_approval(approval.to_payload()) == approval


@given(st.binary(max_size=200), st.data())
def test_any_bytes_are_an_object_or_refused(noise: bytes, data: st.DataObject) -> None:
    for parse, genuine in ((parse_tally, TALLY), (parse_proposal, PROPOSAL), (parse_approval, APPROVAL)):
        for payload in (noise, data.draw(damaged(genuine.to_payload()))):
            if reason_of(parse, payload) is None:
                assert parse(payload).to_payload() == payload


def _bytes(account: int) -> bytes:
    return account.to_bytes(20, "big")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({3: ()}, None),
        ({3: ((_bytes(1), 1), (_bytes(1), 1))}, Reason.OUT_OF_BOUNDS),
        ({3: ((_bytes(2), 1), (_bytes(1), 1))}, Reason.OUT_OF_BOUNDS),
        ({3: ((_bytes(1), 1, 1),)}, Reason.OUT_OF_BOUNDS),
        ({3: ((_bytes(1),),)}, Reason.OUT_OF_BOUNDS),
        ({3: (_bytes(1),)}, Reason.SCHEMA),
        ({3: ((bytes(19), 1),)}, Reason.SCHEMA),
        ({3: ((_bytes(1), b"1"),)}, Reason.SCHEMA),
        ({3: tuple((_bytes(n), 1) for n in range(1024))}, None),
        ({3: tuple((_bytes(n), 1) for n in range(1025))}, Reason.OUT_OF_BOUNDS),
        ({4: bytes(31)}, Reason.SCHEMA),
        ({5: 0}, Reason.SCHEMA),
    ],
    ids=lambda value: str(value)[:40],
)
def test_tally_bounds(changes: dict[int, Value], reason: Reason | None) -> None:
    fields: dict[int, Value] = {
        0: bytes(ALICE.node),
        1: bytes(ALICE.account),
        2: 3,
        3: ((bytes(A), 4),),
        4: b"\x09" * 32,
    }
    assert reason_of(parse_tally, encode({**fields, **changes})) is reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({3: ()}, Reason.OUT_OF_BOUNDS),
        ({3: (b"\x02" * 32, b"\x01" * 32)}, Reason.OUT_OF_BOUNDS),
        ({3: (b"\x01" * 32, b"\x01" * 32)}, Reason.OUT_OF_BOUNDS),
        ({3: tuple(n.to_bytes(32, "big") for n in range(64))}, None),
        ({3: tuple(n.to_bytes(32, "big") for n in range(65))}, Reason.OUT_OF_BOUNDS),
        ({4: ((_bytes(2), 1, 1), (_bytes(1), 1, 1))}, Reason.OUT_OF_BOUNDS),
        ({4: ((_bytes(1), 1),)}, Reason.OUT_OF_BOUNDS),
        ({4: tuple((_bytes(n), 1, 2**64 - 1) for n in range(1024))}, None),
        ({4: tuple((_bytes(n), 1, 1) for n in range(1025))}, Reason.OUT_OF_BOUNDS),
        ({4: 5}, Reason.SCHEMA),
    ],
    ids=lambda value: str(value)[:40],
)
def test_proposal_bounds(changes: dict[int, Value], reason: Reason | None) -> None:
    fields: dict[int, Value] = {
        0: bytes(ALICE.node),
        1: bytes(ALICE.account),
        2: 3,
        3: (b"\x01" * 32,),
        4: (),
    }
    assert reason_of(parse_proposal, encode({**fields, **changes})) is reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({3: bytes(31)}, Reason.SCHEMA), ({4: bytes(64)}, Reason.OUT_OF_BOUNDS), ({4: 5}, Reason.SCHEMA)],
)
def test_approval_bounds(changes: dict[int, Value], reason: Reason) -> None:
    fields: dict[int, Value] = {
        0: bytes(ALICE.node),
        1: bytes(ALICE.account),
        2: 3,
        3: bytes(32),
        4: bytes(65),
    }
    assert reason_of(parse_approval, encode(fields)) is None
    assert reason_of(parse_approval, encode({**fields, **changes})) is reason


def test_the_epoch_root_of_a_proposal() -> None:
    content_id = ContentId(b"\x07" * 32)
    assert PROPOSAL.root(content_id) == EpochRoot(
        epoch=3,
        base_root=merkle.sum_root([(A, 6), (B, 6)]),
        contribution_root=merkle.sum_leaf(A, 4),
        cumulative_root=merkle.sum_root([(A, 10), (B, 6)]),
        total=4,
        archive_digest=Digest(content_id),
    )
    plain = PROPOSAL.root(content_id, merkle.plain_root)  # of a ledger of version 0.1.0
    assert plain.cumulative_root == merkle.root([merkle.leaf(A, 10), merkle.leaf(B, 6)])


def _tally(points: dict[Account, int]) -> Tally:
    return replace(TALLY, points=tuple(sorted(points.items())))


def test_settlement_of_a_worked_example() -> None:
    counts = [{A: 5, B: 9}, {A: 3, B: 9, C: 8}, {A: 4}, {A: 100, B: 1}]
    shares = settle(
        [_tally(count) for count in counts], {B: 10, C: 2}, points_per_epoch=6, epoch_budget=AMPLE
    )
    assert shares == (Share(A, 4, 4), Share(B, 1, 11), Share(C, 0, 2))


def test_settle_clips_and_leaves_out_accounts_without_points() -> None:
    clip = partial(settle, points_per_epoch=6, epoch_budget=AMPLE)
    assert clip([_tally({A: 100, B: 0})], {C: 0}) == (Share(A, 6, 6),)
    assert clip([_tally({})], {}) == ()
    assert clip([], {B: 4}) == (Share(B, 0, 4),)


@pytest.mark.parametrize(
    ("budget", "granted"),
    [
        (17, (6, 6, 5)),
        (16, (5, 5, 4)),  # 96/17, 96/17, 80/17
        (8, (2, 2, 2)),
        (2, (0, 0, 0)),
        (0, (0, 0, 0)),
    ],
)
def test_an_epoch_over_its_budget_reduces_all_points(budget: int, granted: tuple[int, ...]) -> None:
    tallies = [_tally({A: 100, B: 6, C: 5})]
    shares = settle(tallies, {A: 1, B: 2, C: 3}, points_per_epoch=6, epoch_budget=budget)
    had = zip((A, B, C), granted, (1, 2, 3), strict=True)
    assert shares == tuple(Share(account, points, before + points) for account, points, before in had)


accounts = st.sampled_from([A, B, C])
counts = st.dictionaries(accounts, st.integers(0, 20))
CAP = 12
AMPLE = 3 * CAP
capped = partial(settle, points_per_epoch=CAP, epoch_budget=AMPLE)


def _granted(count: dict[Account, int], budget: int) -> dict[Account, int]:
    shares = settle([_tally(count)], {}, points_per_epoch=CAP, epoch_budget=budget)
    return {share.account: share.points for share in shares}


@given(counts, st.integers(0, 2 * AMPLE))
def test_granted_points_respect_budget_cap_and_order_of_counts(
    count: dict[Account, int], budget: int
) -> None:
    granted, earned = _granted(count, budget), {a: min(CAP, n) for a, n in count.items()}
    total = sum(granted.values())
    assert total <= budget
    assert total > min(budget, sum(earned.values())) - max(1, len(count))  # rounding keeps back no more
    for account, points in earned.items():
        assert granted.get(account, 0) <= points
        for other, fewer in earned.items():
            assert fewer > points or granted.get(other, 0) <= granted.get(account, 0)
    if sum(earned.values()) <= budget:
        assert granted == {account: points for account, points in earned.items() if points}


@given(counts, st.integers(0, AMPLE), st.integers(0, AMPLE))
def test_a_larger_budget_reduces_no_points(count: dict[Account, int], one: int, other: int) -> None:
    less, more = (_granted(count, budget) for budget in sorted((one, other)))
    assert all(points <= more[account] for account, points in less.items())


@given(st.integers(0, CAP), st.integers(0, CAP), st.integers(0, CAP), st.integers(0, AMPLE))
def test_an_account_that_splits_itself_is_granted_no_more(
    own: int, cut: int, others: int, budget: int
) -> None:
    part = min(own, cut)
    whole = _granted({A: own, C: others}, budget)
    split = _granted({A: part, B: own - part, C: others}, budget)
    gained = split.get(A, 0) + split.get(B, 0) - whole.get(A, 0)
    assert -1 <= gained <= 0
    assert split.get(C, 0) == whole.get(C, 0)


@given(st.lists(counts, min_size=2, max_size=3), st.dictionaries(accounts, st.integers(0, 2**63)), st.data())
def test_one_false_tally_among_three_or_four_raises_no_points(
    honest: list[dict[Account, int]], lie: dict[Account, int], data: st.DataObject
) -> None:
    tallies = [_tally(count) for count in honest]
    tallies.insert(data.draw(st.integers(0, len(tallies))), _tally(lie))
    for share in capped(tallies, {}):
        named = [count.get(share.account, 0) for count in honest]
        assert min(CAP, min(named)) <= share.points <= min(CAP, max(named))


@given(counts, st.dictionaries(accounts, st.integers(0, 2**63)), st.integers(2, 3))
def test_one_false_tally_against_agreeing_auditors_changes_nothing(
    count: dict[Account, int], lie: dict[Account, int], honest: int
) -> None:
    truth = [_tally(count)] * honest
    assert capped([*truth, _tally(lie)], {}) == capped(truth, {})


@given(st.lists(st.lists(counts, min_size=1, max_size=4), min_size=1, max_size=5))
def test_cumulative_sums_add_up_over_epochs(epochs: list[list[dict[Account, int]]]) -> None:
    previous: dict[Account, int] = {}
    earned = dict.fromkeys([A, B, C], 0)
    for epoch in epochs:
        shares = capped([_tally(count) for count in epoch], previous)
        assert [share.account for share in shares] == sorted({share.account for share in shares})
        for share in shares:
            assert share.cumulative == previous.get(share.account, 0) + share.points
            earned[share.account] += share.points
        assert set(previous) <= {share.account for share in shares}
        previous = {share.account: share.cumulative for share in shares}
    assert previous == {account: total for account, total in earned.items() if total}


@given(
    st.lists(counts, min_size=1, max_size=5),
    fixed(ContentId),
    st.integers(0, AMPLE),
    st.randoms(use_true_random=False),
)
def test_settlement_and_root_do_not_depend_on_order(
    counts: list[dict[Account, int]], content_id: ContentId, budget: int, random: Random
) -> None:
    tallies = [_tally(count) for count in counts]
    shuffled = list(tallies)
    random.shuffle(shuffled)
    shares, again = (
        settle(order, {A: 3}, points_per_epoch=CAP, epoch_budget=budget) for order in (tallies, shuffled)
    )
    assert shares == again
    root = replace(PROPOSAL, shares=shares).root(content_id)
    assert root.total == sum(share.points for share in shares)
    assert root.cumulative_root == merkle.sum_root(
        [(share.account, share.cumulative) for share in shares if share.cumulative]
    )


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ((_bytes(1), 4), None),
        ((bytes(19), 4), Rule.TALLY_PAGES),
        ((bytes(21), 4), Rule.TALLY_PAGES),
        ((_bytes(1),), Rule.TALLY_PAGES),
        ((_bytes(1), 4, 4), Rule.TALLY_PAGES),
        ((_bytes(1), b""), Rule.TALLY_PAGES),
        ((4, _bytes(1)), Rule.TALLY_PAGES),
        (4, Rule.TALLY_PAGES),
    ],
)
def test_a_row_of_a_page_is_an_account_and_its_numbers(row: Value, rule: Rule | None) -> None:
    pages = [encode((row,))]
    if rule is None:
        assert list(entries_on(pages)) == [(A, 4)]
        return
    with pytest.raises(RemoteProtocolError) as raised:
        entries_on(pages)
    assert raised.value.rule is rule
