"""Mini-batches and micro-batches."""

from sapo_client.learner.batch import TrainingRow, micro_batches, mini_batches


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
