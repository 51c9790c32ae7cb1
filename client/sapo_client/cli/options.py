"""The options that every command takes, declared once."""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import typer
from typer.models import ParameterInfo

from sapo_client import logs
from sapo_client.cli.render import Output
from sapo_client.founding.islands import ISLAND_ACCOUNTS as ISLAND_ACCOUNTS

if TYPE_CHECKING:
    from sapo_client.config import Config
    from sapo_client.config_layers import Resolved
    from sapo_client.paths import DataDir

P = ParamSpec("P")

IdentityOption = Annotated[
    str | None, typer.Option("--identity", metavar="KEY", help="Name in the key folder, or a path.")
]
ManifestOption = Annotated[
    Path | None, typer.Option("--manifest", metavar="FILE", help="Manifest of the swarm.")
]
PassphraseFile = Annotated[
    Path | None, typer.Option("--passphrase-file", metavar="FILE", help="File that holds the passphrase.")
]
RpcOption = Annotated[
    list[str] | None,
    typer.Option("--rpc", metavar="URL", help="JSON-RPC endpoint of the chain; may be repeated."),
]
FamiliesOption = Annotated[
    str | None,
    typer.Option("--families", metavar="F,G", help="Task families of the swarm; unset: the level's default."),
]
LevelOption = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="L",
        help="Level of the tasks: `nano`, `worked`, `easy` or `full`; unset: by the model's size.",
    ),
]
DifficultyOption = Annotated[
    str,
    typer.Option(
        "--difficulty",
        metavar="D",
        help="`follow`: tasks get harder as the swarm learns, from the level on; `fixed`: they do not.",
    ),
]
BondOption = Annotated[
    float | None,
    typer.Option(
        "--bond",
        min=0.001,
        metavar="TOKENS",
        help="Tokens of a whole bond; an account with fewer counts in proportion. Unset: no bond is needed.",
    ),
]
IslandsOption = Annotated[
    str | None,
    typer.Option(
        "--islands",
        metavar="K",
        help="Divide the swarm into islands: `follow` its number of paid accounts, or a constant number.",
    ),
]
IslandAccountsOption = Annotated[
    int,
    typer.Option(
        "--island-accounts", min=2, metavar="N", help="Paid accounts to an island above which it divides."
    ),
]
SampleAuditsOption = Annotated[
    int | None,
    typer.Option(
        "--sample-audits",
        min=1,
        metavar="D",
        help="Auditors check four groups of one account in D, a power of two; unset: every rollout."
        " Not beside --difficulty follow.",
    ),
]
ForModel = Annotated[
    str, typer.Option("--model", metavar="M", help="Model that the tasks are for, as in `sapo join`.")
]


@dataclass(frozen=True)
class Common:
    """The options that every command takes."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, show_default=False, help="Log more to stderr: -v info, -vv debug."
        ),
    ] = 0
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No bars and no spinners.")] = False
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="This node's data directory.")
    ] = None
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration file to read.")
    ] = None

    @property
    def output(self) -> Output:
        """Writer of this command's output."""
        return Output(as_json=self.as_json, quiet=self.quiet)

    def resolve(self, flags: dict[str, Any] | None = None) -> Resolved:
        """Return the effective configuration, in which the command's flags win."""
        from sapo_client.config_layers import resolve

        return resolve({"data_dir": self.data_dir} | (flags or {}), file=self.config)

    def data(self) -> DataDir:
        """Return the effective data directory; it may not exist."""
        from sapo_client.paths import DataDir

        return DataDir(self.resolve().config.data_dir)


SwarmFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the swarm's files.")]
BootstrapOption = Annotated[
    list[str] | None,
    typer.Option("--bootstrap", metavar="MULTIADDR", help="A node to connect to first; may be repeated."),
]


def listed(names: str | None) -> tuple[str, ...] | None:
    """Return names that are separated by commas; None if the option was not given."""
    return tuple(name.strip() for name in names.split(",")) if names else None


