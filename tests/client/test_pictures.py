"""Plots: they state their content, controls are distinct, and no two lines look alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from sapo_client import pictures
from sapo_client.lab import plot
from sapo_client.lab.arms import ARMS
from sapo_client.lab.statistics import Point, estimate
from sapo_client.testnet import plot as testnet_plot
from sapo_client.testnet.node_record import NodeRecord, RecordedStep

CONTROLS = {"8/0", "8/0-dynamic", "curriculum", "oracle", "oracle-hints"}
MIN_POINTS = 10
"""Smallest type, in points: half of it is still legible."""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return the figures that are saved from now on, as they are saved."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def points(base: float) -> list[Point]:
    return [
        Point(
            round=number,
            batch=base * number / 10,
            local=base * number / 12,
            informative=1.0,
            external=0.0,
            tokens=1000.0 * number,
            seconds=2.0 * number,
            held_out=base * number / 11,
            greedy=None,
            agents=4,
            trained_tokens=900.0 * number,
            received_bytes=10.0 * number,
        )
        for number in range(1, 9)
    ]


def runs(seeds: int) -> dict[str, list[list[Point]]]:
    return {arm: [points(0.5 + seed / 10) for seed in range(seeds)] for arm in ("8/0", "4/4")}


def texts(figure: Figure) -> tuple[str, list[str]]:
    """Return what a figure says below it, and the names of its lines."""
    [legend] = figure.legends
    return " ".join(legend.get_title().get_text().split()), [text.get_text() for text in legend.get_texts()]


def test_lines_differ_without_colour_and_no_two_are_alike() -> None:
    styles = {arm: plot.style_of(arm) for arm in ARMS}
    assert len(set(styles.values())) == len(ARMS)
    assert {arm for arm, style in styles.items() if style.dashed} == CONTROLS
    shapes = {(style.marker, style.dashed) for style in styles.values()}
    assert len(shapes) == len(ARMS)
    assert plot.style_of("an arm of a plug-in") not in styles.values()


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, 0 to 1 (WCAG 2.2)."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", [*pictures.PALETTE, *pictures.GREYS])
def test_colours_stand_out_from_white(colour: str) -> None:
    contrast = 1.05 / (luminance(colour) + 0.05)
    assert contrast >= 2.2, "lines are wide; text would need 4.5"


@pytest.mark.parametrize(
    ("seeds", "bands", "says"),
    [
        (5, 2, "band: its 95 % interval over n seeds (Student's t)"),
        (2, 0, "with n < 3 thin lines are single runs, without an interval"),
        (1, 0, "with n < 3 thin lines are single runs, without an interval"),
    ],
)
def test_the_picture_of_rewards_names_smoothing_interval_and_n(
    drawn: list[Figure], tmp_path: Path, seeds: int, bands: int, says: str
) -> None:
    plot.draw_rewards(runs(seeds), tmp_path / "rewards.png")
    [figure] = drawn
    said, names = texts(figure)
    assert "each point is the mean of its last" in said
    assert says in said
    assert names == [f"8/0 (n = {seeds}, control)", f"4/4 (n = {seeds})"]
    for axes in figure.axes:
        assert len(axes.collections) == bands
        assert axes.get_ylim()[0] == 0


def test_the_picture_of_held_out_tasks_is_not_smoothed_and_its_legend_states_this(
    drawn: list[Figure], tmp_path: Path
) -> None:
    plot.draw_held_out(runs(3), tmp_path / "held-out.png")
    assert "not smoothed" in texts(drawn[0])[0]


def test_the_picture_of_attacks_marks_the_control(drawn: list[Figure], tmp_path: Path) -> None:
    shares = {"4/4": {"verbose": estimate([0.8, 0.9, 1.0])}}
    plot.draw_attacks(["verbose"], shares, shares, tmp_path / "attack.png")
    said, _ = texts(drawn[0])
    assert "line at 1: agents that train alone, the control" in said
    assert "95 % interval" in said


def test_the_picture_of_learning_under_attack_has_a_panel_for_each_arm(
    drawn: list[Figure], tmp_path: Path
) -> None:
    seeds = [[(1, 0.2), (5, 0.4 + seed / 10)] for seed in range(3)]
    curves = {
        "4/4": {"clean": seeds, "pad by 2": seeds[:2]},
        "imitate": {"pad by 2": seeds, "phrase by 2": seeds},
    }
    plot.draw_learning(curves, ("8/0", seeds), tmp_path / "learning.png")
    [figure] = drawn
    said, names = texts(figure)
    assert names == ["8/0 (n = 3, control)", "clean (n = 3)", "pad by 2 (n = 2, 3)", "phrase by 2 (n = 3)"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["4/4", "imitate"]
    of_4_4, of_imitate = (
        {line.get_label(): (line.get_color(), np.size(line.get_xdata())) for line in axes.lines}
        for axes in figure.axes
    )
    colour, points = of_4_4["pad by 2 (n = 2, 3)"]
    assert of_imitate["pad by 2 (n = 2, 3)"] == (colour, points) == (colour, 2), "an attack has one colour"
    assert of_imitate["clean (n = 3)"][1] == 0, "it was not run"
    assert "band: its 95 % interval" in said
    assert "with n < 3" in said


def test_the_picture_of_a_testnet_marks_epochs_and_attacks(drawn: list[Figure], tmp_path: Path) -> None:
    steps = [
        RecordedStep(
            step=number,
            epoch=number // 20,
            time=f"2026-11-22T10:00:{number:02}.000+00:00",
            reward=number / 60,
            local=4,
            external=("c",),
            unproven=(),
        )
        for number in range(1, 41)
    ]
    records = [NodeRecord(name, steps=steps) for name in ("ada", "bo")]
    begun = testnet_plot.epoch_starts(records)
    assert [second - begun[0] for second in begun.values()] == [0.0, 19.0, 39.0]
    testnet_plot.draw(records, tmp_path / "reward.png", "a run", [begun[0] + 5.0, begun[0] + 6.0])
    [figure] = drawn
    said, names = texts(figure)
    for part in ("exponential running mean (weight of a step: 0.15)", "thin: single steps", "red ticks"):
        assert part in said
    assert "no interval" in said
    assert "no control without sharing" in said
    assert names == ["ada (40 steps)", "bo (40 steps)"]
    upper, lower = figure.axes
    assert [text.get_text().strip() for text in upper.texts] == ["epoch 0", "epoch 1", "epoch 2"]
    [ticks] = lower.collections
    assert isinstance(ticks, LineCollection)
    assert [float(segment[0][0]) for segment in ticks.get_segments()] == [5.0, 6.0]


def test_without_attackers_the_legend_has_no_attacks(drawn: list[Figure], tmp_path: Path) -> None:
    testnet_plot.draw([NodeRecord("ada")], tmp_path / "reward.png", "a run")
    assert "red ticks" not in texts(drawn[0])[0]


def test_text_is_legible_at_half_the_size(drawn: list[Figure], tmp_path: Path) -> None:
    plot.draw_rewards(runs(3), tmp_path / "rewards.png")
    [figure] = drawn
    [legend] = figure.legends
    shown = [legend.get_title(), *legend.get_texts()]
    for axes in figure.axes:
        shown += [axes.xaxis.label, axes.yaxis.label, axes.title, *axes.get_xticklabels()]
    assert min(float(text.get_fontsize()) for text in shown) >= MIN_POINTS
