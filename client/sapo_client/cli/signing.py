"""`sapo keys signing`: move the signing history together with its identity."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

if TYPE_CHECKING:
    from sapo_verification.signing.database import ApprovalMark, Mark
    from sapo_verification.signing.interchange import SigningHistory

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Move the signing history, which prevents an identity from signing conflicting messages.",
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
        f"On the other machine, before its first start: sapo keys signing import {quote(str(destination))}"
    )
    common.output.warn(
        "do not start the node here again: two machines with one key sign conflicting messages"
    )


@command(app, "import")
def import_(
    common: Common,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `signing export` made.")],
) -> None:
    """Import a signing history; its watermarks can only increase. The node must be stopped."""
    from sapo_client.signing_files import import_signing

    history, risen = import_signing(common.data(), source)
    _show(common, history)
    common.output.note(f"{risen} of {len(history.marks) + len(history.approvals)} watermarks increased")


def _show(common: Common, history: SigningHistory) -> None:
    documents = [*map(_document, history.marks), *map(_approval, history.approvals)]
    columns = ("swarm", "account", "epoch", "next_slot", "share", "turn")
    rows = [tuple(document.get(name, "") for name in columns) for document in documents]
    common.output.emit(documents, Grid(columns, rows))


def _document(mark: Mark) -> dict[str, Any]:
    return {
        "swarm": mark.swarm_id.hex(),
        "account": str(mark.account),
        "epoch": mark.epoch,
        "next_slot": mark.next_slot,
        "share": str(mark.share),
    }


def _approval(mark: ApprovalMark) -> dict[str, Any]:
    return {
        "swarm": mark.swarm_id.hex(),
        "account": str(mark.account),
        "epoch": mark.epoch,
        "turn": mark.turn,
        "root": mark.root.hex(),
    }
