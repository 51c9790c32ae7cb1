"""Statistics of an experiment: figures of a run, means over seeds, paired differences against 8/0.

Only seeds are repetitions: the agents of one swarm learn from each other, so they count as one. A difference
is taken seed by seed, because arms of one seed share tasks and initial policy.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Final

from sapo_client.intervals import t_975
from sapo_client.lab.arms import BASELINE, OURS, RIVAL, known_arms
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.store import Curve

PAPER_WINDOW: Final = 100
"""Rounds of the moving average in the paper's Figure 2."""

MIN_WINDOW: Final = 5

LAST_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Point:
    """One round of a run, averaged over its agents; tokens, seconds and bytes are cumulative.

    Attributes:
        held_out: pass@1 on the held-out set, averaged over families; None between evaluations.
    """

    round: int
    batch: float
    local: float
    informative: float
    external: float
    tokens: float
    seconds: float
    held_out: float | None
    greedy: float | None
    agents: int
    trained_tokens: float
    received_bytes: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds with its 95 % interval; a single seed has no interval."""

    mean: float
    half_width: float | None
    seeds: int

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def words(self, digits: int = 3, sign: str = "") -> str:
        """Return the mean with its interval as text; with ``+`` as sign a positive mean is also signed."""
        width = "" if self.half_width is None else f" ± {self.half_width:.{digits}f}"
        return f"{self.mean:{sign}.{digits}f}{width}"


@dataclass(frozen=True, slots=True)
class Budget:
    """Cost per agent that every run has reached; at this cost arms can be compared."""

    tokens: float
    seconds: float


Figure = Callable[[Sequence[Point], Budget], float]

FIGURES: Final[Mapping[str, Figure]] = {
    "total": lambda points, _: sum(point.agents * point.batch for point in points),
    "batch": lambda points, _: statistics.fmean(point.batch for point in points),
    "local": lambda points, _: statistics.fmean(point.local for point in points),
    "local, last tenth": lambda points, _: statistics.fmean(
        point.local for point in points[-max(1, round(LAST_SHARE * len(points))) :]
    ),
    "held-out": lambda points, _: held_out_at(points, len(points), lambda point: point.round),
    "held-out, equal tokens": lambda points, budget: held_out_at(points, budget.tokens, lambda p: p.tokens),
    "held-out, equal seconds": lambda points, budget: held_out_at(
        points, budget.seconds, lambda p: p.seconds
    ),
    "held-out, greedy": lambda points, _: [p.greedy for p in points if p.greedy is not None][-1],
    "oscillation": lambda points, _: oscillation([point.local for point in points]),
    "tokens": lambda points, _: points[-1].tokens,
    "seconds": lambda points, _: points[-1].seconds,
    "trained tokens": lambda points, _: points[-1].trained_tokens,
    "received bytes": lambda points, _: points[-1].received_bytes,
}
"""Figures by name; ``total`` is the paper's measure, ``batch`` the same per agent and round."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of one arm.

    Attributes:
        values: estimate of every figure.
        differences: differences to the baseline, over the seeds that both have; empty for the baseline.
        gain: relative difference of the paper's measure to the baseline's, seed by seed; None for the
            baseline, and if the baseline's is zero for some seed.
    """

    arm: str
    values: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]
    gain: Estimate | None


@dataclass(frozen=True, slots=True)
class Results:
    """Statistics of all curves.

    Attributes:
        ours: differences between the network's sampler and the same mixture without it, over the seeds that
            both have.
    """

    arms: Sequence[Summary]
    ours: Mapping[str, Estimate]
    budget: Budget


BySeed = Mapping[int, Mapping[str, float]]
"""Figures of an arm's runs, by seed."""


def points_of(rows: Sequence[CurvePoint]) -> list[Point]:
    """Return the rounds of a run."""
    rounds = [list(group) for _, group in groupby(rows, key=lambda row: row.round)]
    tokens = accumulate(_mean(group, lambda row: row.generated_tokens) for group in rounds)
    seconds = accumulate(_mean(group, lambda row: row.seconds) for group in rounds)
    trained = accumulate(_mean(group, lambda row: row.trained_tokens) for group in rounds)
    received = accumulate(_mean(group, lambda row: row.received_bytes) for group in rounds)
    spent = zip(tokens, seconds, trained, received, strict=True)
    return [
        Point(
            round=group[0].round,
            batch=_mean(group, lambda row: row.batch),
            local=_mean(group, lambda row: row.local),
            informative=_mean(group, lambda row: row.informative),
            external=_mean(group, lambda row: row.external),
            tokens=spent_tokens,
            seconds=spent_seconds,
            held_out=_over_families(row.held_out for row in group),
            greedy=_over_families(row.greedy for row in group),
            agents=len(group),
            trained_tokens=trained_tokens,
            received_bytes=received_bytes,
        )
        for group, (spent_tokens, spent_seconds, trained_tokens, received_bytes) in zip(
            rounds, spent, strict=True
        )
    ]


