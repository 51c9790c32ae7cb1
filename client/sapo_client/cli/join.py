"""`sapo join`: run a node."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapo_client.cli.options import (
    BootstrapOption,
    Common,
    IdentityOption,
    ManifestOption,
    PassphraseFile,
    RpcOption,
    command,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sapo_client.account.ledger_session import Consent
    from sapo_client.cli.entry.stoppable import StoppableStart
    from sapo_client.config import Config
    from sapo_client.config_layers import Resolved
    from sapo_client.keystore import Identity
    from sapo_client.node.roles import Roles
    from sapo_client.node.waiting import Waiting
    from sapo_client.observe.status import RoundSummary

_LOG = logging.getLogger(__name__)

Listen = Annotated[
    list[str] | None,
    typer.Option("--listen", metavar="MULTIADDR", help="An address to listen on; may be repeated."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="M", help="`bundled`, `bundled-chatty`, a Hugging Face model, or a folder of one."
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start a new policy instead of resuming; old checkpoints are kept.")
]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, metavar="N", help="Stop after N steps of this run.")
]
NoLedger = Annotated[bool, typer.Option("--no-ledger", help="Read the chain but never write to it: no pay.")]
Alone = Annotated[
    bool, typer.Option("--alone", help="Train without a swarm and without a chain: nothing is shared.")
]
Audit = Annotated[
    bool, typer.Option("--audit", help="Also count the epochs' contributions and sign their roots.")
]


InvitationArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[LINK]", help="The swarm: a sapo:// link, an https address, or a file; needed once."
    ),
]


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(join)


def join(
    common: Common,
    context: typer.Context,
    invitation: InvitationArgument = None,
    identity: IdentityOption = None,
    manifest: ManifestOption = None,
    bootstrap: BootstrapOption = None,
    listen: Listen = None,
    model: Model = None,
    passphrase_file: PassphraseFile = None,
    fresh: Fresh = False,
    steps: Steps = None,
    alone: Alone = False,
    no_ledger: NoLedger = False,
    audit: Audit = False,
    rpc: RpcOption = None,
) -> None:
    """Run a node: train, share rollouts, and train on those of others.

    It resumes from its last checkpoint. While the model's server does not answer or the disk is full, it
    reports that and waits. The first Ctrl-C finishes the round, saves a checkpoint and exits with 130; the
    second one ends at once. `sapo stop` ends it from elsewhere, also while it starts or waits.
    """
    from sapo_client import keystore
    from sapo_client.cli.entry.stoppable import StoppableStart
    from sapo_client.errors import ExitCode
    from sapo_client.observe.starting import STOPPED_BEFORE_START, StopRequested
    from sapo_client.observe.terminal import say
    from sapo_client.paths import DataDir

    flags: dict[str, object] = {
        "identity": identity,
        "passphrase_file": passphrase_file,
        "swarm.manifest": manifest,
        "swarm.bootstrap": bootstrap,
        "swarm.listen": listen,
        "learner.model": model,
        "swarm.alone": alone or None,
        "swarm.listen_before_signing_seconds": 0.0 if alone else None,
        "ledger.enabled": False if no_ledger else None,
        "ledger.audit": audit or None,
        "ledger.rpc_urls": rpc,
    }
    if alone:
        _require_no_swarm(manifest=manifest, bootstrap=bootstrap, listen=listen, rpc=rpc, audit=audit)
    resolved = common.resolve(flags)
    public = keystore.read(path := _identity_file(resolved.config.identity))
    start = StoppableStart(DataDir(resolved.config.data_dir))
    try:
        with start.begun():
            if invitation is not None:
                _accept(common, invitation, resolved.config)
                resolved = common.resolve(flags)  # with the settings that the invitation brought
            if resolved.config.swarm.alone:
                keystore.require_free(path, public)  # before the directory is bound to training alone
            code = _run(common, resolved, path, start, context.find_root().obj, fresh=fresh, steps=steps)
    except StopRequested:
        say(STOPPED_BEFORE_START)
        code = ExitCode.DONE
    raise typer.Exit(code)


def _settled(config: Config, start: StoppableStart) -> Waiting:
    """Wait until the node has what it needs before its passphrase; return what waits for its start."""
    from sapo_client.node.waiting import Waiting

    waiting = Waiting(start.lock, stops=start.stops, opened=start.opened)
    waiting.through(partial(_settle, config))
    return waiting


def _run(
    common: Common,
    resolved: Resolved,
    path: Path,
    start: StoppableStart,
    roles: Roles | None,
    *,
    fresh: bool,
    steps: int | None,
) -> int:
    """Run a node to its end, once it can start; return its exit code."""
    from sapo_client import keystore
    from sapo_client.passphrase import PassphraseSource

    config = resolved.config
    waiting = _settled(config, start)
    opened = keystore.load(path, PassphraseSource(config.passphrase_file))
    _LOG.info("identity %s, data %s, model %s", opened.path, config.data_dir, config.learner.model)
    from sapo_client.node.app import RunOptions
    from sapo_client.node.bootstrap import NextRun, run_node
    from sapo_client.node.roles import NO_ROLES
    from sapo_client.observe.output import unblocked_output

    claim = partial(_claim, config, opened)
    options = RunOptions(fresh=fresh, steps=steps, settings=resolved.settings, claim=claim)
    show = partial(_show_round, common)
    parts = waiting.roles(roles or NO_ROLES)
    run = partial(run_node, config, opened, NextRun(options), show, roles=parts, lock=start.lock)
    with unblocked_output():
        return waiting.through(run)


def _settle(config: Config) -> None:
    """Give the node that trains alone its swarm, or raise if the node cannot start in the one that it has."""
    from sapo_client.full_disk import told_of_full_disk
    from sapo_client.imports import collector_paused

    with collector_paused():
        from sapo_client.node.bootstrap import require_joinable

    with told_of_full_disk(config.data_dir):
        (_settle_alone if config.swarm.alone else require_joinable)(config)


def _claim(config: Config, identity: Identity, consent: Consent) -> Mapping[str, Any]:
    """Claim what was granted, for the button of the running node's page."""
    from sapo_client.account import ledger_commands

    return ledger_commands.claim(config, consent, running=identity)


