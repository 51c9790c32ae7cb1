"""`sapo lab`: experiments on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapo_client.cli import experiment
from sapo_client.cli.options import Common, command

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Experiments on this machine.")


@app.callback()
def root() -> None:
    """Experiments on this machine."""


@command(app)
def pretrain(
    common: Common,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the policy is written.")],
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps instead of the recipe's.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Root of every random stream.")] = 0,
) -> None:
    """Train the bundled policy anew, from nothing but generated tasks of the nano level.

    Same command, same seed, same machine: same file. Takes about half an hour of one core.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sapo_client.lab import pretrain as recipe

    total = steps or recipe.STEPS
    columns = (TextColumn("step {task.completed} of {task.total}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3f}"), disable=common.no_progress) as bar:
        task = bar.add_task("pretrain", total=total, loss=float("nan"))
        recipe.pretrain(
            out,
            seed=seed,
            steps=total,
            progress=lambda now: bar.update(task, completed=now.step, loss=now.loss),
        )
    common.output.emit({"folder": str(out), "steps": total, "seed": seed}, f"wrote {out}")


experiment.register(app)
