"""A training batch in tokens, cut into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from sapo_client.learner.baseline import Baselines
from sapo_client.learner.grpo import group_advantages


@dataclass(frozen=True, slots=True)
class TrainingGroup:
    """One task's completions as this policy's tokens.

    Attributes:
        prompt: token ids.
        completions: token ids with the end token, one tuple per completion.
        rewards: one per completion.
        external: another node's text, tokenized here.
        behaviour: log-probabilities that own completions were sampled under; None for text tokenized here.
        family: of the task, as an index of the suite; None where nobody asks.
    """

    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]
    external: bool
    behaviour: tuple[tuple[float, ...], ...] | None
    family: int | None = None

    @property
    def is_informative(self) -> bool:
        """Whether the rewards differ, so that there is an advantage."""
        return len(set(self.rewards)) > 1

    @property
    def tokens(self) -> int:
        """Completion tokens of the group."""
        return sum(len(completion) for completion in self.completions)


@dataclass(slots=True)
class TrainingRow:
    """One completion with its advantage.

    Attributes:
        old: log-probabilities that ratios are taken against; filled by the first pass where none are known.
        external: another node's text.
        weight: of its loss, 0 to 1; None for another node's text until the first pass has weighed it.
        group: index of its group in the batch.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    advantage: float
    old: tuple[float, ...] | None
    external: bool = False
    weight: float | None = 1.0
    group: int = 0

    @property
    def width(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt) + len(self.completion)


def training_rows(
    groups: Sequence[TrainingGroup], *, all_groups: bool = False, baselines: Baselines | None = None
) -> list[TrainingRow]:
    """The rows of the groups that have an advantage, or of all, shortest first; no empty completions.

    Args:
        baselines: what other nodes' groups are measured against, instead of against themselves.
    """
    rows: list[TrainingRow] = []
    for index, group in enumerate(groups):
        if all_groups or group.is_informative:
            rows.extend(_rows_of(index, group, _advantages(group, baselines)))
    return sorted(rows, key=lambda row: row.width)


def mini_batches(rows: Sequence[TrainingRow], count: int) -> list[list[TrainingRow]]:
    """The rows dealt out in turn, so that each part has long and short ones; empty parts left out."""
    return [part for start in range(count) if (part := list(rows[start::count]))]


def micro_batches(
    rows: Sequence[TrainingRow], most_tokens: int, most_padding: int, *, shared_prompts: bool = False
) -> Iterator[list[TrainingRow]]:
    """Runs of rows, shortest first; one row at least.

    Args:
        most_tokens: of a run, its padding included.
        most_padding: tokens that only fill rows up to the longest one's length.
        shared_prompts: a prompt is computed once for all rows of a run that have it.
    """

    def length(row: TrainingRow) -> int:
        return len(row.completion) if shared_prompts else row.width

    part: list[TrainingRow] = []
    prompts: set[tuple[int, ...]] = set()
    real = widest = 0
    for row in sorted(rows, key=length):  # rows of one length stay beside the others of their group
        together = (len(part) + 1) * length(row)
        padding = together - real - length(row)
        shared = (len(prompts) + (row.prompt not in prompts)) * max(widest, len(row.prompt))
        most_together = most_tokens - shared if shared_prompts else most_tokens
        if part and (together > most_together or padding > most_padding):
            yield part
            part, prompts, real, widest = [], set(), 0, 0
        part.append(row)
        prompts.add(row.prompt)
        real, widest = real + length(row), max(widest, len(row.prompt))
    if part:
        yield part


def _advantages(group: TrainingGroup, baselines: Baselines | None) -> Sequence[float]:
    """One per completion; a family without a baseline measures a group against itself."""
    baseline = baselines.of(group.family) if baselines is not None and group.external else None
    if baseline is not None:
        return baseline.advantages(group.rewards)
    values: list[float] = group_advantages(torch.tensor(group.rewards)).tolist()
    return values


def _rows_of(index: int, group: TrainingGroup, advantages: Sequence[float]) -> list[TrainingRow]:
    behaviour = group.behaviour or (None,) * len(group.completions)
    return [
        TrainingRow(
            group.prompt, completion, advantage, old, group.external, None if group.external else 1.0, index
        )
        for completion, advantage, old in zip(group.completions, advantages, behaviour, strict=True)
        if completion
    ]
