"""The results of `sapo lab islands`: one table, one plot, and the same figures as CSV."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.held_out import HeldOut, pass_at_1
from sapo_client.lab.islands.campaign import VISITED, IslandCampaign
from sapo_client.lab.islands.picture import IslandLine, draw_islands
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plan import Run
from sapo_client.lab.simulate import settings_of
from sapo_client.lab.store import Curve, write_csv, write_whole
from sapo_client.learner.service import Service
from sapo_verification.suites.catalogue import family

ENOUGH: Final = 0.6
"""Share of the specialists' success from which a family counts as learnt."""


@dataclass(frozen=True, slots=True)
class IslandLearner:
    """Learning of the hidden family by the agent of one island in one run.

    Attributes:
        heard: first round in which a group from the first island arrived; None if none arrived.
        reached: first evaluated round in which it had learnt the family; None if it never had.
        direct: number of texts of the family shown to it until then that were written on the first island.
        relayed: the same for texts written on other islands.
        last: held-out pass@1 in the family after the last round.
        groups: mean number of others' groups received per round.
        seconds: processor seconds of its learner.
    """

    experiment: str
    seed: int
    island: int
    heard: int | None
    reached: int | None
    direct: int
    relayed: int
    last: float
    groups: float
    seconds: float

    @property
    def way(self) -> str:
        """From which islands it learnt the family."""
        if self.reached is None:
            return "not learnt"
        if not self.direct:
            return "second hand"
        return "both" if self.relayed else "first hand"


class IslandResults:
    """Comparison of the runs of a campaign, including unfinished ones.

    Raises:
        SapoError: no run has finished its first round.
    """

    def __init__(self, campaign: IslandCampaign) -> None:
        self.campaign = campaign
        self.curves: dict[str, list[Curve]] = {}
        for store, runs in campaign.runs():
            found = [curve for run in runs if (curve := store.so_far(run)) is not None]
            if found:
                self.curves[store.root.name] = found
        if not self.curves:
            raise SapoError(
                f"no run in {campaign.root} has finished its first round",
                hint="start `sapo lab islands` without --so-far: it resumes where it stopped",
                exit_code=ExitCode.DATA,
            )

    @cached_property
    def level(self) -> float:
        """Held-out pass@1 of the specialists in the hidden family."""
        plan, hidden = self.campaign.plan, self.campaign.hidden
        run = Run(plan, self.campaign.arm, 0)
        with tempfile.TemporaryDirectory() as folder:
            service = Service(settings_of(run, plan.agents, Path(folder)))
            held_out = HeldOut.of([family(hidden, plan.level)], plan.held_out_per_family)
            seed = run.evaluation_seed(plan.agents, 0)
            return pass_at_1(held_out.answers(service, plan.temperature, seed))[hidden]

    @cached_property
    def learners(self) -> list[IslandLearner]:
        """Every agent of every run."""
        return [
            self._learner(name, curve, agent)
            for name, curves in self.curves.items()
            for curve in curves
            for agent in range(self.campaign.plan.agents)
        ]

    def others(self, name: str) -> list[IslandLearner]:
        """Return the agents of an experiment whose home is not the first island."""
        return [each for each in self.learners if each.experiment == name and each.island]

    def carrying(self, rows: Sequence[CurvePoint]) -> list[IslandLine]:
        """Return the lines of one run of the islands with visits, for the plot."""
        plan, reached = self.campaign.plan, {}
        for agent in range(plan.agents):
            reached[agent] = self._reached([row for row in rows if row.agent == agent])
        return [
            IslandLine(
                island=plan.home_of(agent),
                first_hand=[row.round for row in own if self._heard_of(row, {0})],
                second_hand=[row.round for row in own if self._heard_of(row, self._knowing(row, reached))],
                reached=reached[agent],
            )
            for agent in range(plan.agents)
            if plan.home_of(agent) and (own := [row for row in rows if row.agent == agent])
        ]

    def _knowing(self, row: CurvePoint, reached: Mapping[int, int | None]) -> set[int]:
        """Return the other islands whose agents had learnt the family before a round."""
        home_of = self.campaign.plan.home_of
        known = {home_of(agent) for agent, when in reached.items() if when is not None and when < row.round}
        return known - {0, home_of(row.agent)}

    def _heard_of(self, row: CurvePoint, islands: set[int]) -> bool:
        return any(self.campaign.plan.home_of(int(number)) in islands for number in row.heard or {})

    def _reached(self, rows: Sequence[CurvePoint]) -> int | None:
        enough, hidden = ENOUGH * self.level, self.campaign.hidden
        return next((row.round for row in rows if row.held_out and row.held_out[hidden] >= enough), None)

    def _learner(self, name: str, curve: Curve, agent: int) -> IslandLearner:
        plan, hidden = self.campaign.plan, self.campaign.hidden
        rows = [row for row in curve.rows if row.agent == agent]
        reached = self._reached(rows)
        until = [row for row in rows if reached is None or row.round <= reached]
        shown = [
            (plan.home_of(int(number)), texts)
            for row in until
            for number, texts in (row.shown or {}).get(hidden, {}).items()
        ]
        return IslandLearner(
            experiment=name,
            seed=curve.run.seed,
            island=plan.home_of(agent),
            heard=next((row.round for row in rows if self._heard_of(row, {0})), None),
            reached=reached,
            direct=sum(texts for home, texts in shown if home == 0),
            relayed=sum(texts for home, texts in shown if home),
            last=next(row.held_out[hidden] for row in reversed(rows) if row.held_out),
            groups=fmean(sum((row.heard or {}).values()) for row in rows),
            seconds=sum(row.seconds for row in rows),
        )


