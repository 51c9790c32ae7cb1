"""`sapo join`: run a node."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from sapo_client.cli.options import Common, IdentityOption, ManifestOption, PassphraseFile, RpcOption, command

if TYPE_CHECKING:
    from sapo_client.observe.status import RoundSummary


Bootstrap = Annotated[
    list[str] | None,
    typer.Option("--bootstrap", metavar="MULTIADDR", help="A node to meet first; may be repeated."),
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
    bool, typer.Option("--fresh", help="Start the policy anew instead of resuming; old checkpoints stay.")
]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, metavar="N", help="End after N steps of this run.")
]
NoLedger = Annotated[
    bool, typer.Option("--no-ledger", help="Read the chain, never write to it: learn and share without pay.")
]
Audit = Annotated[
    bool, typer.Option("--audit", help="Also count the epochs' contributions and sign their roots.")
]


def register(app: typer.Typer) -> None:
    """The command, on the root."""
    command(app)(join)


def join(
    common: Common,
    identity: IdentityOption = None,
    manifest: ManifestOption = None,
    bootstrap: Bootstrap = None,
    listen: Listen = None,
    model: Model = None,
    passphrase_file: PassphraseFile = None,
    fresh: Fresh = False,
    steps: Steps = None,
    no_ledger: NoLedger = False,
    audit: Audit = False,
    rpc: RpcOption = None,
) -> None:
    """Run a node: learn, share rollouts, learn from those of others.

    It resumes where it was. The first Ctrl-C finishes the round, checkpoints and exits with 130;
    the second one ends at once.
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
            "ledger.enabled": False if no_ledger else None,
            "ledger.audit": audit or None,
            "ledger.rpc_urls": rpc,
        }
    ).config
    opened = keystore.load(_identity_file(config.identity), PassphraseSource(config.passphrase_file))
    common.output.detail(f"identity {opened.path}, data {config.data_dir}, model {config.learner.model}")
    from sapo_client.node.app import RunOptions
    from sapo_client.node.bootstrap import run_node

    show = partial(_show_round, common)
    options, roles = RunOptions(fresh=fresh, steps=steps), click.get_current_context().find_root().obj
    raise typer.Exit(run_node(config, opened, options, show, roles=roles))


def _show_round(common: Common, summary: RoundSummary) -> None:
    """One line per round on standard output, JSON where it was asked for."""
    if common.as_json:
        typer.echo(json.dumps(asdict(summary)))
    elif not common.quiet:
        typer.echo(summary.line())


def _identity_file(identity: str | None) -> Path:
    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.keystore import locate

    if identity is None:
        raise SapoError(
            "no identity is named",
            hint="make one with `sapo keys new key`, then: sapo join --identity key",
            exit_code=ExitCode.KEYSTORE,
        )
    return locate(identity)
