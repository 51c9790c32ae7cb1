"""The command `sapo`: its root, its command groups, and its exit codes.

Commands import what they need inside their bodies: `sapo --help` loads no model library, chain or network.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer
import typer.main

from sapo_client import logs
from sapo_client.cli import (
    bench,
    config,
    doctor,
    export,
    init,
    inspect,
    join,
    keys,
    lab,
    ledger,
    swarm,
    testnet,
    verify,
)
from sapo_client.cli.entry.closed_pipe import ended_by_reader
from sapo_client.cli.entry.encoding import encodable_output
from sapo_client.cli.entry.spelling import Commands
from sapo_client.cli.live import dashboard, watch
from sapo_client.cli.operator import changes, invitations, service, watching
from sapo_client.cli.render import print_error
from sapo_client.errors import ExitCode, SapoError, database_error
from sapo_client.full_disk import told_of_full_disk
from sapo_verification.errors import NewerDatabaseError, UnusableDatabaseError

if TYPE_CHECKING:
    from sapo_client.node.roles import Roles

app = typer.Typer(
    name="sapo",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: the same on a terminal, in a pipe and in the reference
    pretty_exceptions_enable=False,
    help="Join an open network in which strangers' language models learn from each other's rollouts.",
    epilog="To begin: `sapo keys new key`, then `sapo join --identity key` with a swarm's link in quotes, or"
    " with --alone. Every command takes --json, -q, -v, --no-progress, --data-dir and --config.",
)

# Switches the libraries' telemetry off, unless the user has set these variables.
TELEMETRY_OFF = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        sys.stdout.write(f"sapo {importlib.metadata.version('sapo-swarm')}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Join an open network in which strangers' language models learn from each other's rollouts."""


for module in (init, join, inspect, watching, dashboard, watch, verify, doctor):
    module.register(app)
invitations.register(swarm.app)
changes.register(swarm.app)
for group in (keys, config, service, ledger, export, swarm, testnet, lab, bench):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2], cls=Commands)


def main(roles: Roles | None = None) -> None:
    """Run a command and end the process with its documented exit code.

    Args:
        roles: parts that a node started by the command has in place of its own.
    """
    sys.excepthook = _report_bug
    encodable_output()
    for variable, value in TELEMETRY_OFF.items():
        os.environ.setdefault(variable, value)
    with ended_by_reader():
        _run(roles)


def _run(roles: Roles | None) -> None:
    """Run a command; end the process with the exit code of an error that a person sees."""
    try:
        with told_of_full_disk(None):
            typer.main.get_command(app)(obj=roles)  # calling `app` itself would replace the hook for bugs
    except SapoError as error:
        print_error(error.text, error.hint)
        sys.exit(error.exit_code)
    except (NewerDatabaseError, UnusableDatabaseError) as error:
        if (told := database_error(error)) is None:
            raise
        print_error(told.text, told.hint)
        sys.exit(told.exit_code)


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write a bug report to a file and print its path; if it cannot be written, print the stack trace."""
    if not issubclass(kind, Exception):
        sys.__excepthook__(kind, error, trace)
        return
    from sapo_client.cli.environment import write_bug_report

    try:
        file = write_bug_report(error)
    except OSError:
        sys.__excepthook__(kind, error, trace)
        hint = f"report the lines above with the output of `sapo env`; exit {ExitCode.BUG:d}"
    else:
        hint = f"report it with the file {file}, which holds no secrets; exit {ExitCode.BUG:d}"
    what = logs.without_secrets(f"{type(error).__name__}: {error}".partition("\n")[0])
    print_error(f"this is a bug in sapo: {what}", hint)