def write_islands(campaign: IslandCampaign) -> Path:
    """Write islands.md, islands.csv and islands.png from all runs so far; return the page's path.

    Raises:
        SapoError: no run has finished its first round.
    """
    results = IslandResults(campaign)
    columns = [*(field.name for field in fields(IslandLearner)), "way"]
    rows = ((*astuple(each), each.way) for each in results.learners)
    write_csv(campaign.root / "islands.csv", columns, rows)
    by_round = {
        name: [_by_agent(curve, campaign) for curve in curves] for name, curves in results.curves.items()
    }
    visited = results.curves.get(VISITED)
    draw_islands(
        by_round,
        results.carrying(visited[0].rows) if visited else [],
        level=ENOUGH * results.level,
        says=_says(results),
        path=campaign.root / "islands.png",
    )
    page = campaign.root / "islands.md"
    write_whole(page, "\n".join(_page(results)) + "\n")
    return page


def _by_agent(curve: Curve, campaign: IslandCampaign) -> list[list[tuple[int, float]]]:
    """Return round and held-out pass@1 in the hidden family, for each agent outside the first island."""
    return [
        [
            (row.round, row.held_out[campaign.hidden])
            for row in curve.rows
            if row.agent == agent and row.held_out is not None
        ]
        for agent in range(campaign.plan.agents)
        if campaign.plan.home_of(agent)
    ]


COLUMNS: Final = (
    *("islands", "rounds", "learnt", "first, half, all", "last round"),
    *("texts until learnt", "relayed", "groups heard", "seconds"),
)


def summary(results: IslandResults) -> list[tuple[str, ...]]:
    """Return a table row for each experiment, over the agents outside the first island."""
    return [(name, _rounds(curves), *_row(results.others(name))) for name, curves in results.curves.items()]


def _rounds(curves: Sequence[Curve]) -> str:
    """Return the number of rounds of an experiment's runs, and of how many if they are unfinished."""
    done, planned = min(curve.rows[-1].round for curve in curves), curves[0].run.plan.rounds
    return str(done) if done == planned else f"{done} of {planned}"


def _row(found: Sequence[IslandLearner]) -> tuple[str, ...]:
    when = sorted(each.reached for each in found if each.reached is not None)
    places = (0, (len(found) + 1) // 2 - 1, len(found) - 1)
    rounds = ", ".join(str(when[place]) if place < len(when) else "-" for place in places)
    learnt = [each for each in found if each.reached is not None]
    texts = f"{fmean(each.direct + each.relayed for each in learnt):.0f}" if learnt else "-"
    relayed = sum(each.relayed for each in learnt) / max(
        1, sum(each.direct + each.relayed for each in learnt)
    )
    return (
        f"{len(when)} of {len(found)}",
        rounds,
        f"{fmean(each.last for each in found):.2f}",
        texts,
        f"{relayed:.0%}" if learnt else "-",
        f"{fmean(each.groups for each in found):.0f}",
        f"{fmean(each.seconds for each in found):.0f}",
    )


def document(results: IslandResults) -> dict[str, object]:
    """Return all figures as plain values."""
    return {
        "format": "sapo/lab/islands/1",
        "level": results.level,
        "learners": [{**asdict(each), "way": each.way} for each in results.learners],
    }


def _says(results: IslandResults) -> str:
    plan = results.campaign.plan
    seeds = max(len(curves) for curves in results.curves.values())
    return (
        f"n = {seeds} seed{'s' if seeds > 1 else ''}, {plan.agents - 1} agents in each, one per island; "
        f"{plan.held_out_per_family} held-out items per point; not smoothed. Thin: one agent; thick: "
        f"their mean; dotted: {ENOUGH:.0%} of the specialists' {results.level:.2f}"
    )


def _page(results: IslandResults) -> Iterator[str]:
    plan = results.campaign.plan
    yield "# What one island learns"
    yield ""
    yield (
        f"{plan.agents} agents from `{plan.model}` on {plan.islands} islands, {plan.rounds} rounds; the "
        f"first island's {plan.teachers} others are `{plan.teacher_model}`, which alone knows "
        f"`{results.campaign.hidden}`."
    )
    yield (
        f"Learnt: held-out pass@1 in it is at least {ENOUGH:.0%} of the specialists' {results.level:.2f}. "
        "Figures are of the agents beyond the first island; groups are of others, per agent and round."
    )
    yield ""
    yield from _table(COLUMNS, summary(results))
    yield ""
    yield from _table(
        ("islands", "seed", "island", "heard the first", "learnt", "way", "texts of it", "relayed", "last"),
        [
            (
                *(each.experiment, each.seed, each.island, _or_dash(each.heard), _or_dash(each.reached)),
                *(each.way, each.direct, each.relayed, f"{each.last:.2f}"),
            )
            for each in results.learners
        ],
    )
    yield ""
    yield "![Held-out pass@1 in the hidden family by round](islands.png)"


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
