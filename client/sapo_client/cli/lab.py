"""`sapo lab`: experiments on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client import extras
from sapo_client.cli import experiment
from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid
from sapo_client.errors import ExitCode, SapoError

if TYPE_CHECKING:
    from sapo_client.lab.economy import EconomyRow
    from sapo_client.lab.ladders.swarm import LadderAttackResult, LadderEpoch
    from sapo_client.lab.quorum.simulation import QuorumOutcome
    from sapo_client.lab.quorum.strategies import QuorumStrategy
    from sapo_client.lab.scale.plan import ScalePlan
    from sapo_client.lab.scale.report import ScaleReport

ShareOption = Annotated[
    float | None,
    typer.Option(min=0.0, max=1.0, metavar="S", help="Share of this author in the training text."),
]

NodesOption = Annotated[int, typer.Option("--nodes", min=8, metavar="N", help="Nodes of the swarm.")]
IslandsOption = Annotated[
    str,
    typer.Option(
        "--islands",
        metavar="K",
        help="Islands of the swarm, a power of two; follow: as many as --islands follow makes.",
    ),
]
SampleOption = Annotated[
    int, typer.Option("--sample", min=0, metavar="M", help="Islands to simulate with all members; 0 for all.")
]
EpochsOption = Annotated[int, typer.Option("--epochs", min=1, metavar="E", help="Epochs to simulate.")]
EpochSecondsOption = Annotated[
    int, typer.Option("--epoch-seconds", min=20, metavar="T", help="Virtual length of an epoch.")
]
ChurnOption = Annotated[
    float, typer.Option("--churn", min=0, max=1, metavar="S", help="Share of nodes that leaves in an epoch.")
]
PeriodOption = Annotated[
    int,
    typer.Option(
        "--period",
        min=2,
        max=4096,
        metavar="E",
        help="Epochs for which an account has one home, and a node one island to visit.",
    ),
]
SybilsOption = Annotated[
    float, typer.Option("--sybils", min=0, max=0.9, metavar="S", help="Share of one attacker's accounts.")
]
NatOption = Annotated[
    float,
    typer.Option(
        "--nat",
        min=0,
        max=0.9,
        metavar="S",
        help="Share of nodes to which no other node can connect (behind NAT).",
    ),
]
LossOption = Annotated[
    float, typer.Option("--loss", min=0, max=0.9, metavar="S", help="Share of packets that get lost.")
]
RateOption = Annotated[
    float, typer.Option("--rate", min=0.01, metavar="R", help="Groups that an account makes per second.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Folder for report.json and picture.png.")
]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Experiments on this machine.")


@app.callback()
def root() -> None:
    """Experiments on this machine."""


@command(app)
def pretrain(
    common: Common,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write the policy to.")],
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="MODEL", help="Initial policy, as in `sapo join --model`."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", metavar="NAME", help="Packaged policy whose recipe to follow."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps instead of the recipe's.")
    ] = None,
    chatty: ShareOption = None,
    guesser: ShareOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of every random stream.")] = 0,
) -> None:
    """Train a packaged policy from scratch, on generated tasks only.

    The same command with the same seed on the same machine writes the same file. Recipes are `bundled` (the
    default; half an hour of one core), `bundled-chatty`, `bundled-small`, `specialist-a`, `specialist-b` and
    `ladders`, whose policy is sometimes right at every level of the nano tasks (minutes). With --from, an
    existing policy trains for two minutes on text with other shares of authors: it then answers correctly
    less often, but has learned almost as much.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sapo_client.lab import pretrain as making

    base = making.recipe_named(recipe or ("bundled" if start is None else "bundled-chatty"))
    if start is not None:
        base = replace(base, start=start)
    shares = {"chatty": chatty, "guesser": guesser}
    authors = replace(base.authors, **{name: share for name, share in shares.items() if share is not None})
    chosen = replace(base, steps=steps or base.steps, authors=authors)
    columns = (TextColumn("step {task.completed} of {task.total}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3f}"), disable=common.no_progress) as bar:
        task = bar.add_task("pretrain", total=chosen.steps, loss=float("nan"))
        making.pretrain(
            out,
            chosen,
            seed=seed,
            progress=lambda now: bar.update(task, completed=now.step, loss=now.loss),
        )
    common.output.emit({"folder": str(out), "seed": seed, "recipe": asdict(chosen)}, f"wrote {out}")


