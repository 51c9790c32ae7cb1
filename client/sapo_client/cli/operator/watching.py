"""`sapo logs`, `sapo pause` and `sapo resume`: a running node from another terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from sapo_client.cli.options import Common, command


def register(app: typer.Typer) -> None:
    """Register the commands."""
    command(app)(logs)
    command(app)(pause)
    command(app)(resume)


def logs(
    common: Common,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Number of latest lines.")] = 20,
    events: Annotated[
        bool, typer.Option("--events", help="The event file (JSON lines) instead of the log.")
    ] = False,
) -> None:
    """Show the node's log, also while it is down; --json shows the events."""
    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.observe.follow import following, last_lines

    data = common.data()
    path = data.events if events or common.as_json else data.log
    if not path.exists():
        raise SapoError(
            f"there is no log {path}",
            hint="start a node, or name its data directory with --data-dir",
            exit_code=ExitCode.DATA,
        )
    lines, position = last_lines(path, last)
    for line in lines:
        typer.echo(line)
    if follow:
        for line in following(path, position):
            typer.echo(line)


def pause(common: Common) -> None:
    """Pause the running node's training after the current round; it continues to serve its peers."""
    _set(common, paused=True)


def resume(common: Common) -> None:
    """Let a paused node train again."""
    _set(common, paused=False)


def _set(common: Common, *, paused: bool) -> None:
    from sapo_client.observe.control_client import ControlClient

    answer = ControlClient(common.data()).pause(paused=paused)
    text = "paused: no further round begins until `sapo resume`, or until the node is started again"
    common.output.emit(answer, text if paused else "training continues")