@dataclass(frozen=True)
class AccountOptions(Common):
    """Options of commands that use the chain for an account."""

    identity: IdentityOption = None
    manifest: ManifestOption = None
    rpc: RpcOption = None
    passphrase_file: PassphraseFile = None

    def account_config(self) -> Config:
        """Return the effective configuration."""
        flags = {
            "identity": self.identity,
            "ledger.rpc_urls": self.rpc,
            "passphrase_file": self.passphrase_file,
            "swarm.manifest": self.manifest,
        }
        return self.resolve(flags).config


C = TypeVar("C", bound=Common)


def command(
    app: typer.Typer, name: str | None = None
) -> Callable[[Callable[Concatenate[C, P], None]], Callable[..., None]]:
    """Return a decorator that registers a function whose first argument holds all shared options.

    The type of that argument, a dataclass, declares the shared options.
    """

    def register(function: Callable[Concatenate[C, P], None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        shared: type[C] = hints[next(iter(inspect.signature(function).parameters))]

        def run(**given: Any) -> None:
            options = shared(**{field.name: given.pop(field.name) for field in fields(shared)})
            logs.configure(options.verbose, quiet=options.quiet)
            if not options.verbose:  # it prints each of its attempts; the command reports the outcome
                os.environ.setdefault("HF_HUB_VERBOSITY", "error")
            _tell_misspelt_variables(options.output)
            with _logged(function):
                function(options, **given)  # type: ignore[call-arg]

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        signature = _merged(function, hints, shared)
        run.__annotations__ = {key: item.annotation for key, item in signature.parameters.items()}
        run.__signature__ = signature  # type: ignore[attr-defined]
        app.command(name)(run)
        return run

    return register


def _tell_misspelt_variables(output: Output) -> None:
    if not any(name.startswith("SAPO_") for name in os.environ):  # importing the settings takes a while
        return
    from sapo_client.config_layers import misspelt_variables

    if found := misspelt_variables():
        words = [f"{variable} is ignored, did you mean {nearest}?" for variable, nearest in found.items()]
        output.warn(" ".join(words))


@contextmanager
def _logged(function: Callable[..., None]) -> Iterator[None]:
    """Log the beginning and the end of a command."""
    log = logging.getLogger(function.__module__)
    if log.isEnabledFor(logging.INFO):  # importing this takes milliseconds
        from importlib.metadata import version

        log.info("%s, by sapo %s", function.__name__, version("sapo-swarm"))
    started = time.monotonic()
    try:
        yield
    finally:
        log.debug("%s took %.2f s", function.__name__, time.monotonic() - started)


def _merged(
    function: Callable[..., None], hints: Mapping[str, Any], shared: type[Common]
) -> inspect.Signature:
    """Return the signature of own parameters without the first, then shared ones, the common ones last.

    Args:
        hints: types of the function's parameters, with what is annotated beside them.
        shared: type of its first parameter.
    """
    own = list(inspect.signature(function).parameters.values())[1:]
    mine = [item.replace(annotation=hints[item.name], kind=inspect.Parameter.KEYWORD_ONLY) for item in own]
    parameters = _parameters(shared)  # type: ignore[arg-type]  # mypy takes the hash of its objects
    _leave_permissions_to_the_command([*mine, *parameters])
    return inspect.Signature([*mine, *parameters])


@cache  # almost every command has one of two types
def _parameters(shared: type[Common]) -> tuple[inspect.Parameter, ...]:
    """Return the shared options as parameters, the common ones last."""
    hints = get_type_hints(shared, include_extras=True)
    common = {field.name for field in fields(Common)}
    return tuple(
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in sorted(fields(shared), key=lambda field: field.name in common)
    )


def _leave_permissions_to_the_command(parameters: Iterable[inspect.Parameter]) -> None:
    """Let the parser take files that cannot be read: the command refuses them, with a hint."""
    for parameter in parameters:
        for each in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(each, ParameterInfo):
                each.readable = False