@command(app)
def economy(
    common: Common,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random numbers.")] = 0,
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, metavar="E", help="Number of simulated epochs.")
    ] = 24,
    honest: Annotated[
        int,
        typer.Option("--honest", min=1, metavar="N", help="Honest accounts besides those of the strategy."),
    ] = 8,
    point: Annotated[
        float, typer.Option("--point", min=0, help="Value of a point, in generated rollouts.")
    ] = 4.0,
    million_gas: Annotated[
        float, typer.Option("--million-gas", min=0, help="Price of a million gas, in generated rollouts.")
    ] = 100.0,
    auditors: Annotated[
        bool,
        typer.Option(
            "--auditors", help="Show what auditors can do to a ledger; the other options are unused."
        ),
    ] = False,
    row: Annotated[
        str, typer.Option("--row", metavar="TEXT", help="With --auditors: rows whose name holds the text.")
    ] = "",
) -> None:
    """Simulate honest and dishonest strategies under the shipped rules, and show which are profitable.

    Profit is in generated rollouts: the value of points, less rollouts, messages and gas. Takes a second;
    with --auditors it plays the real contracts on an embedded chain, and takes one to two minutes.
    """
    if auditors:
        common.output.emit(*_auditors(row))
        return
    from sapo_client.lab.economy import STRATEGIES, EconomyWorld, Prices, Rules, compare

    rules, prices, world = Rules(), Prices(point, million_gas), EconomyWorld(honest, epochs)
    rows = compare(STRATEGIES, rules=rules, prices=prices, world=world, seed=seed)
    document = {
        "format": "sapo/lab/economy/1",
        "seed": seed,
        "rules": asdict(rules),
        "prices": asdict(prices),
        "world": asdict(world),
        "strategies": [_strategy_document(row) for row in rows],
    }
    columns = ("strategy", "points", "cost", "profit", "per cost", "against honest", "pays", "others lose")
    common.output.emit(document, Grid(columns, [_strategy_cells(row) for row in rows]))


def _auditors(text: str) -> tuple[dict[str, Any], Grid]:
    from sapo_client.lab.quorum.strategies import QUORUM_STRATEGIES

    chosen = [strategy for strategy in QUORUM_STRATEGIES if text in strategy.name]
    if not chosen:
        raise SapoError(
            f"no row's name holds {text!r}",
            hint="leave out --row to see all rows",
            exit_code=ExitCode.USAGE,
        )
    rows = [(strategy, strategy.play()) for strategy in chosen]
    points, bonds = ("final", "earned", "paid", "player's"), ("bonds lost", "player's bonds")
    columns = ("auditors", *points, *bonds, "auditors' gas")
    document = {
        "format": "sapo/lab/auditors/1",
        "rows": [{"name": strategy.name, **asdict(outcome)} for strategy, outcome in rows],
    }
    return document, Grid(columns, [auditors_cells(*each) for each in rows])


def auditors_cells(strategy: QuorumStrategy, outcome: QuorumOutcome) -> tuple[str | int, ...]:
    """Return a row of the table of auditors' strategies."""
    return (
        strategy.name,
        f"{outcome.final} of {strategy.plan.epochs}",
        outcome.counted,
        outcome.paid,
        outcome.player_paid,
        outcome.bonds_lost,
        outcome.player_bonds_lost,
        outcome.epoch_gas,
    )


def _strategy_document(row: EconomyRow) -> dict[str, Any]:
    outcome = row.outcome
    return {
        "name": outcome.strategy.name,
        "points": outcome.points,
        "cost": outcome.cost,
        "profit": outcome.profit,
        "profit_per_cost": outcome.profit_per_cost,
        "against_honest": row.against_honest,
        "others_lose": row.others_lose,
        "epochs_posted": outcome.posted,
    }


def _strategy_cells(row: EconomyRow) -> tuple[str | int, ...]:
    outcome = row.outcome
    return (
        outcome.strategy.name,
        outcome.points,
        f"{outcome.cost:.0f}",
        f"{outcome.profit:.0f}",
        f"{outcome.profit_per_cost:.2f}",
        f"{row.against_honest:+.2f}",
        row.pays,
        f"{row.others_lose:.0%}",
    )


