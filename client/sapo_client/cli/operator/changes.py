"""`sapo swarm change`: auditors announce new terms of the swarm, or replace an auditor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sapo_client.cli.consent import SigningOptions
from sapo_client.cli.entry.spelling import Commands
from sapo_client.cli.options import AccountOptions, Common, command
from sapo_client.cli.render import Block, Grid, Pairs
from sapo_client.errors import ExitCode, SapoError

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file that the auditors pass to each other.")]
Families = Annotated[
    list[str] | None,
    typer.Option("--family", metavar="NAME:LEVEL", help="A family that is added; may be repeated."),
]
Retired = Annotated[
    list[str] | None,
    typer.Option(
        "--retire", metavar="NAME:LEVEL", help="A family that is not assigned any more; repeatable."
    ),
]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Slots of an account per epoch.")]
Completions = Annotated[
    int | None, typer.Option("--completions", min=1, max=16, help="Most completions of a group.")
]
Leaving = Annotated[
    str | None, typer.Option("--leaving", metavar="ACCOUNT", help="The auditor who is replaced.")
]
Entering = Annotated[
    str | None, typer.Option("--entering", metavar="ACCOUNT", help="The account that replaces it.")
]
Epoch = Annotated[
    int | None,
    typer.Option("--epoch", metavar="N", min=0, help="First epoch of the change; by default in 16 epochs."),
]
Withdraw = Annotated[bool, typer.Option("--withdraw", help="Withdraw the announced change instead.")]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Announce new terms of a running swarm, or replace an auditor: a quorum of auditors signs.",
)


def register(group: typer.Typer) -> None:
    """Register the commands as the group ``change`` of ``sapo swarm``."""
    group.add_typer(app, name="change", cls=Commands)


@command(app)
def propose(
    options: SigningOptions,
    file: File,
    family: Families = None,
    retire: Retired = None,
    slots: Slots = None,
    completions: Completions = None,
    leaving: Leaving = None,
    entering: Entering = None,
    epoch: Epoch = None,
    withdraw: Withdraw = False,
) -> None:
    """Write a change to FILE, and sign it if the account is an auditor.

    It is announced at least eight epochs before it is in force. Points, reputation, certificates and bonds
    stay.
    """
    from sapo_client.account import changes

    if (leaving is None) != (entering is None):
        raise SapoError(
            "an auditor is replaced by another account",
            hint="name both --leaving and --entering",
            exit_code=ExitCode.USAGE,
        )
    draft = changes.ChangeDraft(
        families=_levels(family),
        retired=_levels(retire),
        slots_per_epoch=slots,
        max_completions=completions,
        leaving=None if leaving is None else changes.account_of(leaving),
        entering=None if entering is None else changes.account_of(entering),
        epoch=epoch,
        withdraws=withdraw,
    )
    found = changes.propose(options.account_config(), file, draft, options.ask)
    _print(options, found)


@command(app)
def sign(options: SigningOptions, file: File) -> None:
    """Show the change in FILE, and add this auditor's signature."""
    from sapo_client.account import changes

    found = changes.sign(options.account_config(), file, options.ask)
    _print(options, found)


@command(app)
def announce(options: SigningOptions, file: File) -> None:
    """Send the change in FILE to the ledger once a quorum has signed it; any account may."""
    from sapo_client.account import changes

    found = changes.announce(options.account_config(), file, options.ask)
    _print(options, found)


@command(app)
def show(options: AccountOptions) -> None:
    """Show the auditors, and the changes that the ledger announces."""
    from sapo_client.account import changes

    found = changes.show(options.account_config())
    _print(options, found)


def _levels(texts: list[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = [text.rpartition(":") for text in texts or ()]
    return tuple((name, level) for name, _, level in pairs)


def _print(common: Common, facts: dict[str, Any]) -> None:
    """Print single values as pairs, lists of texts line by line, and changes as a table."""
    pairs: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if name == "changes" and isinstance(value, list):
            continue
        pairs += [(name, each) for each in value] if isinstance(value, list) else [(name, value)]
    blocks: list[Block] = [Pairs(pairs)]
    if isinstance(changes := facts.get("changes"), list) and changes:
        blocks += ["", Grid(tuple(changes[0]), [tuple(record.values()) for record in changes])]
    common.output.emit(facts, *blocks)
