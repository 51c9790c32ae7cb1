"""`sapo export`: the trained model with its card, a report, and admitted rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapo_client.cli.options import Common, command

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Export the trained model, a report of the node, and admitted rollouts.",
)


@command(app)
def model(
    common: Common,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the model to.")],
) -> None:
    """Write the trained policy in the format of transformers; the node must be stopped."""
    import trio

    from sapo_client import locks
    from sapo_client.account.export import export_model

    data = common.data()
    with locks.Lock.of_directory(data).held():
        step = trio.run(export_model, common.resolve().config, folder)
    common.output.emit({"folder": str(folder), "step": step}, f"wrote {folder} (step {step})")


@command(app)
def report(
    common: Common,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the report to.")],
) -> None:
    """Write a report of this node as Markdown and HTML: curves, lineage, and incidents of the policy."""
    from sapo_client.account.node_report import write_report

    written = write_report(common.data(), folder)
    common.output.emit(written, f"wrote {folder}/report.html and report.md ({written['steps']} steps)")


@command(app)
def rollouts(
    common: Common,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the envelopes to.")],
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Number of latest rollouts.")] = 100,
) -> None:
    """Write admitted rollouts as received, one file each, for `sapo verify`."""
    from sapo_client.account.export import export_rollouts

    written = export_rollouts(common.data(), folder, last)
    common.output.emit({"folder": str(folder), "rollouts": written}, f"wrote {written} envelopes to {folder}")


@command(app)
def parquet(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The Parquet file to write.")],
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Number of latest rollouts.")] = 10_000,
) -> None:
    """Write admitted rollouts as a table for analysis: author, epoch, family, completions, reward."""
    from sapo_client.account.export import export_parquet

    written = export_parquet(common.data(), file, last)
    common.output.emit({"file": str(file), "rollouts": written}, f"wrote {written} rollouts to {file}")
