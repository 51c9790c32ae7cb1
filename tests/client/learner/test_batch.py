"""Mini-batches and micro-batches."""

from dataclasses import replace
from math import sqrt

from sapo_client.learner.baseline import Baselines, FamilyBaseline
from sapo_client.learner.batch import (
    RewardContext,
    TrainingGroup,
    TrainingRow,
    micro_batches,
    mini_batches,
    training_rows,
)


def test_micro_batches_cover_all_rows_within_the_bound() -> None:
    rows = [TrainingRow((1,) * width, (2, 3), 0.5, None) for width in range(1, 60)]
    parts = list(micro_batches(rows, 128, 256))
    assert [row for part in parts for row in part] == rows
    assert all(len(part) * part[-1].width <= 128 for part in parts)
    assert list(micro_batches(rows[-1:], 1, 256)) == [rows[-1:]]


def test_mini_batches_hold_every_row_once_and_mix_lengths() -> None:
    rows = [TrainingRow((1,) * width, (2, 3), 0.5, None) for width in range(1, 12)]
    parts = mini_batches(rows, 3)
    assert sorted(row.width for part in parts for row in part) == [row.width for row in rows]
    assert [len(part) for part in parts] == [4, 4, 3]
    assert all(part[-1].width - part[0].width >= 6 for part in parts)
    assert mini_batches(rows[:2], 8) == [rows[:1], rows[1:2]]


def row(prompt: tuple[int, ...], length: int) -> TrainingRow:
    return TrainingRow(prompt, tuple(range(length)), 0.5, None)


def test_micro_batches_count_a_shared_prompt_once() -> None:
    prompts = [tuple(range(30)), tuple(range(10, 30))]
    rows = [row(prompts[i // 8], 4) for i in range(16)]
    parts = list(micro_batches(rows, 92, 256, shared_prompts=True))
    assert parts == [rows[:8], rows[8:]]  # 30 + 8 x 4; one row of the other prompt makes it 60 + 9 x 4 = 96
    assert list(micro_batches(rows, 124, 256, shared_prompts=True)) == [rows]
    assert [len(part) for part in micro_batches(rows, 124, 256)] == [5, 3, 3, 3, 2]  # 24 or 34 tokens a row


def test_a_long_row_gets_a_micro_batch_of_its_own() -> None:
    rows = [row((1, 2), length) for length in [6] * 63 + [64]]
    assert [len(part) for part in micro_batches(rows, 2**20, 256, shared_prompts=True)] == [63, 1]
    assert [len(part) for part in micro_batches(rows, 2**20, 4096, shared_prompts=True)] == [64]


def test_padding_is_what_extends_the_rows_to_the_longest_one() -> None:
    rows = [row((1,), 4), row((1,), 6), row((1,), 8)]  # 5, 7 and 9 tokens wide
    assert list(micro_batches(rows[::2], 2**20, 4)) == [rows[::2]]
    assert list(micro_batches(rows[::2], 2**20, 3)) == [rows[:1], rows[2:]]
    assert list(micro_batches(rows, 2**20, 6)) == [rows]
    assert list(micro_batches(rows, 2**20, 5)) == [rows[:2], rows[2:]]
    assert list(micro_batches(rows, 27, 6)) == [rows]
    assert list(micro_batches(rows, 26, 6)) == [rows[:2], rows[2:]]
    later = [row((1,), 4), row((1,), 49), row((1,), 53)]
    assert list(micro_batches(later, 2**20, 4)) == [later[:1], later[1:]]
    assert list(micro_batches(later, 2**20, 3)) == [[each] for each in later]


def test_rows_of_groups_as_a_whole() -> None:
    """Own groups are relative to themselves, others' to the own mean reward; empty completions stay out."""
    own = TrainingGroup(
        (1, 2), ((5, 6, 9), (), (7, 9)), (1.0, 0.0, 0.0), False, ((-0.5,) * 3, (), (-1.0,) * 2)
    )
    other = TrainingGroup((3,), ((8, 9), (8, 8, 8, 9)), (0.0, 1.0), True, None, family=4)
    equal = TrainingGroup((4,), ((6, 9), (7, 9)), (1.0, 1.0), True, None, family=5)
    baselines = Baselines({4: FamilyBaseline(0.5, 64)})
    rows = training_rows([own, equal, other], baselines=baselines)
    found = [replace(row, advantage=round(row.advantage, 3), context=RewardContext()) for row in rows]
    third = round(1 / 3 / sqrt(1 / 3), 3)
    assert found == [
        TrainingRow((3,), (8, 9), -1.0, None, external=True, weight=None, group=2),
        TrainingRow((1, 2), (7, 9), -third, (-1.0,) * 2, group=0, sampled=True),
        TrainingRow((1, 2), (5, 6, 9), round(2 / 3 / sqrt(1 / 3), 3), (-0.5,) * 3, group=0, sampled=True),
        TrainingRow((3,), (8, 8, 8, 9), 1.0, None, external=True, weight=None, group=2),
    ]
    of_other = RewardContext(0.0, 0.5, sqrt(0.5), 0.5)
    assert [row.context for row in rows if row.external] == [of_other, replace(of_other, reward=1.0)]
    kept = training_rows([equal], all_groups=True, baselines=Baselines({5: FamilyBaseline(0.75, 64)}))
    assert [row.advantage for row in kept] == [0.25 / sqrt(0.75 * 0.25)] * 2
    assert training_rows([equal], baselines=baselines) == []
    [alone] = training_rows([TrainingGroup((1,), ((5,),), (1.0,), False, ((-1.0,),))], all_groups=True)
    assert replace(alone, context=RewardContext()) == TrainingRow((1,), (5,), 0.0, (-1.0,), sampled=True)
    assert (alone.context.group_mean, alone.context.group_deviation) == (1.0, 0.0)
