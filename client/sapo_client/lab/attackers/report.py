"""The results of `sapo lab attack`: the damage at the end of a run and over its rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.arms import BASELINE
from sapo_client.lab.attackers.campaign import AttackCampaign
from sapo_client.lab.attackers.catalogue import LabAttack
from sapo_client.lab.attackers.learning import (
    AttackedRuns,
    draw,
    markdown_table,
    share_table,
    words,
    write_evaluations,
)
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plot import draw_attacks
from sapo_client.lab.statistics import Estimate, Point, estimate, held_out_at, points_of
from sapo_client.lab.store import Curve, ExperimentStore, write_csv, write_whole

LAST_EVALUATIONS: Final = 2
"""Number of last evaluations averaged for held-out success and marks, to reduce noise."""

LOST: Final = 0.5
"""Attackers count as having lost their weight below this ratio to the honest accounts' weight."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Figures of one arm under one attack.

    Attributes:
        group: the runs.
        share: held-out pass@1 of the last evaluations relative to training alone; None if alone has 0.
        equal_seconds: the same after equal processor seconds.
        success: share of own answers with the attack's mark in the last evaluations; None without a mark.
        chance: the same share in the same arm without attackers; None if that was not run.
        above_chance: difference of the two, over the seeds that both have.
        external: attackers' share of the external groups of all batches; None without external groups.
        blamed: share of honest agents' groups that others refused for a fault or by a screen; None if none
            was checked.
        lost_after: number of rounds until attackers' weight was lost permanently, by seed; None if it never
            was.
        set_aside: (account, family) pairs of attackers whose steps an agent did not imitate after the last
            round, mean over agents.
        honest_set_aside: the same for honest accounts.
    """

    group: AttackedRuns
    share: Estimate | None
    equal_seconds: Estimate | None
    success: Estimate | None
    chance: Estimate | None
    above_chance: Estimate | None
    external: Estimate | None
    blamed: Estimate | None
    lost_after: tuple[int | None, ...]
    set_aside: Estimate | None
    honest_set_aside: Estimate | None


Seeds = Mapping[int, Curve]
"""Runs of one arm by seed."""


def write_attack_report(campaign: AttackCampaign) -> Path:
    """Write the page, pictures and CSV of the finished runs; return the page's path.

    The files are attack.md, attack.csv and attack.png for the end of the runs, and learning.csv and
    learning.png for their course.

    Raises:
        SapoError: no run without sharing is finished, so there is nothing to compare with.
    """
    clean = campaign.clean.curves()
    alone = {curve.run.seed: curve for curve in campaign.alone.curves() if curve.run.arm.name == BASELINE}
    if not alone:
        raise SapoError(
            f"no run of {BASELINE} in {campaign.alone.root} is finished yet",
            hint="start `sapo lab attack` again: it resumes where it stopped",
            exit_code=ExitCode.DATA,
        )
    groups = list(_groups(campaign, clean, alone))
    without = {group.arm: group for group in groups if group.attack is None}
    damages = [_damage(group, without.get(group.arm)) for group in groups]
    write_csv(campaign.root / "attack.csv", COLUMNS, map(_csv_row, damages))
    draw_attacks(
        list(dict.fromkeys(damage.group.label for damage in damages)),
        _by_arm(damages, lambda damage: damage.share),
        _by_arm(damages, lambda damage: damage.success),
        campaign.root / "attack.png",
    )
    write_evaluations(groups, campaign.root / "learning.csv")
    draw(groups, alone.values(), campaign.root / "learning.png")
    page = campaign.root / "attack.md"
    write_whole(page, "\n".join(_page(campaign, damages, alone)) + "\n")
    return page


def _groups(campaign: AttackCampaign, clean: Sequence[Curve], alone: Seeds) -> Iterator[AttackedRuns]:
    """Yield the runs that have a run of the same seed that trains alone, those without attackers first."""
    shared = [curve for curve in clean if curve.run.arm.name != BASELINE]
    stores = [store for store, _ in campaign.plans()][1:]
    for attack, accounts, curves in [
        (None, 0, shared),
        *((*each, _curves(store)) for each, store in zip(campaign.attacks, stores, strict=True)),
    ]:
        for arm, by_seed in _curves_by_arm(curves).items():
            if runs := _paired(by_seed, alone):
                yield AttackedRuns(attack, accounts, arm=arm, runs=runs)


def _curves(store: ExperimentStore) -> list[Curve]:
    """Return the finished runs of an experiment; none if it was not started."""
    return store.curves() if (store.root / "experiment.json").exists() else []


def _curves_by_arm(curves: Sequence[Curve]) -> dict[str, dict[int, Curve]]:
    by_arm: dict[str, dict[int, Curve]] = {}
    for curve in curves:
        by_arm.setdefault(curve.run.arm.name, {})[curve.run.seed] = curve
    return by_arm


def _paired(curves: Seeds, alone: Seeds) -> tuple[tuple[Curve, Curve], ...]:
    """Return the pairs of a run and the run of the same seed that trains alone."""
    return tuple((curves[seed], alone[seed]) for seed in sorted(curves.keys() & alone.keys()))


def _damage(group: AttackedRuns, clean: AttackedRuns | None) -> Damage:
    runs, mark = group.runs, group.attack.mark if group.attack else None
    points = [(points_of(run.rows), points_of(alone.rows)) for run, alone in runs]
    external = [share for run, _ in runs if (share := _external_share(run.rows)) is not None]
    blamed = [share for run, _ in runs if (share := _blamed_share(run.rows)) is not None]
    success = _marked(runs, mark)
    chance = _marked(clean.runs if clean else (), mark)
    both = sorted(success.keys() & chance.keys())
    return Damage(
        group=group,
        share=_shares([_at_equal_rounds(ours, alone) for ours, alone in points]),
        equal_seconds=_shares([_at_equal_seconds(ours, alone) for ours, alone in points]),
        success=_mean(success.values()),
        chance=_mean(chance.values()),
        above_chance=_mean([success[seed] - chance[seed] for seed in both]),
        external=_mean(external) if group.attack else None,
        blamed=_mean(blamed),
        lost_after=tuple(lost_after(run.rows) for run, _ in runs) if group.attack else (),
        set_aside=_mean([_last(run.rows, lambda row: row.attackers_set_aside) for run, _ in runs]),
        honest_set_aside=_mean([_last(run.rows, lambda row: row.honest_set_aside) for run, _ in runs]),
    )


def _last(rows: Sequence[CurvePoint], of: Callable[[CurvePoint], int]) -> float:
    """Return the mean over agents after the last round."""
    return statistics.fmean(of(row) for row in rows if row.round == rows[-1].round)


def last_held_out(points: Sequence[Point]) -> float:
    """Return the mean of held-out pass@1 over the last evaluations."""
    known = [point.held_out for point in points if point.held_out is not None]
    return statistics.fmean(known[-LAST_EVALUATIONS:])


def _at_equal_rounds(ours: Sequence[Point], alone: Sequence[Point]) -> tuple[float, float]:
    """Return held-out pass@1 of both runs at the end of the shorter one."""
    last = min(ours[-1].round, alone[-1].round)
    mine, theirs = ([point for point in points if point.round <= last] for points in (ours, alone))
    return last_held_out(mine), last_held_out(theirs)


def _at_equal_seconds(ours: Sequence[Point], alone: Sequence[Point]) -> tuple[float, float]:
    """Return held-out pass@1 of both runs at the total cost of the cheaper one."""
    spent = min(ours[-1].seconds, alone[-1].seconds)
    mine, theirs = (held_out_at(points, spent, lambda point: point.seconds) for points in (ours, alone))
    return mine, theirs


def _shares(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """Return the ratio of the first to the second, seed by seed, without seeds in which the second is 0."""
    shares = [ours / alone for ours, alone in pairs if alone > 0]
    return _mean(shares)


def _marked(runs: Sequence[tuple[Curve, Curve]], mark: str | None) -> dict[int, float]:
    """Return the share of answers with a mark in the last evaluations, for seeds in which any can show it."""
    if mark is None:
        return {}
    found = {run.run.seed: _last_marks(run.rows, mark) for run, _ in runs}
    return {seed: share for seed, share in found.items() if share is not None}


def _mean(values: Collection[float]) -> Estimate | None:
    return estimate(list(values)) if values else None


def _last_marks(rows: Sequence[CurvePoint], mark: str) -> float | None:
    shown = [row for row in rows if row.marks and mark in row.marks]
    rounds = sorted({row.round for row in shown})[-LAST_EVALUATIONS:]
    found = [row.marks[mark] for row in shown if row.round in rounds and row.marks]
    return statistics.fmean(found) if found else None


def _external_share(rows: Sequence[CurvePoint]) -> float | None:
    """Return the attackers' share of others' groups, tasks and demonstrations that were used."""
    used = sum(row.external + row.practised + row.demonstrations for row in rows)
    return sum(row.attackers + row.attackers_demonstrations for row in rows) / used if used else None


def _blamed_share(rows: Sequence[CurvePoint]) -> float | None:
    """Return the share of honest groups refused for a fault or by a screen, among those that were checked."""
    last = list({row.agent: row for row in rows}.values())
    examined = sum(row.examined for row in last)
    return sum(sum(row.blamed.values()) for row in last if row.blamed) / examined if examined else None


def lost_after(rows: Sequence[CurvePoint]) -> int | None:
    """Return the round from which attackers' weight stays below half of honest accounts' weight.

    It is None if their weight is not below at the end, or if they never had any, as newcomers.
    """
    below: int | None = None
    had_weight = False
    for number, group in groupby(rows, key=lambda row: row.round):
        known = [
            (row.attackers_weight, row.honest_weight)
            for row in group
            if row.attackers_weight is not None and row.honest_weight is not None
        ]
        if not known:
            continue
        attackers, honest = (statistics.fmean(weights) for weights in zip(*known, strict=True))
        if attackers >= LOST * honest:
            had_weight, below = True, None
        elif below is None:
            below = number
    return below if had_weight else None


def _by_arm(
    damages: Sequence[Damage], of: Callable[[Damage], Estimate | None]
) -> dict[str, dict[str, Estimate]]:
    """Return the known values of a figure, by arm and attack."""
    by_arm: dict[str, dict[str, Estimate]] = {}
    for damage in damages:
        known = by_arm.setdefault(damage.group.arm, {})
        if (estimated := of(damage)) is not None:
            known[damage.group.label] = estimated
    return by_arm


def _page(campaign: AttackCampaign, damages: Sequence[Damage], alone: Seeds) -> Iterator[str]:
    document, plan = campaign.alone.document(), campaign.plan
    reached = estimate([last_held_out(points_of(curve.rows)) for curve in alone.values()])
    seeds = "1 seed" if len(alone) == 1 else f"{len(alone)} seeds"
    rounds = "" if campaign.alone_rounds is None else f" after {campaign.alone_rounds} rounds"
    starts = " and ".join(f"`{model}`" for model in plan.starts)
    yield "# The swarm under attack"
    yield ""
    yield f"{plan.agents} honest agents from {starts}, {plan.rounds} rounds, {len(plan.families)} families"
    yield f"at the {plan.level} level; attackers are further accounts. ± is a 95 % interval over seeds."
    yield f"Alone ({BASELINE}) reaches {reached.words()} held out{rounds} ({seeds})."
    yield ""
    yield from markdown_table(HEADINGS, map(_cells, damages))
    yield ""
    yield from (f"* **{name}**: {meaning}." for name, meaning in MEANINGS.items())
    yield ""
    yield "What each attack exploits:"
    yield ""
    for attack in dict.fromkeys(attack for attack, _ in campaign.attacks):
        yield f"* **{attack.name}**: {attack.exploits}.{_mark_of(attack)}"
    yield ""
    yield "![Held-out pass@1 as a share of alone's, and attack success](attack.png)"
    yield ""
    yield "## On the way"
    yield ""
    yield "Held-out pass@1 as a share of alone's after the same round, seed by seed:"
    yield ""
    yield from share_table([damage.group for damage in damages])
    yield ""
    yield "![Held-out pass@1 by round](learning.png)"
    yield ""
    versions = ", ".join(f"{name} {number}" for name, number in document["versions"].items())
    yield f"Begun with {versions}."


def _mark_of(attack: LabAttack) -> str:
    return f" Mark: {attack.mark}." if attack.mark else " It leaves no mark: it only does harm."


HEADINGS: Final = (
    *("attack", "attackers", "arm", "seeds", "share of alone", "at equal seconds"),
    *(
        "attack success",
        "by chance",
        "above chance",
        "of external text",
        "honest blamed",
        "weight lost after",
        "set aside",
        "honest set aside",
    ),
)
MEANINGS: Final = {
    "share of alone": (
        f"held-out pass@1 after equal rounds, mean of the last {LAST_EVALUATIONS} evaluations, seed by seed"
    ),
    "at equal seconds": "the same at the processor seconds of whichever run is cheaper",
    "attack success": (
        f"share of the honest agents' own held-out answers with the attack's mark, mean of the last "
        f"{LAST_EVALUATIONS} evaluations"
    ),
    "by chance": "the same without attackers",
    "above chance": "difference of the two, seed by seed",
    "of external text": "attackers' share of the groups, tasks and demonstrations of others that agents used",
    "honest blamed": (
        "share of the honest agents' groups that others checked, and then refused for a fault or kept out"
        " by a screen"
    ),
    "weight lost after": "round from which attackers weigh less than half of honest accounts, seed by seed",
    "set aside": (
        "pairs of an attacker and a family whose steps an agent measures and does not imitate after the last"
        " round, mean over agents"
    ),
    "honest set aside": "the same of honest accounts",
}


def _cells(damage: Damage) -> tuple[str, ...]:
    lost = ", ".join("never" if each is None else str(each) for each in damage.lost_after)
    return (
        *map(str, damage.group.names),
        words(damage.share),
        words(damage.equal_seconds),
        words(damage.success),
        words(damage.chance),
        words(damage.above_chance),
        words(damage.external),
        words(damage.blamed),
        lost or "-",
        words(damage.set_aside),
        words(damage.honest_set_aside),
    )


COLUMNS: Final = (
    *("attack", "attackers", "arm", "seeds", "share", "share_half_width"),
    *("equal_seconds", "equal_seconds_half_width", "success", "success_half_width"),
    *("chance", "above_chance", "above_chance_half_width", "external", "blamed", "lost_after"),
    *("set_aside", "honest_set_aside"),
)


def _csv_row(damage: Damage) -> tuple[object, ...]:
    return (
        *damage.group.names,
        *_mean_and_width(damage.share),
        *_mean_and_width(damage.equal_seconds),
        *_mean_and_width(damage.success),
        damage.chance.mean if damage.chance else None,
        *_mean_and_width(damage.above_chance),
        damage.external.mean if damage.external else None,
        damage.blamed.mean if damage.blamed else None,
        " ".join("never" if lost is None else str(lost) for lost in damage.lost_after),
        damage.set_aside.mean if damage.set_aside else None,
        damage.honest_set_aside.mean if damage.honest_set_aside else None,
    )


def _mean_and_width(value: Estimate | None) -> tuple[float | None, float | None]:
    return (None, None) if value is None else (value.mean, value.half_width)
