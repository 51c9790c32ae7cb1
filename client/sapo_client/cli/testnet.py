"""`sapo testnet`: a whole swarm on this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapo_client.cli import swarm
from sapo_client.cli.live.dashboard import show_link
from sapo_client.cli.options import (
    ISLAND_ACCOUNTS,
    BondOption,
    Common,
    DifficultyOption,
    FamiliesOption,
    IslandAccountsOption,
    IslandsOption,
    LevelOption,
    command,
    listed,
)
from sapo_client.cli.render import Grid
from sapo_client.errors import ExitCode, SapoError

if TYPE_CHECKING:
    from sapo_client.founding.tasks import TaskChoice
    from sapo_client.testnet.plan import Layout, Settings

KeepOption = Annotated[
    bool, typer.Option("--keep", help="Leave the swarm running at the end; see `status` and `down`.")
]

EpochSecondsOption = Annotated[
    int, typer.Option("--epoch-seconds", min=10, metavar="S", help="Length of an epoch.")
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, metavar="N", help="Seed of the nodes' random generators.")
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a whole swarm on this machine: chain, contracts, nodes, attackers.",
)

swarm.register_deprecated(app, "testnet")

PageOption = Annotated[bool, typer.Option("--page", help="Serve a page over all nodes, and print its link.")]
ControlOption = Annotated[
    bool, typer.Option("--control", help="Also run one node that trains alone, for comparison.")
]

AuditorsOption = Annotated[
    int | None,
    typer.Option("--auditors", min=1, metavar="N", help="Nodes that audit; four by default."),
]
QuorumOption = Annotated[
    int | None,
    typer.Option("--quorum", min=1, metavar="Q", help="Auditors that must agree; all but a third."),
]
LiarsOption = Annotated[
    int,
    typer.Option("--liars", min=0, metavar="L", help="Of the auditors, how many lie after the others."),
]

LOG_COLUMNS = 160  # width of tables in a file or pipe: wide enough that no row wraps

AttackersOption = Annotated[
    int, typer.Option("--attackers", min=0, max=8, metavar="A", help="Attacking processes.")
]
AttackEpochOption = Annotated[
    int, typer.Option("--attack-epoch", min=0, metavar="E", help="Epoch in which the attackers start.")
]

StepsOption = Annotated[
    int,
    typer.Option(
        "--steps",
        min=0,
        metavar="N",
        help="Training steps of every node: on a slow machine the run goes on for them, for at most as many"
        " epochs again.",
    ),
]

StartOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="M,N",
        help="Initial model of every node, as in `sapo join`; several with commas are taken in turn.",
    ),
]


ReportOption = Annotated[
    Path, typer.Option("--report", metavar="DIR", help="Folder for the tables and the plot.")
]


@command(app)
def up(
    common: Common,
    nodes: Annotated[int, typer.Option("--nodes", min=2, max=64, metavar="N", help="Honest nodes.")] = 4,
    auditors: AuditorsOption = None,
    quorum: QuorumOption = None,
    liars: LiarsOption = 0,
    attackers: AttackersOption = 1,
    attack_epoch: AttackEpochOption = 0,
    epochs: Annotated[int, typer.Option("--epochs", min=2, metavar="E", help="Epochs to run.")] = 3,
    steps: StepsOption = 0,
    report: ReportOption = Path("testnet-report"),
    epoch_seconds: EpochSecondsOption = 50,
    seed: SeedOption = 0,
    model: StartOption = "bundled",
    families: FamiliesOption = None,
    level: LevelOption = None,
    difficulty: DifficultyOption = "fixed",
    bond: BondOption = None,
    islands: IslandsOption = None,
    island_accounts: IslandAccountsOption = ISLAND_ACCOUNTS,
    keep: KeepOption = False,
    page: PageOption = False,
    control: ControlOption = False,
) -> None:
    """Start a swarm on this machine, attack it, watch it learn, and check the results.

    Exit 0: the nodes learned from verified rollouts of others, the ledger holds every epoch, a reward was
    paid, every attack was refused for the right reason, and no answer created a file. Exit 7: one of these
    conditions does not hold; the report names it.
    """
    from sapo_client.founding import defaults
    from sapo_client.founding.islands import islands_of
    from sapo_client.testnet.plan import Settings

    models = listed(model) or ["bundled"]
    auditing = _auditing(min(defaults.AUDITORS, nodes) if auditors is None else auditors, nodes, quorum)
    _require_at_most("liars", liars, auditing, "auditors")
    settings = Settings(
        nodes=nodes,
        auditors=auditing,
        liars=liars,
        quorum=quorum,
        attackers=attackers,
        epochs=epochs,
        steps=steps,
        epoch_seconds=epoch_seconds,
        seed=seed,
        directory=common.data_dir or (_default_directory() if keep else None),
        report=report.resolve(),
        attack_epoch=attack_epoch,
        models=tuple(models),
        tasks=_tasks(families, level, models[0], difficulty),
        keep=keep,
        page=page,
        control=control,
        bond=bond,
        islands=islands_of(islands, island_accounts, epoch_seconds),
        progress=not (common.no_progress or common.quiet or common.as_json),
    )
    raise typer.Exit(_run(common, settings))


def _tasks(families: str | None, level: str | None, model: str, difficulty: str) -> TaskChoice:
    from sapo_client.founding.tasks import choose_tasks

    return choose_tasks(families=listed(families), level=level, model=model, difficulty=difficulty)


def _run(common: Common, settings: Settings) -> int:
    from rich.console import Console

    from sapo_client import extras
    from sapo_client.testnet.run import up as run

    extras.require(extras.TESTNET)

    console = Console(stderr=True, quiet=common.quiet)
    if not console.is_terminal:
        console.width = LOG_COLUMNS
    code = run(settings, console)
    if common.as_json and (settings.report / "report.json").exists():
        typer.echo((settings.report / "report.json").read_text(encoding="utf-8"), nl=False)
    return code


@command(app)
def status(common: Common) -> None:
    """Show the processes of a testnet, their training step, and the command that starts each again."""
    from sapo_client.testnet import state

    layout = _layout(common)
    found = state.read(layout)
    rows = [state.process_status(entry, layout) for entry in found.entries]
    document = {
        "format": "sapo/testnet-status/1",
        "rpc_url": found.rpc_url,
        "processes": [
            {"name": r.name, "role": r.role, "state": r.state, "step": r.step, "command": r.command}
            for r in rows
        ],
    }
    columns = ("name", "role", "state", "step", "command")
    common.output.emit(document, Grid(columns, [(r.name, r.role, r.state, r.step, r.command) for r in rows]))


@command(app, "page")
def show_page(common: Common) -> None:
    """Serve a page over all nodes of a testnet, running or finished, until Ctrl-C; prints its link."""
    from sapo_client.testnet.page import serve_page

    serve_page(_layout(common), show=partial(show_link, common))


@command(app)
def down(common: Common) -> None:
    """Stop a testnet that was left running."""
    from sapo_client.testnet import state

    layout = _layout(common)
    ended = state.end(layout, state.read(layout))
    common.output.emit({"ended": ended}, Grid(("ended",), [(name,) for name in ended]))


def _auditing(auditors: int, nodes: int, quorum: int | None) -> int:
    """Return the number of auditors, if the nodes suffice for it and it for the quorum."""
    _require_at_most("auditors", auditors, nodes, "nodes")
    _require_at_most("quorum", quorum or 1, auditors, "auditors")
    return auditors


def _require_at_most(option: str, asked: int, most: int, of: str) -> None:
    if asked > most:
        raise SapoError(
            f"--{option} {asked} needs as many {of}, and there are {most}",
            hint=f"ask for more {of}, or a smaller --{option}",
            exit_code=ExitCode.USAGE,
        )


def _layout(common: Common) -> Layout:
    from sapo_client.testnet.plan import Layout

    return Layout((common.data_dir or _default_directory()).resolve())


def _default_directory() -> Path:
    from sapo_client.paths import default_data_folder

    return default_data_folder().with_name("testnet")