@command(app)
def simulate(
    common: Common,
    nodes: NodesOption = 100,
    islands: IslandsOption = "follow",
    sample: SampleOption = 0,
    epochs: EpochsOption = 2,
    epoch_seconds: EpochSecondsOption = 60,
    churn: ChurnOption = 0.2,
    period: PeriodOption = 8,
    sybils: SybilsOption = 0.3,
    nat: NatOption = 0.6,
    loss: LossOption = 0.02,
    rate: RateOption = 0.4,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of every random stream.")] = 0,
    out: OutOption = None,
) -> None:
    """Simulate many nodes in virtual time, with the real admission, pool, sampler and peer scores.

    Every node has its own engine, and checks every signature. The links, the mesh, peer discovery and the
    policies (tables of answers) are simulated. Only islands in the sample are simulated, and visits to others
    are made to one of them; the sample contains the island with most Sybils, the largest and the smallest.
    Every missed or late delivery of a group to a node is reported with its cause. A node takes about 5 ms of
    a core per second of virtual time.
    """
    from sapo_client.lab.scale.goals import goals
    from sapo_client.lab.scale.plan import ScalePlan

    count = _count_of_islands(islands, nodes)
    if sample and sample < 3 <= count:
        raise SapoError(
            "a sample has at least three islands",
            hint="for example --nodes 1000 --islands 64 --sample 8",
            exit_code=ExitCode.CONFIG,
        )
    if out is not None:
        extras.require(extras.LAB)
    plan = ScalePlan(
        nodes=nodes,
        islands=count,
        simulated=sample,
        epochs=epochs,
        epoch_seconds=epoch_seconds,
        churn=churn,
        period_epochs=period,
        sybils=sybils,
        nat=nat,
        groups_per_second=rate,
        loss=loss,
        seed=seed,
    )
    report = _simulated(plan, shows_progress=not common.no_progress)
    document = {
        "format": "sapo/lab/simulate/1",
        **asdict(report),
        "goals": [asdict(each) for each in goals(report)],
    }
    if out is not None:
        _write(report, document, out)
    tables = (_goals(report), _figures(report), _causes(report), _batches(report), _islands(report))
    common.output.emit(document, *tables)


def _simulated(plan: ScalePlan, *, shows_progress: bool) -> ScaleReport:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sapo_client.lab.scale.report import simulate_scale

    columns = (TextColumn("second {task.completed:.0f} of {task.total:.0f}"), BarColumn())
    with Progress(*columns, TimeRemainingColumn(), disable=not shows_progress) as bar:
        task = bar.add_task("simulate", total=float(plan.epochs * plan.epoch_seconds))
        return simulate_scale(plan, lambda second: bar.update(task, completed=second))


def _count_of_islands(wanted: str, nodes: int) -> int:
    from sapo_client.founding.islands import FOLLOW
    from sapo_client.lab.scale.plan import islands_that_follow

    if wanted == FOLLOW:
        return islands_that_follow(nodes)
    count = int(wanted) if wanted.isdecimal() else 0
    if count < 1 or count & (count - 1):
        raise SapoError(
            f"--islands is a power of two or {FOLLOW!r}, not {wanted!r}",
            hint="for example --nodes 1000 --islands follow",
            exit_code=ExitCode.CONFIG,
        )
    return count


def _write(report: ScaleReport, document: dict[str, Any], out: Path) -> None:
    from sapo_client.lab.scale.picture import draw_scale

    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    draw_scale(report, out / "picture.png")


def _figures(report: ScaleReport) -> Grid:
    mega, percent = 1e6, 100
    rows = [
        (
            "upload, mean and highest",
            f"{report.mean_upload / mega:.2f}, {report.worst_upload / mega:.2f} Mbit/s",
        ),
        (
            "download, mean and highest",
            f"{report.mean_download / mega:.2f}, {report.worst_download / mega:.2f} Mbit/s",
        ),
        ("new messages, copies of each", f"{report.new_messages:.1f} per second, {report.copies:.1f}"),
        ("processor, simulator included", f"{report.processor * percent:.2f} % of a core"),
        ("processor of libp2p, not simulated", f"{report.transport_processor * percent:.2f} % of a core"),
        ("memory per node", f"{report.memory_bytes / mega:.1f} MB"),
        ("groups that reach 99 % of their island", f"{report.delivered:.2%} of {report.groups:,}"),
        ("nodes reached", f"{report.reached:.3%}"),
        ("delay, half and 99 %", f"{report.median_delay:.2f}, {report.late_delay:.2f} s"),
        ("lowest score of an honest peer", f"{report.worst_score:.1f}"),
        ("faults at honest nodes", f"{report.faults}"),
        ("Sybils in batches, worst island", f"{report.worst_share:.1%}"),
        ("virtual and real time", f"{report.virtual_seconds:.0f}, {report.wall_seconds:.0f} s"),
    ]
    return Grid(("per honest node", f"{report.plan.nodes:,} nodes"), rows)


