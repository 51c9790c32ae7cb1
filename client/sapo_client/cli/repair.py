"""`sapo repair`: keep what can be read of a damaged data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

if TYPE_CHECKING:
    from sapo_client.account.repair import RepairedFile


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(repair)


def repair(common: Common) -> None:
    """Replace damaged databases of a stopped node by what can be read of them; keep the damaged files."""
    from dataclasses import asdict

    from sapo_client.account.repair import repair as repair_directory

    results = repair_directory(common.data())
    document = {"format": "sapo/repair/1", "files": [asdict(result) for result in results]}
    columns = ("file", "state", "rows kept", "complete", "damaged file")
    common.output.emit(document, Grid(columns, [_row(result) for result in results]))
    for result in results:
        if result.signs_from_epoch is not None:
            common.output.note(
                "the signing history may be incomplete: this node signs again from epoch"
                f" {result.signs_from_epoch} on, for a slot must never be signed twice"
            )


def _row(result: RepairedFile) -> tuple[Any, ...]:
    rows = sum((result.kept or {}).values()) if result.aside else None
    return (result.file, result.state, rows, result.complete, result.aside)
