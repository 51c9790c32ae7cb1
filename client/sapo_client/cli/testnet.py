"""`sapo testnet`: a whole swarm on this machine."""

from __future__ import annotations

from dataclasses import dataclass
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
    from sapo_client.testnet.plan import Layout, Settings

LOG_COLUMNS = 160  # width of tables in a file or pipe: wide enough that no row wraps

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a whole swarm on this machine: chain, contracts, nodes, attackers.",
)

swarm.register_deprecated(app, "testnet")


@dataclass(frozen=True)
class UpOptions(Common):
    """Options of `sapo testnet up`."""

    nodes: Annotated[int, typer.Option("--nodes", min=2, max=64, metavar="N", help="Honest nodes.")] = 4
    auditors: Annotated[
        int | None,
        typer.Option("--auditors", min=1, metavar="N", help="Nodes that audit; four by default."),
    ] = None
    quorum: Annotated[
        int | None,
        typer.Option("--quorum", min=1, metavar="Q", help="Auditors that must agree; all but a third."),
    ] = None
    liars: Annotated[
        int,
        typer.Option("--liars", min=0, metavar="L", help="Of the auditors, how many lie after the others."),
    ] = 0
    attackers: Annotated[
        int, typer.Option("--attackers", min=0, max=8, metavar="A", help="Attacking processes.")
    ] = 1
    attack_epoch: Annotated[
        int, typer.Option("--attack-epoch", min=0, metavar="E", help="Epoch in which the attackers start.")
    ] = 0
    epochs: Annotated[int, typer.Option("--epochs", min=2, metavar="E", help="Epochs to run.")] = 3
    steps: Annotated[
        int,
        typer.Option(
            "--steps",
            min=0,
            metavar="N",
            help="Training steps of every node: on a slow machine the run goes on for them, for at most as"
            " many epochs again.",
        ),
    ] = 0
    report: Annotated[
        Path, typer.Option("--report", metavar="DIR", help="Folder for the tables and the plot.")
    ] = Path("testnet-report")
    epoch_seconds: Annotated[
        int, typer.Option("--epoch-seconds", min=10, metavar="S", help="Length of an epoch.")
    ] = 50
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="Seed of the nodes' random generators.")
    ] = 0
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="M,N",
            help="Initial model of every node, as in `sapo join`; several with commas are taken in turn.",
        ),
    ] = "bundled"
    families: FamiliesOption = None
    level: LevelOption = None
    difficulty: DifficultyOption = "fixed"
    bond: BondOption = None
    islands: IslandsOption = None
    island_accounts: IslandAccountsOption = ISLAND_ACCOUNTS
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the swarm running at the end; see `status` and `down`.")
    ] = False
    page: Annotated[bool, typer.Option("--page", help="Serve a page over all nodes, and print its link.")] = (
        False
    )
    control: Annotated[
        bool, typer.Option("--control", help="Also run one node that trains alone, for comparison.")
    ] = False

    def settings(self) -> Settings:
        """Return the settings of the testnet.

        Raises:
            SapoError: options that do not fit together.
        """
        from sapo_client.founding import defaults
        from sapo_client.founding.islands import islands_of
        from sapo_client.founding.tasks import choose_tasks
        from sapo_client.testnet.plan import Settings

        models = listed(self.model) or ["bundled"]
        auditors = min(defaults.AUDITORS, self.nodes) if self.auditors is None else self.auditors
        _require_at_most("auditors", auditors, self.nodes, "nodes")
        _require_at_most("quorum", self.quorum or 1, auditors, "auditors")
        _require_at_most("liars", self.liars, auditors, "auditors")
        return Settings(
            nodes=self.nodes,
            auditors=auditors,
            liars=self.liars,
            quorum=self.quorum,
            attackers=self.attackers,
            epochs=self.epochs,
            steps=self.steps,
            epoch_seconds=self.epoch_seconds,
            seed=self.seed,
            directory=self.data_dir or (_default_directory() if self.keep else None),
            report=self.report.resolve(),
            attack_epoch=self.attack_epoch,
            models=tuple(models),
            tasks=choose_tasks(
                families=listed(self.families), level=self.level, model=models[0], difficulty=self.difficulty
            ),
            keep=self.keep,
            page=self.page,
            control=self.control,
            bond=self.bond,
            islands=islands_of(self.islands, self.island_accounts, self.epoch_seconds),
            progress=not (self.no_progress or self.quiet or self.as_json),
        )


@command(app)
def up(common: UpOptions) -> None:
    """Start a swarm on this machine, attack it, watch it learn, and check the results.

    Exit 0: the nodes learned from verified rollouts of others, the ledger holds every epoch, a reward was
    paid, every attack was refused for the right reason, and no answer created a file. Exit 7: one of these
    conditions does not hold; the report names it.
    """
    raise typer.Exit(_run(common, common.settings()))


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


def _require_at_most(option: str, asked: int, limit: int, of: str) -> None:
    if asked > limit:
        raise SapoError(
            f"--{option} {asked} needs as many {of}, and there are {limit}",
            hint=f"ask for more {of}, or a smaller --{option}",
            exit_code=ExitCode.USAGE,
        )


def _layout(common: Common) -> Layout:
    from sapo_client.testnet.plan import Layout

    return Layout((common.data_dir or _default_directory()).resolve())


def _default_directory() -> Path:
    from sapo_client.paths import default_data_folder

    return default_data_folder().with_name("testnet")
