"""`sapo join`: run a node."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapo_client.cli.options import Common, IdentityOption, ManifestOption, PassphraseFile, RpcOption, command

if TYPE_CHECKING:
    from sapo_client.config import Config
    from sapo_client.observe.status import RoundSummary

_LOG = logging.getLogger(__name__)

Bootstrap = Annotated[
    list[str] | None,
    typer.Option("--bootstrap", metavar="MULTIADDR", help="A node to connect to first; may be repeated."),
]
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


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(join)


def join(
    common: Common,
    context: typer.Context,
    identity: IdentityOption = None,
    manifest: ManifestOption = None,
    bootstrap: Bootstrap = None,
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

    It resumes from its last checkpoint. The first Ctrl-C finishes the round, saves a checkpoint and exits
    with 130; the second one ends at once.
    """
    from sapo_client import keystore
    from sapo_client.passphrase import PassphraseSource

    config = common.resolve(
        {
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
    ).config
    path = _identity_file(config.identity)
    keystore.read(path)
    if config.swarm.alone:
        _settle_alone(config)
    else:
        _require_joinable(config)
    opened = keystore.load(path, PassphraseSource(config.passphrase_file))
    _LOG.info("identity %s, data %s, model %s", opened.path, config.data_dir, config.learner.model)
    from sapo_client.node.app import RunOptions
    from sapo_client.node.bootstrap import run_node

    show = partial(_show_round, common)
    options, roles = RunOptions(fresh=fresh, steps=steps), context.find_root().obj
    raise typer.Exit(run_node(config, opened, options, show, roles=roles))


def _show_round(common: Common, summary: RoundSummary) -> None:
    """Print one line per round on standard output, as JSON with --json."""
    if common.as_json:
        typer.echo(json.dumps(asdict(summary)))
    elif not common.quiet:
        typer.echo(summary.line())


def _require_joinable(config: Config) -> None:
    """Raise if the node cannot start, before its passphrase is asked for."""
    from sapo_client.node.bootstrap import require_joinable

    require_joinable(config)


def _settle_alone(config: Config) -> None:
    """Give the data directory a manifest of its own, unless it has one.

    Raises:
        SapoError: it belongs to a swarm (exit code 3).
    """
    import time

    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.founding.alone import alone_manifest
    from sapo_client.node.runtime.manifests import ALONE, is_alone, keep_manifest, read_manifest
    from sapo_client.paths import DataDir

    data = DataDir(config.data_dir).create()
    if not data.manifest.exists():
        keep_manifest(alone_manifest(ALONE, time.time()), data)
    elif not is_alone(read_manifest(data.manifest)):
        raise SapoError(
            f"{data.root} belongs to a swarm, so it cannot train alone",
            hint="name another directory with --data-dir, or leave out --alone",
            exit_code=ExitCode.CONFIG,
        )


def _identity_file(identity: str | None) -> Path:
    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.keystore import locate

    if identity is None:
        raise SapoError(
            "no identity is given",
            hint="make one with `sapo keys new key`, then: sapo join --identity key",
            exit_code=ExitCode.KEYSTORE,
        )
    return locate(identity)
