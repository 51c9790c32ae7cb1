"""What an account is about to sign, shown to its owner, who agrees or does not."""

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
    """Those of commands that sign for an account what its owner was shown."""

    yes: YesOption = False

    def ask(self, statements: Sequence[Mapping[str, Any]]) -> None:
        """Show statements and asks, as ``asker`` does."""
        asker(self, self.yes)(statements)


def asker(common: Common, yes: bool) -> Callable[[Sequence[Mapping[str, Any]]], None]:
    """Show statements on standard error and asks once; ``--yes`` agrees, and a pipe cannot.

    Raises:
        SapoError: the owner does not agree, or nobody is here to ask.
    """

    def consent(statements: Sequence[Mapping[str, Any]]) -> None:
        from sapo_client.node.runtime.statements import lines

        # who is asked must see what about, also with --quiet
        show = common.output.note if yes else partial(typer.echo, err=True)
        show("This account is about to sign:")
        for statement in statements:
            show("")
            for line in lines(statement):
                show(line)
        if not yes:
            _ask()

    return consent


def _ask() -> None:
    if not sys.stdin.isatty():
        raise SapoError(
            "nobody is here to agree to what is signed",
            hint="read it above, then run the command again with --yes",
            exit_code=ExitCode.USAGE,
        )
    if not typer.confirm("\nSign it?", default=False, err=True):
        raise SapoError(
            "nothing was signed", hint="run the command again to be asked again", exit_code=ExitCode.KEYSTORE
        )
