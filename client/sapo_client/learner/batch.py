"""Training batches as token ids, cut into mini-batches and micro-batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from sapo_client.learner.baseline import Baselines
from sapo_client.learner.cpu.kept_states import KeptRow
from sapo_client.learner.grpo import group_advantages
from sapo_client.learner.ranks.group import RankGroup


@dataclass(frozen=True, slots=True)
class TrainingGroup:
    """Completions of one task as token ids of this policy.

    Attributes:
        prompt: token ids.
        completions: token ids with the end token, one tuple per completion.
        rewards: one per completion.
        external: whether this is another node's text, tokenized here.
        behaviour: log-probabilities under which own completions were sampled (the behaviour policy's), one
            tuple per completion; None for text that was tokenized here.
        family: the task's family as an index of the suite; None if there is none, as in benchmarks.
        age: steps since it was sampled here.
        states: activations of each completion kept from sampling; None if none were kept.
    """

    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]
    external: bool
    behaviour: tuple[tuple[float, ...], ...] | None
    family: int | None = None
    age: int = 0
    states: tuple[KeptRow | None, ...] | None = None

    @property
    def is_informative(self) -> bool:
        """Whether the rewards differ, so that advantages are not all zero."""
        return len(set(self.rewards)) > 1

    @property
    def tokens(self) -> int:
        """Number of completion tokens in the group."""
        return sum(len(completion) for completion in self.completions)


@dataclass(frozen=True, slots=True)
class RewardContext:
    """A completion's reward, with the statistics of its group and of this node.

    Attributes:
        reward: of the completion.
        group_mean: mean reward of its group.
        group_deviation: standard deviation of the group's rewards, over G - 1.
        own_mean: this node's own mean reward in the family; NaN if it is not known.
    """

    reward: float = 0.0
    group_mean: float = 0.0
    group_deviation: float = 0.0
    own_mean: float = math.nan


@dataclass(slots=True)
class TrainingRow:
    """One completion with its advantage.

    Attributes:
        prompt: token ids.
        completion: token ids with the end token.
        advantage: of the completion, the same for all of its tokens.
        old: old log-probabilities, the denominator of the ratio; None until the first forward pass fills
            them in, if they are not known.
        external: whether this is another node's text.
        weight: of the loss, 0 to 1; None for another node's text until the first forward pass measures it.
        group: index of the group in the batch.
        context: the completion's reward and the statistics that it is compared with.
        sampled: whether ``old`` are the log-probabilities under which this policy's sampler drew it.
        drift: summed mismatch and log-ratio of the completion at its first forward pass
            (``losses/mismatch.py``); None before it, and for text that was not sampled here.
        states: activations kept from sampling, if any.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    advantage: float
    old: tuple[float, ...] | None
    external: bool = False
    weight: float | None = 1.0
    group: int = 0
    context: RewardContext = RewardContext()
    sampled: bool = False
    drift: tuple[float, float] | None = None
    states: KeptRow | None = None

    @property
    def width(self) -> int:
        """Number of tokens of prompt and completion."""
        return len(self.prompt) + len(self.completion)


def training_rows(
    groups: Sequence[TrainingGroup],
    *,
    all_groups: bool = False,
    baselines: Baselines | None = None,
    own_baseline: bool = True,
    scaled: bool = True,
) -> list[TrainingRow]:
    """Return the rows to train, shortest first; empty completions are left out.

    Args:
        groups: of the batch.
        all_groups: include groups whose advantages are all zero, which a KL term trains nevertheless.
        baselines: own mean rewards by family; none are known by default.
        own_baseline: measure other nodes' rewards against them instead of against their own group.
        scaled: divide a group's advantages by the standard deviation of its rewards.
    """
    rows: list[TrainingRow] = []
    for index, group in enumerate(groups):
        if all_groups or group.is_informative:
            advantages = _advantages(group, baselines if own_baseline else None, scaled=scaled)
            rows.extend(_rows_of(index, group, advantages, baselines))
    return sorted(rows, key=lambda row: row.width)


def share_measurements(rows: Sequence[TrainingRow], ranks: RankGroup) -> None:
    """Fill in what other ranks measured of the rows: old log-probabilities, weights and drift.

    Args:
        rows: the same, in the same order, on all ranks.
        ranks: of the learner; a single one has measured all rows itself.
    """
    if ranks.size == 1:
        return
    known = [[index, row.old, row.weight, row.drift] for index, row in enumerate(rows) if row.old is not None]
    for measured in ranks.exchange(known):
        for index, old, weight, drift in measured:
            row = rows[index]
            row.old = tuple(old) if row.old is None else row.old
            row.weight = weight if row.weight is None else row.weight
            row.drift = row.drift or (None if drift is None else (drift[0], drift[1]))


def mini_batches(rows: Sequence[TrainingRow], count: int) -> list[list[TrainingRow]]:
    """Split rows into at most ``count`` mini-batches in turn, so that each has long and short rows."""
    return [part for start in range(count) if (part := list(rows[start::count]))]


def micro_batches(
    rows: Sequence[TrainingRow], max_tokens: int, max_padding: int, *, shared_prompts: bool = False
) -> Iterator[list[TrainingRow]]:
    """Yield micro-batches of at least one row each, shortest rows first.

    Args:
        rows: in any order.
        max_tokens: of a micro-batch, its padding included.
        max_padding: padding tokens of a micro-batch, which extend rows to the length of the longest.
        shared_prompts: whether a prompt is computed once for all rows of a micro-batch that have it.
    """

    def length(row: TrainingRow) -> int:
        return len(row.completion) if shared_prompts else row.width

    part: list[TrainingRow] = []
    prompts: set[tuple[int, ...]] = set()
    real = longest_prompt = 0
    for row in sorted(rows, key=length):  # a stable sort: rows of equal length keep the order of their groups
        padded = (len(part) + 1) * length(row)
        padding = padded - real - length(row)
        prompt_tokens = (len(prompts) + (row.prompt not in prompts)) * max(longest_prompt, len(row.prompt))
        limit = max_tokens - prompt_tokens if shared_prompts else max_tokens
        if part and (padded > limit or padding > max_padding):
            yield part
            part, prompts, real, longest_prompt = [], set(), 0, 0
        part.append(row)
        prompts.add(row.prompt)
        real, longest_prompt = real + length(row), max(longest_prompt, len(row.prompt))
    if part:
        yield part


def _advantages(group: TrainingGroup, baselines: Baselines | None, *, scaled: bool) -> Sequence[float]:
    """Return an advantage per completion; without a baseline of its family, relative to the group itself."""
    baseline = baselines.of(group.family) if baselines is not None and group.external else None
    if baseline is not None:
        return baseline.advantages(group.rewards)
    values: list[float] = group_advantages(torch.tensor(group.rewards), scaled=scaled).tolist()
    return values


def _rows_of(
    index: int, group: TrainingGroup, advantages: Sequence[float], baselines: Baselines | None
) -> list[TrainingRow]:
    own = None if baselines is None else baselines.of(group.family)
    own_mean = math.nan if own is None else own.mean
    mean, deviation = fmean(group.rewards), stdev(group.rewards) if len(group.rewards) > 1 else 0.0
    nothing = (None,) * len(group.completions)
    behaviour, states = group.behaviour or nothing, group.states or nothing
    return [
        TrainingRow(
            prompt=group.prompt,
            completion=completion,
            advantage=advantage,
            old=old,
            external=group.external,
            weight=None if group.external else 1.0,
            group=index,
            context=RewardContext(reward, mean, deviation, own_mean),
            sampled=old is not None,
            states=kept,
        )
        for completion, advantage, reward, old, kept in zip(
            group.completions, advantages, group.rewards, behaviour, states, strict=True
        )
        if completion
    ]
