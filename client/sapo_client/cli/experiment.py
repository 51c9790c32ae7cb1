"""`sapo lab run`, `attack`, `guard`, `islands`, `report`, `judge`: experiments on whether sharing helps."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.live.dashboard import show_link
from sapo_client.cli.options import Common, command, listed
from sapo_client.cli.render import Grid
from sapo_client.cli.rounds_bar import rounds_bar

if TYPE_CHECKING:
    from sapo_client.lab.arms import Arm
    from sapo_client.lab.judge import Candidate, JudgeResult
    from sapo_client.lab.plan import ExperimentPlan, Run

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the experiment.")]
PresetOption = Annotated[
    str,
    typer.Option("--preset", metavar="NAME", help="`quick`, `mixed`, `sizes`, `specialists` or `paper`."),
]
ArmsOption = Annotated[
    str | None, typer.Option("--arms", metavar="A,B", help="Arms by name, with commas; unset: all of them.")
]
SeedsOption = Annotated[
    str,
    typer.Option(
        "--seeds", metavar="N", help="Seeds 0 to N-1 of each arm; 3-4: these, to share them among machines."
    ),
]
HeldOutOption = Annotated[
    int | None,
    typer.Option("--held-out", min=1, metavar="N", help="Held-out items per family, not the preset's."),
]
RoundsOption = Annotated[
    int | None, typer.Option("--rounds", min=1, metavar="R", help="Rounds instead of the preset's.")
]
AgentsOption = Annotated[
    int | None, typer.Option("--agents", min=2, metavar="A", help="Agents instead of the preset's.")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="M,N",
        help="Initial model of every policy, as in `sapo join`; several with commas are taken in turn.",
    ),
]
FamiliesOption = Annotated[
    str | None, typer.Option("--families", metavar="F,G", help="Task families instead of the preset's.")
]
LevelOption = Annotated[
    str | None,
    typer.Option("--level", metavar="L", help="Level of the families: `nano`, `worked`, `easy` or `full`."),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--learning-rate", min=0.0, metavar="LR", help="Learning rate of AdamW; unset: the preset's."
    ),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option("--temperature", min=0.0, metavar="T", help="Temperature of sampling and of pass@1."),
]
DeviceOption = Annotated[str | None, typer.Option("--device", metavar="D", help="auto, cpu or cuda.")]
ProductsOption = Annotated[
    bool | None,
    typer.Option("--bfloat16/--float32", help="Type of matrix products; unset: the preset's."),
]
CanaryOption = Annotated[
    int | None,
    typer.Option("--canary", min=1, metavar="R", help="Rounds between checks of a canary; unset: no canary."),
]
AttackOption = Annotated[
    str | None,
    typer.Option(
        "--attack", metavar="A,B", help="Attacks by name, with commas; unset: all that the families allow."
    ),
]
TacticOption = Annotated[
    str | None,
    typer.Option("--tactic", metavar="A,B", help="Tactics by name, with commas; unset: all of them."),
]
AttackersOption = Annotated[
    str | None,
    typer.Option(
        "--attackers",
        metavar="N,M",
        help="Attacking accounts, with commas to try several numbers; unset: a quarter of all accounts.",
    ),
]
AloneRoundsOption = Annotated[
    int | None,
    typer.Option(
        "--alone-rounds",
        min=1,
        metavar="R",
        help="Rounds of the agents that train alone, which cost less; unset: as many as the others have.",
    ),
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, metavar="J", help="Runs at a time; unset: one per core.")
]
RayOption = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="Ray cluster to execute the runs on; `local` starts one."),
]


@dataclasses.dataclass(frozen=True)
class ExperimentOptions(Common):
    """Options of commands that run arms of a preset."""

    preset: PresetOption = "quick"
    arms: ArmsOption = None
    seeds: SeedsOption = "5"
    rounds: RoundsOption = None
    agents: AgentsOption = None
    model: ModelOption = None
    families: FamiliesOption = None
    level: LevelOption = None
    held_out: HeldOutOption = None
    learning_rate: RateOption = None
    temperature: TemperatureOption = None
    device: DeviceOption = None
    bfloat16: ProductsOption = None
    canary: CanaryOption = None
    jobs: JobsOption = None

    def plan(self) -> ExperimentPlan:
        """Return the preset's plan with what the options change.

        Raises:
            SapoError: a value that the plan cannot have.
        """
        from sapo_client.lab.plan import planned

        models = listed(self.model) or ()
        return planned(
            self.preset,
            rounds=self.rounds,
            agents=self.agents,
            model=models[0] if models else None,
            models=models if len(models) > 1 else None,
            families=listed(self.families),
            level=self.level,
            held_out_per_family=self.held_out,
            learning_rate=self.learning_rate,
            temperature=self.temperature,
            device=self.device,
            bfloat16=self.bfloat16,
            canary=self.canary,
        )

    def chosen_arms(self) -> tuple[Arm, ...]:
        """Return the named arms, by default all of them."""
        from sapo_client.lab.arms import ARMS, arms_named

        return arms_named(listed(self.arms) or list(ARMS))


def register(app: typer.Typer) -> None:
    """Register the commands."""
    for function in (run, attack, guard, islands, report, judge, page):
        command(app)(function)


def run(common: ExperimentOptions, out: OutOption, ray: RayOption = None) -> None:
    """Measure whether sharing helps: several arms mix the eight groups of an update differently.

    Each run, one per arm and seed, is a swarm in one process: the node's own gossip, admission, pool,
    verification, sampler and learner on an in-memory transport and a virtual clock. The same command resumes
    a killed experiment; on a CPU its curves are then the same to the last bit.
    """
    from sapo_client import extras
    from sapo_client.lab.plan import Run, seeds_of

    plan, chosen = common.plan(), common.chosen_arms()
    if extras.LAB.missing():  # the runs need none of it, and may take hours
        common.output.warn(f"`sapo lab report` will need {extras.LAB.provides}: {extras.LAB.command}")
    from sapo_client.lab.campaign import execute_runs  # loads PyTorch: arms are checked first
    from sapo_client.lab.simulate import manifest_of
    from sapo_client.lab.store import ExperimentStore

    runs = [Run(plan, arm, seed) for seed in seeds_of(common.seeds) for arm in chosen]
    store = ExperimentStore(out.resolve())
    store.create(plan, lambda: manifest_of(plan))
    done = {each: plan.rounds if store.is_whole(each) else 0 for each in runs}
    with rounds_bar(done, is_hidden=_is_hidden(common)) as (_, progress):
        if ray is None:
            execute_runs(store, runs, _jobs(common.jobs), progress)
        else:
            from sapo_client.lab.cluster.runs import conduct_on_cluster

            conduct_on_cluster(store, runs, progress, address=ray, jobs=common.jobs)
    _emit_whole(common, out, runs)


def _emit_whole(common: Common, out: Path, runs: Sequence[Run]) -> None:
    """Print how many runs are complete, and how to see them."""
    document = {"folder": str(out), "runs": [each.name for each in runs]}
    whole = "1 run is whole" if len(runs) == 1 else f"{len(runs)} runs are complete"
    common.output.emit(document, f"{whole}; `sapo lab report {quote(str(out))}` shows them")


def attack(
    common: ExperimentOptions,
    out: OutOption,
    attack: AttackOption = None,
    attackers: AttackersOption = None,
    alone_rounds: AloneRoundsOption = None,
) -> None:
    """Measure what attackers do to the swarm: every attack against every arm that shares.

    The same swarm without attackers, and agents that train alone, run for comparison. Attackers are further
    accounts with the node's own protocol and no model: they compose completions from the generator's answers.
    Writes attack.md with its pictures and CSV files; the same command resumes a killed campaign.
    """
    from sapo_client import extras
    from sapo_client.lab.plan import seeds_of

    extras.require(extras.LAB)  # before runs that take hours
    plan, chosen = common.plan(), common.chosen_arms()
    from sapo_client.lab.attackers.campaign import campaign_of  # PyTorch: as in ``run``
    from sapo_client.lab.attackers.report import write_attack_report

    names = listed(attack) or ()
    campaign = campaign_of(out.resolve(), plan, names, _numbers(attackers), alone_rounds)
    runs = campaign.runs(chosen, seeds_of(common.seeds))
    done = {run: run.plan.rounds if store.is_whole(run) else 0 for store, each in runs for run in each}
    with rounds_bar(done, is_hidden=_is_hidden(common)) as (_, progress):
        campaign.execute_runs(runs, _jobs(common.jobs), progress)
    page = write_attack_report(campaign)
    common.output.emit({"folder": str(out), "runs": len(done), "page": str(page)}, f"wrote {page}")


def guard(
    common: Common,
    out: OutOption,
    tactic: TacticOption = None,
    seeds: SeedsOption = "2",
    rounds: RoundsOption = None,
    canary: CanaryOption = None,
    held_out: HeldOutOption = None,
    jobs: JobsOption = None,
) -> None:
    """Measure what gets past promotion and canary: one learner beside accounts that know both.

    Two honest accounts and three attackers show worked solutions to a learner without a swarm; its training,
    promotion, canary and judgement of steps are a node's. Attackers teach one family really and follow their
    tactic in the other one: `honest` (no attack), `ruin` (steps of similar questions), `erode` (in every
    second text), `wait` (once the candidate has become the policy), `pulse` (then only in the first half of
    the rounds between two checks), `plant` (a false sum in front of right steps, so that the canary goes
    back) and `early` (the same, but only until the candidate is the policy). Prints held-out pass@1 of both
    families and writes guard.csv; the same command resumes. One to two minutes of a core for each run.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sapo_client.lab.attackers.guarded_learner import GuardPlan
    from sapo_client.lab.attackers.guarded_runs import COLUMNS, execute_guards, table, tactics_named
    from sapo_client.lab.plan import seeds_of

    given = {"rounds": rounds, "canary": canary, "held_out": held_out}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    plan = dataclasses.replace(GuardPlan(), **changes)
    root = out.resolve()
    plans = [
        dataclasses.replace(plan, tactic=name, seed=seed)
        for seed in seeds_of(seeds)
        for name in tactics_named(listed(tactic) or ())
    ]
    columns = (TextColumn("{task.completed} of {task.total} runs"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=_is_hidden(common)) as bar:
        task = bar.add_task("guard", total=len(plans))
        execute_guards(root, plans, _jobs(jobs), lambda _plan: bar.advance(task))
    rows = [tuple(row) for row in table(root, plans)]
    document = {
        "format": "sapo/lab-guard/1",
        "folder": str(out),
        "rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
    }
    common.output.emit(document, Grid(COLUMNS, rows))


def islands(
    common: Common,
    out: OutOption,
    seeds: SeedsOption = "1",
    rounds: RoundsOption = None,
    jobs: JobsOption = None,
    so_far: Annotated[bool, typer.Option("--so-far", help="Run nothing: report what is done.")] = False,
) -> None:
    """Measure how fast what one island knows reaches seven others, only by visits.

    For comparison the same agents run on one topic, and on islands without visits. Accounts stay on their
    islands; what a node visits follows from its key, as in any swarm. Writes islands.md, islands.csv and
    islands.png; the same command resumes a killed experiment. About twenty minutes of a core for each of the
    three, and seed.
    """
    from sapo_client import extras

    extras.require(extras.LAB)  # before runs that take an hour
    from sapo_client.lab.islands.campaign import PLAN, IslandCampaign
    from sapo_client.lab.islands.report import COLUMNS, IslandResults, document, summary, write_islands
    from sapo_client.lab.plan import seeds_of

    campaign = IslandCampaign(
        out.resolve(), PLAN if rounds is None else dataclasses.replace(PLAN, rounds=rounds), seeds_of(seeds)
    )
    runs = [(store, run) for store, each in campaign.runs() for run in each]
    done = {run: run.plan.rounds if store.is_whole(run) else 0 for store, run in runs}
    if not so_far:
        with rounds_bar(done, is_hidden=_is_hidden(common)) as (_, progress):
            campaign.execute_runs(_jobs(jobs), progress)
    page = write_islands(campaign)
    results = IslandResults(campaign)
    common.output.emit(document(results), Grid(COLUMNS, summary(results)), f"wrote {page}")


def _numbers(text: str | None) -> tuple[int, ...]:
    """Return the numbers of an option.

    Raises:
        SapoError: something else is among them.
    """
    from sapo_client.errors import ExitCode, SapoError

    try:
        return tuple(map(int, listed(text) or ()))
    except ValueError as error:
        raise SapoError(
            f"{text!r} are not numbers", hint="write them as 2 or 2,5", exit_code=ExitCode.USAGE
        ) from error


def _jobs(jobs: int | None) -> int:
    """Return how many runs there are at a time: by default one per core."""
    return jobs or os.cpu_count() or 1


def _is_hidden(common: Common) -> bool:
    return common.no_progress or common.quiet or common.as_json


def report(
    common: Common,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an experiment.")],
) -> None:
    """Write an experiment's tables and plots; works while other runs continue."""
    from sapo_client import extras

    extras.require(extras.LAB)  # before the tables are written
    from sapo_client.lab.report import write_report
    from sapo_client.lab.store import ExperimentStore

    page = write_report(ExperimentStore(folder))
    common.output.emit({"page": str(page)}, f"wrote {page}")


def judge(
    common: Common,
    swarm: Annotated[
        list[Path], typer.Option("--swarm", metavar="DIR", help="Data directory of a node; repeatable.")
    ],
    isolated: Annotated[
        list[Path] | None,
        typer.Option(
            "--isolated", metavar="DIR", help="Data directory of a node that trained alone; repeatable."
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="PNG of the cumulative rewards.")
    ] = None,
) -> None:
    """Score nodes' answers to the judge's questions again, and compare swarm with isolated.

    A node answers when `judge.every` is set: once per question, on tasks that follow from the beacon. Exit 7
    if a node recorded another question or reward than this command computes; answers that a busy machine
    could not score count as undecided.
    """
    from dataclasses import asdict

    from sapo_client import extras
    from sapo_client.errors import ExitCode
    from sapo_client.lab.judge import compare, examine
    from sapo_client.lab.plot import draw_judged

    if picture is not None:
        extras.require(extras.LAB)  # before the answers are scored again, which takes long
    found = examine([*swarm, *(isolated or ())])
    ours, alone = found[: len(swarm)], found[len(swarm) :]
    verdict = compare(ours, alone)
    groups = {"swarm": ours, "isolated": alone}
    if picture is not None:
        draw_judged(
            {name: [each.cumulative(verdict.questions) for each in group] for name, group in groups.items()},
            picture,
        )
    rows = [_judged(name, each, verdict.questions) for name, group in groups.items() for each in group]
    document = {
        "format": "sapo/lab-judge/1",
        **asdict(verdict),
        "nodes": [dict(zip(JUDGED_COLUMNS, row, strict=True)) for row in rows],
    }
    common.output.emit(document, Grid(JUDGED_COLUMNS, rows), *_summary_lines(verdict))
    raise typer.Exit(ExitCode.VERIFICATION if any(each.refused for each in found) else ExitCode.DONE)


JUDGED_COLUMNS = ("group", "node", "questions", "right", "pass@1", "refused", "undecided")


def _judged(group: str, node: Candidate, questions: int) -> tuple[str, str, int, float, float, int, int]:
    right = sum(node.rewards[:questions])
    return group, str(node.folder), questions, right, right / questions, node.refused, node.undecided


def _summary_lines(verdict: JudgeResult) -> Iterator[str]:
    for name, each in (("swarm", verdict.swarm), ("isolated", verdict.isolated)):
        if each is not None:
            width = "" if each.half_width is None else f" ± {each.half_width:.3f}"
            nodes = "1 node" if each.seeds == 1 else f"{each.seeds} nodes"
            yield f"{name}: pass@1 {each.mean:.3f}{width} over {nodes}, {verdict.questions} questions each"


def page(
    common: Common,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the experiment.")],
) -> None:
    """Serve a page over the arms of an experiment, running or finished, until Ctrl-C; prints its link."""
    from sapo_client.lab.live.page import serve_experiment

    serve_experiment(folder, show=partial(show_link, common))
