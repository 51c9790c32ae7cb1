"""Plot of a run: reward of every node, and the share of others' groups in its batches, over time.

It is one run, so it has no interval, and no node in it trains without the others: it shows that the swarm
works, not that sharing helps. The plot states both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sapo_client import extras
from sapo_client.pictures import DPI, drawing, legend, style
from sapo_client.testnet.node_record import NodeRecord

SMOOTHING: Final = 0.15
"""Weight of a new step in the running mean: a step is a few dozen answers, so its reward is noisy."""


def smooth(values: Sequence[float], weight: float = SMOOTHING) -> list[float]:
    """Return the exponential running mean, with bias correction at its start."""
    smoothed, mean, mass = [], 0.0, 0.0
    for value in values:
        mean = (1 - weight) * mean + weight * value
        mass = (1 - weight) * mass + weight
        smoothed.append(mean / mass)
    return smoothed


def external_shares(record: NodeRecord) -> list[float]:
    """Return, per step, the share of groups in the batch that others wrote."""
    sizes = ((len(step.external), step.local) for step in record.steps)
    return [external / (external + local) if external + local else 0.0 for external, local in sizes]


def seconds_of(record: NodeRecord) -> list[float]:
    """Return the Unix times of the steps."""
    return [datetime.fromisoformat(step.time).timestamp() for step in record.steps]


def epoch_starts(records: Sequence[NodeRecord]) -> dict[int, float]:
    """Return the Unix time of each epoch's first step on any node."""
    starts: dict[int, float] = {}
    for record in records:
        for step, seconds in zip(record.steps, seconds_of(record), strict=True):
            starts[step.epoch] = min(seconds, starts.get(step.epoch, seconds))
    return dict(sorted(starts.items()))


def draw(
    records: Sequence[NodeRecord],
    path: Path,
    title: str,
    attacked_seconds: Sequence[float] = (),
    *,
    starts_differ: bool = False,
) -> None:
    """Write a PNG with both curves of every node, the beginnings of epochs, and the times of attacks.

    Args:
        attacked_seconds: Unix times of the attackers' messages.
        starts_differ: whether nodes start from different models, so that one can learn a skill from another.
            If all start alike, a family without a right answer at first is chance.

    Raises:
        SapoError: the extra ``testnet`` is missing.
    """
    extras.require(extras.TESTNET)
    epochs = epoch_starts(records)
    zero = min(epochs.values(), default=0.0)
    travels = starts_differ and any(record.lacking() for record in records)
    with drawing() as pyplot:
        figure, panels = pyplot.subplots(
            2 + travels, 1, figsize=(10, 8 + 3 * travels), sharex=True, layout="constrained",
            height_ratios=(2.2, 1.5, 1) if travels else (2.2, 1),
        )  # fmt: skip
        upper, lower = panels[0], panels[-1]
        if travels:
            _draw_travelling(panels[1], records, zero)
        for index, record in enumerate(records):
            seconds = [each - zero for each in seconds_of(record)]
            label = f"{record.name} ({len(seconds)} steps)"
            upper.plot(seconds, record.rewards, color=style(index).colour, alpha=0.2, linewidth=0.8)
            for axes, values in ((upper, list(record.rewards)), (lower, external_shares(record))):
                axes.plot(seconds, smooth(values), label=label, **style(index).arguments(len(seconds)))
        _mark_epochs(upper, {epoch: start - zero for epoch, start in epochs.items()})
        _mark_attacks(lower, [sent - zero for sent in attacked_seconds])
        _label(upper, title, "mean reward of own answers", "")
        _label(lower, "", "others' share", "seconds since the first step")
        legend(figure, upper, _says(attacked=bool(attacked_seconds)))
        figure.savefig(path, dpi=DPI)
        pyplot.close(figure)


def _draw_travelling(axes: Any, records: Sequence[NodeRecord], zero: float) -> None:
    """Draw the rewards of nodes in the families that they did not know at first."""
    for index, record in enumerate(records):
        names = record.lacking()
        points = [
            (seconds - zero, [step.families[name] for name in names if name in step.families])
            for seconds, step in zip(seconds_of(record), record.steps, strict=True)
        ]
        drawn = [(seconds, sum(each) / len(each)) for seconds, each in points if each]
        if drawn:
            times, rewards = zip(*drawn, strict=True)
            label = f"{record.name}: {', '.join(names)}"
            axes.plot(times, smooth(rewards), label=label, **style(index).arguments(len(times)))
    _label(axes, "families of which a node knew nothing", "mean reward", "")
    axes.legend(loc="upper left")


def _says(*, attacked: bool) -> str:
    lines = f"thick: exponential running mean (weight of a step: {SMOOTHING}); thin: single steps"
    attacks = "; red ticks: messages of attackers" if attacked else ""
    return (
        f"{lines}; dotted: a new epoch{attacks}\none run (n = 1): no interval, and no control without sharing"
    )


MAX_WORDS: Final = 9
"""Maximum number of epoch marks with the word "epoch"; the plot's footer explains the marks."""


def _mark_epochs(axes: Any, starts: dict[int, float]) -> None:
    word = " epoch " if len(starts) <= MAX_WORDS else " "  # more would overlap
    for epoch, start in starts.items():
        axes.axvline(start, color="#444444", linestyle=":", linewidth=1)
        axes.annotate(f"{word}{epoch}", (start, 1), xycoords=("data", "axes fraction"), va="top", fontsize=11)


def _mark_attacks(axes: Any, sent: Sequence[float]) -> None:
    """Draw a tick for every message, along the upper edge."""
    transform = axes.get_xaxis_transform()
    axes.vlines(sent, 0.93, 1.0, transform=transform, color="#CC0000", linewidth=0.8)


def _label(axes: Any, title: str, y: str, x: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_ylabel(y)
    axes.set_xlabel(x)
    axes.set_ylim(0, None)