def _show_round(common: Common, summary: RoundSummary) -> None:
    """Print one line per round on standard output, as JSON with --json."""
    if common.as_json:
        typer.echo(json.dumps(asdict(summary)))
    elif not common.quiet:
        typer.echo(summary.line())


def _require_no_swarm(**options: object) -> None:
    """Raise if an option that has no effect on a node that trains alone is given beside --alone."""
    from sapo_client.config_layers import require_no_swarm

    require_no_swarm({f"--{name}": value for name, value in options.items()}, alone="--alone")


def _settle_alone(config: Config) -> None:
    """Give the data directory a manifest of its own, unless it has one."""
    from sapo_client.founding.alone import alone_manifest
    from sapo_client.node.runtime.manifests import ALONE, settle_alone
    from sapo_client.paths import DataDir

    settle_alone(DataDir(config.data_dir).create(), partial(alone_manifest, ALONE, config.learner))


def _accept(common: Common, invitation: str, config: Config) -> None:
    """Settle the data directory in the swarm that an invitation leads to.

    Raises:
        SapoError: it cannot be used, or another option names the swarm, too.
    """
    from sapo_client.cli.operator.invitations import accept
    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.paths import DataDir

    if config.swarm.alone or config.swarm.manifest is not None:
        option = "--alone" if config.swarm.alone else "--manifest"
        raise SapoError(
            f"a link and {option} are given, and they exclude each other",
            hint=f"leave out {option}, or the link; `sapo config show --origin` shows where it is set",
            exit_code=ExitCode.USAGE,
        )
    accept(common, invitation, DataDir(config.data_dir).create())


def _identity_file(identity: str | None) -> Path:
    """Return the file of the identity; without a choice it is that of `sapo keys new key`."""
    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.keystore import locate

    path = locate(identity)
    if identity is None and not path.exists():
        raise SapoError(
            "no identity is given",
            hint="make one with `sapo keys new key`, and run the same command again",
            exit_code=ExitCode.KEYSTORE,
        )
    return path
