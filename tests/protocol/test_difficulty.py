"""Difficulty: the record computed from outcomes, the mix of levels, lots and the value of a group."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.terms.difficulty import (
    MAX_COUNTED,
    WHOLE,
    Difficulty,
    GroupOutcome,
    LevelRecord,
    Outcomes,
    Record,
    median_outcomes,
    middle_outcomes,
    points_of,
)

LADDER = Difficulty(ladders=((0, 2, 3),), step=250, floor=125)
"""Family 1 is in no ladder."""

START = (LevelRecord(0, 0, 0, 1000), LevelRecord(0, 0, 0, 1000), *[LevelRecord(0, 0, 0, 0)] * 2)

outcomes = st.builds(Outcomes, *[st.integers(0, 50)] * 3)
epochs = st.lists(st.tuples(*[outcomes] * 4), max_size=30)


def play(difficulty: Difficulty, counts: list[tuple[Outcomes, ...]]) -> list[Record]:
    records = [difficulty.start(4)]
    for count in counts:
        records.append(difficulty.follow(records[-1], count))
    return records


def position(record: Record) -> int:
    return record[2].weight + 2 * record[3].weight


def test_a_ladder_starts_at_its_lowest_level() -> None:
    assert LADDER.start(4) == START
    assert LADDER.mix(START) == (1000, 1000, 125, 0)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((Outcomes(10, 0, 0),) * 4, (750, 250, 0)),
        ((Outcomes(0, 10, 0), Outcomes(), Outcomes(), Outcomes()), (750, 250, 0)),
        ((Outcomes(6, 3, 1), Outcomes(), Outcomes(), Outcomes()), (850, 150, 0)),
        ((Outcomes(1, 8, 3), Outcomes(), Outcomes(), Outcomes()), (1000, 0, 0)),
        ((Outcomes(2, 2, 6), Outcomes(), Outcomes(), Outcomes()), (1000, 0, 0)),
        ((Outcomes(7, 0, 0), Outcomes(90, 0, 0), Outcomes(), Outcomes()), (1000, 0, 0)),
        ((Outcomes(7, 0, 0), Outcomes(), Outcomes(0, 0, 2), Outcomes()), (973, 27, 0)),
    ],
    ids=[
        "all right",
        "all mixed",
        "a tenth wrong",
        "a quarter wrong",
        "at the bottom",
        "too few to say",
        "over all levels",
    ],
)
def test_a_ladder_moves_by_the_outcomes_of_its_groups(
    counts: tuple[Outcomes, ...], expected: tuple[int, ...]
) -> None:
    record = LADDER.follow(START, counts)
    assert tuple(record[family].weight for family in (0, 2, 3)) == expected
    assert record[1].weight == WHOLE
    assert [row[:3] for row in record] == list(counts)


def test_a_ladder_goes_down_by_a_step_at_most() -> None:
    wrong = (Outcomes(),) * 2 + (Outcomes(0, 0, 10), Outcomes(0, 0, 10))
    middle = (*START[:2], LevelRecord(0, 0, 0, 400), LevelRecord(0, 0, 0, 600))
    assert position(LADDER.follow(middle, wrong)) == position(middle) - LADDER.step


def test_earlier_groups_count_half_as_much_with_each_epoch() -> None:
    once = LADDER.follow(START, (Outcomes(9, 5, 3),) + (Outcomes(),) * 3)
    assert LADDER.follow(once, (Outcomes(1, 1, 1),) + (Outcomes(),) * 3)[0][:3] == (5, 3, 2)


def test_levels_next_to_those_in_use_keep_a_floor() -> None:
    def mix(*weights: int) -> tuple[int, ...]:
        low, middle, high = weights
        rows = (low, 1000, middle, high)
        return LADDER.mix(tuple(LevelRecord(0, 0, 0, weight) for weight in rows))

    assert mix(1000, 0, 0) == (1000, 1000, 125, 0)
    assert mix(990, 10, 0) == (990, 1000, 125, 125)
    assert mix(0, 1000, 0) == (125, 1000, 1000, 125)
    assert mix(0, 0, 1000) == (0, 1000, 125, 1000)


@given(epochs)
def test_a_ladder_moves_at_most_a_step_and_its_weights_stay_valid(counts: list[tuple[Outcomes, ...]]) -> None:
    records = play(LADDER, counts)
    assert all(map(LADDER.is_sound, records))
    assert all(abs(position(a) - position(b)) <= LADDER.step for a, b in pairwise(records))
    assert all(0 <= position(record) <= 2 * WHOLE for record in records)


@given(epochs, st.integers(0, 2**32 - 1))
def test_every_lot_has_a_level_of_the_mix(counts: list[tuple[Outcomes, ...]], lot: int) -> None:
    record = play(LADDER, counts)[-1]
    allowed = LADDER.families_of(record, lot)
    assert len(allowed) == len(set(allowed) - {0, 2, 3}) + 1 == 2
    assert all(LADDER.mix(record)[family] for family in allowed)


def test_lots_share_out_the_levels_by_their_weights() -> None:
    record = (LevelRecord(0, 0, 0, 600), LevelRecord(0, 0, 0, 1000), LevelRecord(0, 0, 0, 400), START[3])
    lots = range(0, 2**32, 2**32 // 1125)
    drawn = Counter(family for lot in lots for family in LADDER.families_of(record, lot))
    assert {family: count // 10 for family, count in drawn.items()} == {0: 60, 1: 112, 2: 40, 3: 12}


def test_a_group_has_more_value_where_the_swarm_is_seldom_right() -> None:
    rows = [(7, 0, 0), (4, 4, 0), (5, 3, 0), (6, 2, 0), (8, 0, 0), (0, 0, 90)]
    assert [LevelRecord(*row, 1000).value for row in rows] == [8, 8, 8, 7, 7, 8]


def test_points_are_the_value_of_all_groups_rounded_down() -> None:
    record = (
        LevelRecord(0, 9, 0, 0),
        LevelRecord(9, 9, 0, 0),
        LevelRecord(9, 1, 0, 0),
        LevelRecord(0, 0, 0, 0),
    )
    assert points_of({}, record) == 0
    assert points_of({0: 3, 1: 2, 2: 1, 3: 1}, record) == (24 + 16 + 7 + 8) // 8
    assert points_of({2: 1}, record) == 0


R, M, W = GroupOutcome


def named(*groups: list[GroupOutcome]) -> dict[bytes, list[GroupOutcome]]:
    return {bytes([number]): found for number, found in enumerate(groups)}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (named(), Outcomes()),
        (named([W]), Outcomes(0, 0, 1)),
        (named([R, M, M, W, W, R]), Outcomes(0, 1, 1)),
        (named([W] * 4, [R, M, R, W], [R] * 4), Outcomes(2, 1, 1)),
        (named(*[[R, M, R]] * 7, *[[W] * 3] * 3), Outcomes(6, 4, 0)),
        (named(*[[M, W, M]] * 7, *[[R] * 3] * 3), Outcomes(0, 6, 4)),
        (named(*[[R, M, R]] * 7, *[[W] * 30] * 3), Outcomes(6, 4, 0)),
    ],
    ids=[
        "none",
        "one",
        "one account, by slot",
        "the account in the middle",
        "three of ten all wrong",
        "three of ten all right",
        "three of ten with more groups",
    ],
)
def test_the_middle_third_of_the_groups_counts(
    groups: dict[bytes, list[GroupOutcome]], expected: Outcomes
) -> None:
    assert middle_outcomes(groups) == expected


@given(st.integers(5, 9), st.lists(st.integers(1, 40), max_size=2), st.data())
def test_less_than_a_third_of_the_accounts_has_no_effect(
    honest: int, liars: list[int], data: st.DataObject
) -> None:
    for lie, unlike in ((W, R), (R, W)):  # in every honest account there is a group of the other kind
        true = st.lists(st.sampled_from([M, unlike]), min_size=5, max_size=5)
        groups = [[unlike, *data.draw(true)] for _ in range(honest)] + [[lie] * size for size in liars]
        counted = middle_outcomes(named(*data.draw(st.permutations(groups))))
        assert counted[lie] == 0
        assert sum(counted) > 0


@given(st.lists(st.tuples(outcomes, outcomes), min_size=3, max_size=3), st.data())
def test_f_of_3f_and_1_tallies_move_no_count_beyond_honest_ones(
    honest: list[tuple[Outcomes, Outcomes]], data: st.DataObject
) -> None:
    wild = st.builds(Outcomes, *[st.integers(0, 2**64 - 1)] * 3)
    lie = data.draw(st.tuples(wild, wild))
    for row, columns in zip(median_outcomes([*honest, lie]), zip(*honest, strict=True), strict=True):
        for number, counts in zip(row, zip(*columns, strict=True), strict=True):
            assert min(counts) <= number <= max(counts)


def test_counts_of_a_dishonest_majority_are_bounded() -> None:
    most = Outcomes(2**64 - 1, 2**64 - 1, 2**64 - 1)
    counted = median_outcomes([[most] * 4])
    record = START
    for _ in range(80):
        record = LADDER.follow(record, counted)
    assert record[0].right < 2 * MAX_COUNTED


@pytest.mark.parametrize(
    "wrong",
    [
        {"ladders": ()},
        {"ladders": ((0,),)},
        {"ladders": ((0, 1), (1, 2))},
        {"ladders": ((0, 0),)},
        {"step": 0},
        {"step": 1001},
        {"floor": 1001},
        {"groups": 0},
        {"completions": 0},
        {"completions": 17},
    ],
    ids=str,
)
def test_invalid_terms_are_refused(wrong: dict[str, object]) -> None:
    terms = {"ladders": ((0, 1),), "step": 250, "floor": 125, "groups": 32, "completions": 4}
    Difficulty(**terms)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError):
        Difficulty(**{**terms, **wrong})  # type: ignore[arg-type]


def test_ladders_must_fit_the_suite_and_groups_the_limits() -> None:
    LADDER.require_families(4, 8)
    for families, completions in ((3, 8), (4, 3)):
        with pytest.raises(LocalProtocolError):
            LADDER.require_families(families, completions)
