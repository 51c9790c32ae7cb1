"""Learning curves under attack: held-out pass@1 by round, compared with agents that train alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_client.lab.arms import BASELINE
from sapo_client.lab.attackers.campaign import CLEAN
from sapo_client.lab.attackers.catalogue import LabAttack
from sapo_client.lab.plot import Place, draw_learning
from sapo_client.lab.statistics import Estimate, estimate, points_of
from sapo_client.lab.store import Curve, write_csv


@dataclass(frozen=True, slots=True)
class AttackedRuns:
    """Runs of one arm under one attack, each with the run of the same seed that trains alone.

    Attributes:
        attack: the attack; None without attackers.
        attackers: number of attacking accounts.
        runs: at least one pair of runs, by seed.
    """

    attack: LabAttack | None
    attackers: int
    arm: str
    runs: tuple[tuple[Curve, Curve], ...]

    @property
    def name(self) -> str:
        """Name of the attack, or a text for no attack."""
        return self.attack.name if self.attack else CLEAN

    @property
    def label(self) -> str:
        """Name and number of attackers, as pictures show it."""
        return f"{self.name} by {self.attackers}" if self.attack else self.name

    @property
    def names(self) -> tuple[str, int, str, int]:
        """Attack, attackers, arm and number of seeds, as in a table."""
        return self.name, self.attackers, self.arm, len(self.runs)

    def shares(self) -> dict[int, Estimate]:
        """Return held-out pass@1 relative to training alone, for the rounds in which both were evaluated.

        A seed whose run alone has 0 in a round is left out of that round.
        """
        by_round: dict[int, list[float]] = {}
        for ours, alone in self.runs:
            theirs = dict(evaluations(alone))
            for number, share in evaluations(ours):
                if theirs.get(number):
                    by_round.setdefault(number, []).append(share / theirs[number])
        return {number: estimate(values) for number, values in by_round.items()}


def evaluations(curve: Curve) -> list[Place]:
    """Return round and held-out pass@1, averaged over agents and families, of every evaluation of a run."""
    return [(point.round, point.held_out) for point in points_of(curve.rows) if point.held_out is not None]


def share_table(groups: Sequence[AttackedRuns]) -> Iterator[str]:
    """Yield a Markdown table of each group's held-out pass@1 relative to training alone, by round."""
    shares = [group.shares() for group in groups]
    rounds = sorted(set().union(*shares))
    headings = ("attack", "attackers", "arm", "seeds", *(f"round {number}" for number in rounds))
    yield from markdown_table(
        headings,
        (
            (*map(str, group.names), *(words(by_round.get(each)) for each in rounds))
            for group, by_round in zip(groups, shares, strict=True)
        ),
    )


def words(value: Estimate | None) -> str:
    """Return a table cell with a mean and its interval, or for a missing one."""
    return "-" if value is None else value.words()


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| " + " | ".join(headings) + " |"
    yield "|" + " --- |" * len(headings)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


EVALUATION_COLUMNS: Final = ("attack", "attackers", "arm", "seed", "round", "held_out", "alone")


def write_evaluations(groups: Iterable[AttackedRuns], path: Path) -> None:
    """Write held-out pass@1 of every evaluation, with that of training alone in the same round, as CSV."""
    write_csv(path, EVALUATION_COLUMNS, (row for group in groups for row in _rows(group)))


def _rows(group: AttackedRuns) -> Iterator[tuple[object, ...]]:
    for ours, alone in group.runs:
        theirs = dict(evaluations(alone))
        for number, share in evaluations(ours):
            names = (group.name, group.attackers, group.arm, ours.run.seed)
            yield *names, number, share, theirs.get(number)


def draw(groups: Sequence[AttackedRuns], alone: Iterable[Curve], path: Path) -> None:
    """Draw held-out pass@1 by round: a panel per arm, a line per attack, and one for training alone.

    If agents train alone for more rounds, their line is cut off at the others' end.
    """
    curves: dict[str, dict[str, list[list[Place]]]] = {}
    for group in groups:
        lines = curves.setdefault(group.arm, {})
        lines[group.label] = [evaluations(run) for run, _ in group.runs]
    rounds = {number for group in groups for run, _ in group.runs for number, _ in evaluations(run)}
    control = [[place for place in evaluations(run) if place[0] in rounds] for run in alone]
    draw_learning(curves, (BASELINE, control), path)