def summarise(curves: Sequence[Curve]) -> Results:
    """Return the statistics of every arm that has runs, and the comparisons."""
    points = {(curve.run.arm.name, curve.run.seed): points_of(curve.rows) for curve in curves}
    budget = budget_of(points.values())
    values: dict[str, dict[int, dict[str, float]]] = {}
    for (arm, seed), run in points.items():
        values.setdefault(arm, {})[seed] = {name: take(run, budget) for name, take in FIGURES.items()}
    baseline = values.get(BASELINE, {})
    return Results(
        [
            _summary(arm, values[arm], {} if arm == BASELINE else baseline)
            for arm in known_arms()
            if arm in values
        ],
        _differences(values.get(OURS, {}), values.get(RIVAL, {})),
        budget,
    )


def budget_of(runs: Iterable[Sequence[Point]]) -> Budget:
    """Return the cost of the cheapest run."""
    ends = [points[-1] for points in runs]
    return Budget(min(end.tokens for end in ends), min(end.seconds for end in ends))


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean and its 95 % interval by Student's t."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, None, len(values))
    return Estimate(mean, t_975(len(values)) * statistics.stdev(values) / len(values) ** 0.5, len(values))


def held_out_at(points: Sequence[Point], spent: float, axis: Callable[[Point], float]) -> float:
    """Return held-out pass@1 at a position of an axis, linearly interpolated between evaluations."""
    known = [(axis(point), point.held_out) for point in points if point.held_out is not None]
    before = max((pair for pair in known if pair[0] <= spent), default=known[0])
    after = min((pair for pair in known if pair[0] >= spent), default=known[-1])
    if after[0] == before[0]:
        return after[1]
    return before[1] + (after[1] - before[1]) * (spent - before[0]) / (after[0] - before[0])


def oscillation(values: Sequence[float]) -> float:
    """Return the root mean square change from one round to the next."""
    squares = [(after - before) ** 2 for before, after in pairwise(values)]
    return math.sqrt(statistics.fmean(squares)) if squares else 0.0


def window_of(rounds: int) -> int:
    """Return the window of the moving average: the paper's, or a tenth of a shorter run, at least five."""
    return min(PAPER_WINDOW, max(MIN_WINDOW, rounds // 10))


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of the last ``window`` values at every position, of fewer at the start."""
    sums = [0.0, *accumulate(values)]
    firsts = [max(0, place - window) for place in range(1, len(sums))]
    return [(sums[i] - sums[first]) / (i - first) for i, first in enumerate(firsts, 1)]


def _summary(arm: str, values: BySeed, baseline: BySeed) -> Summary:
    return Summary(
        arm,
        {name: estimate([run[name] for run in values.values()]) for name in FIGURES},
        _differences(values, baseline),
        _gain(values, baseline),
    )


def _differences(values: BySeed, others: BySeed) -> dict[str, Estimate]:
    """Return the differences of every figure, over the seeds that both have; empty if there are none."""
    both = sorted(values.keys() & others.keys())
    return {
        name: estimate([values[seed][name] - others[seed][name] for seed in both]) for name in FIGURES if both
    }


def _gain(values: BySeed, others: BySeed) -> Estimate | None:
    both = sorted(values.keys() & others.keys())
    if not both or any(others[seed]["total"] == 0 for seed in both):
        return None
    return estimate([values[seed]["total"] / others[seed]["total"] - 1 for seed in both])


def _mean(rows: Sequence[CurvePoint], of: Callable[[CurvePoint], float]) -> float:
    return statistics.fmean(map(of, rows))


def _over_families(evaluations: Iterable[Mapping[str, float] | None]) -> float | None:
    """Return the mean over agents and families; None in a round without evaluation."""
    known = [statistics.fmean(by_family.values()) for by_family in evaluations if by_family]
    return statistics.fmean(known) if known else None
