"""Consent: show the account's owner the statements to be signed, and ask."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.options import AccountOptions, Common
from sapo_client.errors import ExitCode, SapoError

if TYPE_CHECKING:
    from collections.abc import Callable

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Sign what is shown without asking.")]


@dataclass(frozen=True)
class SigningOptions(AccountOptions):
    """Options of commands that sign for an account after showing what is signed."""

    yes: YesOption = False

    def ask(self, statements: Sequence[Mapping[str, Any]]) -> None:
        """Show statements and ask, as ``asker`` does."""
        asker(self, self.yes)(statements)


def asker(common: Common, yes: bool) -> Callable[[Sequence[Mapping[str, Any]]], None]:
    """Return a function that shows statements on standard error and asks once; ``--yes`` agrees.

    Raises:
        SapoError: the owner refuses, or standard input is not a terminal.
    """

    def consent(statements: Sequence[Mapping[str, Any]]) -> None:
        from sapo_client.node.runtime.statements import format_fields

        # the question needs the statements, also with --quiet
        show = common.output.note if yes else partial(typer.echo, err=True)
        show("This account is about to sign:")
        for statement in statements:
            show("")
            for line in format_fields(statement):
                show(line)
        if not yes:
            _ask()

    return consent


def _ask() -> None:
    if not sys.stdin.isatty():
        raise SapoError(
            "standard input is not a terminal, so consent cannot be asked for",
            hint="read it above, then run the command again with --yes",
            exit_code=ExitCode.USAGE,
        )
    if not typer.confirm("\nSign it?", default=False, err=True):
        raise SapoError(
            "nothing was signed", hint="run the command again to be asked again", exit_code=ExitCode.KEYSTORE
        )