def _goals(report: ScaleReport) -> Grid:
    from sapo_client.lab.scale.goals import goals

    rows = [(one.text, one.value, one.target, "met" if one.is_met else "missed") for one in goals(report)]
    return Grid(("goal", f"{report.plan.nodes:,} nodes", "asked", ""), rows)


def _causes(report: ScaleReport) -> Grid:
    kinds = (("missed", report.missed), ("late", report.late))
    rows = [(kind, cause.text, cause.count, cause.new) for kind, causes in kinds for cause in causes]
    return Grid(("group and node", "cause", "pairs", "of new nodes"), rows)


def _batches(report: ScaleReport) -> Grid:
    rows = [
        (
            one.standing,
            "none" if one.cap is None else f"{one.cap:.0%}",
            f"{one.share:.1%}",
            f"{one.of_groups:.0%} of {one.groups}",
            one.violations,
        )
        for one in report.batches
    ]
    columns = ("Sybils, worst island", "cap", "share of places", "of groups drawn", "above a cap")
    return Grid(columns, rows)


def _islands(report: ScaleReport) -> Grid:
    rows = [
        (
            one.island,
            one.accounts,
            f"{one.sybils:.0%}",
            "" if one.in_batches is None else f"{one.in_batches:.0%}",
            "" if one.of_others is None else f"{one.of_others:.0%}",
            f"{one.reached:.2%}",
        )
        for one in report.islands
    ]
    columns = ("island", "accounts", "Sybils", "in batches", "of others' groups", "nodes reached")
    return Grid(columns, rows)


@command(app)
def difficulty(
    common: Common,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random numbers.")] = 0,
    epochs: Annotated[int, typer.Option("--epochs", min=2, metavar="E", help="Number of epochs.")] = 16,
    attack: Annotated[
        bool, typer.Option("--attack", help="Show how attackers can move the ladder, instead of each epoch.")
    ] = False,
) -> None:
    """Simulate swarms whose task levels follow their success, and one whose tasks stay the same.

    Policies are tables with one number each, their skill; admission, verification, count, settlement and
    record are the network's own code. Takes half a minute, with --attack some minutes.
    """
    document, grid = _attack(seed, epochs) if attack else _course(seed, epochs)
    common.output.emit({"format": "sapo/lab/difficulty/1", "seed": seed, **document}, grid)


def _course(seed: int, epochs: int) -> tuple[dict[str, Any], Grid]:
    from sapo_client.lab.ladders.swarm import LadderPlan, simulate

    plans = [LadderPlan(follows=follows, seed=seed, epochs=epochs) for follows in (True, False)]
    follow, fixed = map(simulate, plans)
    columns = ("epoch", "level", "mixed", "points", "hardest", "", "fixed: mixed", "points ", "hardest ")
    rows = [(epoch, f"{a.position:.2f}", *_cells(a), "", *_cells(b)) for epoch, a, b in _pairs(follow, fixed)]
    document = {"follow": [asdict(each) for each in follow], "fixed": [asdict(each) for each in fixed]}
    return document, Grid(columns, rows)


def _pairs(follow: list[LadderEpoch], fixed: list[LadderEpoch]) -> list[tuple[int, LadderEpoch, LadderEpoch]]:
    return [(epoch, *pair) for epoch, pair in enumerate(zip(follow, fixed, strict=True))]


def _cells(epoch: LadderEpoch) -> tuple[str, int, str]:
    return f"{epoch.mixed:.0%}", epoch.points, f"{epoch.hardest:.0%}"


def _attack(seed: int, epochs: int) -> tuple[dict[str, Any], Grid]:
    from sapo_client.lab.ladders.swarm import LADDER_ATTACKS, attack_result

    found = [attack_result(name, plan, seed=seed, epochs=epochs) for name, plan in LADDER_ATTACKS]
    columns = ("who", "level", "mixed", "points", "theirs", "hardest")
    return {"movers": [asdict(each) for each in found]}, Grid(
        columns, [_attack_cells(each) for each in found]
    )


def _attack_cells(each: LadderAttackResult) -> tuple[str, ...]:
    return (
        each.name,
        f"{each.position:.2f}",
        f"{each.mixed:.0%}",
        f"{each.points:.1f}",
        f"{each.dishonest_points:.1f}",
        f"{each.hardest:.0%}",
    )


experiment.register(app)
