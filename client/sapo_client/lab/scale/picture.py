"""The plot of a simulation of many nodes: delays of groups, and Sybils' share of batches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sapo_client.lab.scale.report import IslandFigures, ScaleReport
from sapo_client.pictures import DPI, drawing, legend, style


def draw_scale(report: ScaleReport, path: Path) -> None:
    """Draw the share of deliveries by delay, and the share of Sybils on each simulated island.

    Raises:
        SapoError: matplotlib is not installed.
    """
    with drawing() as pyplot:
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5), layout="constrained")
        tenths = [(number + 1) / 10 for number in range(len(report.delays) - 1)]
        left.plot(tenths, report.delays[:-1], label="deliveries", **style(0).arguments(len(tenths)))
        left.axhline(0.99, color="#666666", linestyle=(0, (4, 2)), label="99 %")
        left.set(xlabel="seconds after publication", ylabel="share of deliveries", ylim=(0, 1.02))
        left.set_title("delay")
        _shares(right, report.islands)
        plan = report.plan
        says = (
            f"{plan.nodes:,} nodes on {plan.islands:,} islands, {report.islands_simulated} of them simulated;"
            " "
            f"{plan.sybils:.0%} Sybils, {plan.nat:.0%} behind NAT, {plan.churn:.0%} leave in each epoch, "
            f"{plan.loss:.0%} of copies lost; {report.virtual_seconds:.0f} s of virtual time"
        )
        legend(figure, left, says)
        figure.savefig(path, dpi=DPI)
        pyplot.close(figure)


def _shares(axes: Any, islands: Iterable[IslandFigures]) -> None:
    drawn = [one for one in islands if one.in_batches is not None]
    axes.plot(
        [one.sybils for one in drawn],
        [one.in_batches for one in drawn],
        linestyle="none",
        marker="o",
        color=style(1).colour,
    )
    axes.set(xlabel="share of the island's accounts", ylabel="share of its nodes' batches", ylim=(0, 1.0))
    axes.set_title("Sybils by island")
