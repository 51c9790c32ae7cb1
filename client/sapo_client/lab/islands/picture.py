"""The plot of the islands' experiment: learning curves, and the islands whose groups each agent received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from sapo_client import extras
from sapo_client.pictures import DPI, PALETTE, LineStyle, drawing, legend, style

STYLES: Final[Mapping[str, LineStyle]] = {
    "visited": style(0),
    "one-topic": style(1),
    "unvisited": style(0, dashed=True),
}

FIRST_HAND: Final = {"facecolor": PALETTE[2], "edgecolor": "white", "hatch": ""}
SECOND_HAND: Final = {"facecolor": PALETTE[4], "edgecolor": "white", "hatch": "///"}
LEARNT: Final[Mapping[str, Any]] = {"marker": "D", "color": "black", "markersize": 9, "linestyle": "none"}

Places = Sequence[tuple[int, float]]
"""Rounds, and held-out pass@1 after each."""


@dataclass(frozen=True, slots=True)
class IslandLine:
    """Rounds in which the agent of one island received groups of agents that know the family.

    Attributes:
        first_hand: rounds in which it was subscribed to the first island.
        second_hand: rounds in which it was subscribed to another island whose agent had learnt the family.
        reached: round after which it had learnt the family; None if it never had.
    """

    island: int
    first_hand: Sequence[int]
    second_hand: Sequence[int]
    reached: int | None


def draw_islands(
    curves: Mapping[str, Sequence[Sequence[Places]]],
    lines: Sequence[IslandLine],
    *,
    level: float,
    says: str,
    path: Path,
) -> None:
    """Draw success by round in every experiment, and the islands to which each agent was subscribed.

    Args:
        curves: curves by experiment, run and agent.
        lines: lines of one run of the islands with visits.
        level: success from which the family counts as learnt.
        says: explanation of lines and marks.

    Raises:
        SapoError: matplotlib is not installed.
    """
    extras.require(extras.LAB)
    with drawing() as pyplot:
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5.6), layout="constrained")
        for name, runs in curves.items():
            _success(left, name, [agent for run in runs for agent in run])
        left.axhline(level, color="black", linestyle=":", linewidth=1.2)
        left.set(xlabel="round", ylabel="held-out pass@1, sampled", ylim=(0, 1))
        left.set_title("the family that island 0 knows", loc="left")
        _heard(right, lines)
        _explain(left)
        for panel in (left, right):
            panel.xaxis.get_major_locator().set_params(integer=True)
        legend(figure, left, says)
        figure.savefig(path, dpi=DPI)
        pyplot.close(figure)


def _success(axes: Any, name: str, agents: Sequence[Places]) -> None:
    chosen = STYLES[name]
    rounds = [number for number, _ in agents[0]]
    for places in agents:
        axes.plot(*zip(*places, strict=True), color=chosen.colour, linewidth=0.8, alpha=0.45)
    means = [fmean(share for _, share in each) for each in zip(*agents, strict=True)]
    axes.plot(rounds, means, label=name, **chosen.arguments(len(rounds)))


def _heard(axes: Any, lines: Sequence[IslandLine]) -> None:
    for line in lines:
        _bars(axes, line.island + 0.17, line.first_hand, FIRST_HAND)
        _bars(axes, line.island - 0.17, line.second_hand, SECOND_HAND)
        if line.reached is not None:
            axes.plot(line.reached, line.island, **LEARNT)
    islands = [line.island for line in lines] or [0]
    axes.set(xlabel="round", ylabel="island", yticks=islands, ylim=(min(islands) - 0.5, max(islands) + 0.5))
    axes.set_title("visited islands, seed 0: what each agent heard", loc="left")


def _explain(axes: Any) -> None:
    """Add the marks of the other panel to the legend of this one."""
    axes.fill_between([], [], [], **FIRST_HAND, label="heard island 0")
    axes.fill_between([], [], [], **SECOND_HAND, label="heard another that had learnt it")
    axes.plot([], [], **LEARNT, label="had learnt it")


def _bars(axes: Any, place: float, rounds: Sequence[int], look: Mapping[str, str]) -> None:
    """Draw a bar for every sequence of consecutive rounds."""
    for _, stretch in groupby(enumerate(rounds), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in stretch]
        width = numbers[-1] - numbers[0] + 1
        axes.barh(place, width, left=numbers[0] - 0.5, height=0.3, **look)
