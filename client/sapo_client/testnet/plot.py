"""Plot of a run: reward per step of every node, and the share of its batches that came from others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sapo_client import extras
from sapo_client.testnet.node_record import NodeRecord

SMOOTHING: Final = 0.15
"""Weight of a new step in the running mean: a step is a few dozen answers, so its reward is noisy."""

DPI: Final = 150


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


def draw(records: Sequence[NodeRecord], path: Path, title: str) -> None:
    """Write a PNG with both curves of every node.

    Raises:
        SapoError: the extra ``testnet`` is missing.
    """
    extras.require(extras.TESTNET)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(
        2, 1, figsize=(9, 6.5), sharex=True, height_ratios=(2.2, 1), layout="constrained"
    )
    for index, record in enumerate(records):
        colour = f"C{index % 10}"
        _curve(upper, record, list(record.rewards), colour, raw=True)
        _curve(lower, record, external_shares(record), colour, raw=False)
    _label(upper, title, "reward of own answers (mean)", None)
    _label(lower, None, "share of others' rollouts", "training step")
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=8, frameon=False)
    figure.savefig(path, dpi=DPI)
    pyplot.close(figure)


def _curve(axes: Any, record: NodeRecord, values: list[float], colour: str, *, raw: bool) -> None:
    steps = [step.step for step in record.steps]
    if raw:
        axes.plot(steps, values, color=colour, alpha=0.18, linewidth=0.8)
    axes.plot(steps, smooth(values), color=colour, linewidth=1.8, label=record.name)


def _label(axes: Any, title: str | None, y: str, x: str | None) -> None:
    if title:
        axes.set_title(title, loc="left")
    axes.set_ylabel(y)
    axes.set_xlabel(x or "")
    axes.set_ylim(0, None)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
