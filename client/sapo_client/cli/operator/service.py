"""`sapo service`: run a node under the machine's service manager."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated

import typer

from sapo_client.cli.options import Common, IdentityOption, PassphraseFile, command
from sapo_client.cli.render import Pairs
from sapo_client.errors import ExitCode, SapoError

if TYPE_CHECKING:
    from sapo_client.config import Config
    from sapo_client.services.manager import InstalledUnit
    from sapo_client.services.units import ServiceTerms

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a node for months: under systemd or launchd, started again when it fails or hangs.",
)

Name = Annotated[str, typer.Option("--name", help="Name of the unit; one per node.")]
System = Annotated[
    bool, typer.Option("--system", help="For the whole machine (root), not for your user alone.")
]


@command(app)
def install(
    common: Common,
    identity: IdentityOption = None,
    passphrase_file: PassphraseFile = None,
    name: Name = "sapo",
    system: System = False,
    user: Annotated[
        str, typer.Option("--user", help="With --system: the account that the node runs as.")
    ] = "sapo",
    show: Annotated[bool, typer.Option("--print", help="Print the unit; change nothing.")] = False,
    no_start: Annotated[bool, typer.Option("--no-start", help="Write the unit without starting it.")] = False,
) -> None:
    """Install and start a node of this machine's swarm as a service; join the swarm once by hand before."""
    from sapo_client.services.manager import run
    from sapo_client.services.units import launchd_agent, systemd_unit

    config = common.resolve({"identity": identity, "passphrase_file": passphrase_file}).config
    terms = _terms(common, config, name, user if system else None)
    unit = _unit(name, system)
    if show:
        text = launchd_agent(terms) if unit.uses_launchd else systemd_unit(terms)
        common.output.emit({"unit": str(unit.path), "text": text}, text.rstrip())
        return
    path = unit.write(terms)
    for line in unit.start_commands():
        if no_start:
            common.output.note(f"Then: {join(line)}")
        else:
            run(line)
    if not (system or unit.uses_launchd):
        common.output.note("To keep it running after you log out: loginctl enable-linger")
    document = {"unit": str(path), "started": not no_start}
    common.output.emit(document, Pairs(list(document.items())))


@command(app)
def uninstall(common: Common, name: Name = "sapo", system: System = False) -> None:
    """Stop the service and remove its unit; identity and data stay."""
    from sapo_client.services.manager import run

    unit = _unit(name, system)
    unit.facts()
    for line in unit.remove_commands():
        run(line)
    unit.path.unlink(missing_ok=True)
    common.output.emit({"removed": str(unit.path)}, f"removed {unit.path}")


@command(app)
def status(common: Common, name: Name = "sapo", system: System = False) -> None:
    """Show the unit's state in the service manager; `sapo status` shows the node's own status."""
    facts = _unit(name, system).facts()
    common.output.emit(facts, Pairs(list(facts.items())))


@command(app)
def logs(
    common: Common,
    name: Name = "sapo",
    system: System = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Number of latest lines.")] = 50,
) -> None:
    """Show what the service printed, from the manager's journal."""
    unit = _unit(name, system)
    unit.require_installed()  # the journal of no unit is empty, which says nothing
    line = unit.logs_command(follow=follow, last=last)
    try:
        os.execvp(line[0], line)  # noqa: S606  a fixed command
    except OSError as error:
        raise SapoError(
            f"cannot run {line[0]}: {error.strerror}",
            hint="the node's own log is shown by `sapo logs`",
            exit_code=ExitCode.CONFIG,
        ) from error


def _unit(name: str, system: bool) -> InstalledUnit:
    from sapo_client.services.manager import InstalledUnit

    if not name.replace("-", "").replace("_", "").isalnum():
        raise SapoError(
            f"{name!r} cannot name a unit",
            hint="use letters, digits, - and _",
            exit_code=ExitCode.USAGE,
        )
    return InstalledUnit(name, whole_machine=system)


def _terms(common: Common, config: Config, name: str, user: str | None) -> ServiceTerms:
    """Return the unit's terms, after a check that the node starts without asking for anything."""
    from sapo_client import keystore
    from sapo_client.node.bootstrap import require_joinable
    from sapo_client.services.units import ServiceTerms

    path = keystore.locate(config.identity).absolute()
    protection = keystore.read(path).node_key.protection
    if protection != "none" and config.passphrase_file is None:
        raise SapoError(
            f"the identity {path} is encrypted, and a service cannot ask for its passphrase",
            hint="store the passphrase in a file that only you can read, and name it with --passphrase-file",
            exit_code=ExitCode.KEYSTORE,
        )
    if not config.swarm.alone:
        require_joinable(config)
    data = Path(config.data_dir).absolute()
    chosen = () if common.config is None else ("--config", str(common.config.absolute()))
    alone = ("--alone",) if config.swarm.alone else ()
    line = (*_sapo(), "join", "--identity", str(path), "--data-dir", str(data), *chosen, *alone)
    secret = config.passphrase_file if protection != "none" else None
    return ServiceTerms(name, line, data, None if secret is None else secret.absolute(), user)


def _sapo() -> tuple[str, ...]:
    script = Path(sys.executable).with_name("sapo")
    return (str(script),) if script.exists() else (sys.executable, "-m", "sapo_client.cli.app")
