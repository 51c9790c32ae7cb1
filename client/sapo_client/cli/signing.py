"""`sapo keys signing`: move the signing history together with its identity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sapo_verification.signing.database import Mark

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Move the signing history, which prevents an identity from contradicting itself.",
)


@command(app, "export")
def export(
    common: Common,
    destination: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Write the signing history of the data directory to a file; the node must be stopped."""
    from sapo_client.signing_files import export_signing

    _show(common, export_signing(common.data(), destination))
    common.output.note(
        f"On the other machine, before its first start: sapo keys signing import {destination}"
    )
    common.output.warn("do not start the node here again: two machines with one key contradict each other")


@command(app, "import")
def import_(
    common: Common,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `signing export` made.")],
) -> None:
    """Import a signing history; marks can only rise, and the node must be stopped."""
    from sapo_client.signing_files import import_signing

    marks, risen = import_signing(common.data(), source)
    _show(common, marks)
    common.output.note(f"{risen} of {len(marks)} marks rose")


def _show(common: Common, marks: Iterable[Mark]) -> None:
    documents = [_document(mark) for mark in marks]
    columns = ("swarm", "account", "epoch", "next_slot", "share")
    common.output.emit(documents, Grid(columns, [tuple(d[name] for name in columns) for d in documents]))


def _document(mark: Mark) -> dict[str, Any]:
    return {
        "swarm": mark.swarm_id.hex(),
        "account": str(mark.account),
        "epoch": mark.epoch,
        "next_slot": mark.next_slot,
        "share": str(mark.share),
    }
