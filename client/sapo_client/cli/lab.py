"""`sapo lab`: experiments on this machine."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli import experiment
from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

if TYPE_CHECKING:
    from sapo_client.lab.economy import EconomyRow

ShareOption = Annotated[
    float | None,
    typer.Option(min=0.0, max=1.0, metavar="S", help="Share of this author in the training text."),
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
    default; half an hour of one core), `bundled-chatty`, `specialist-a` and `specialist-b` (minutes). With
    --from, an existing policy trains on other authors for two minutes: it then answers correctly less often,
    but knows almost as much.
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
) -> None:
    """Simulate honest and dishonest strategies under the shipped rules, and show which are profitable.

    Profit is in generated rollouts: the value of points, less rollouts, messages and gas. Takes a second.
    """
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


experiment.register(app)
