"""`sapo ledger`: what this account earned, and why; and what is wrong with the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.consent import YesOption, asker
from sapo_client.cli.options import (
    Common,
    IdentityOption,
    ManifestOption,
    PassphraseFile,
    RpcOption,
    command,
)
from sapo_client.cli.render import Block, Grid, Pairs

if TYPE_CHECKING:
    from sapo_client.config import Config

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at, claim, explain and check what was earned; challenge what is false; give up a node key.",
)


@command(app)
def status(
    common: Common,
    identity: IdentityOption = None,
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Show registration, points, what is claimable and what waits to be sent."""
    from sapo_client.node import ledger_commands

    _print(common, ledger_commands.status(_config(common, identity, rpc, passphrase_file)))


@command(app)
def register(
    common: Common,
    identity: IdentityOption = None,
    manifest: ManifestOption = None,
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Register the node key with the account, as `sapo join` does by itself."""
    from sapo_client.node import ledger_commands

    _print(common, ledger_commands.register(_config(common, identity, rpc, passphrase_file, manifest)))


@command(app)
def claim(
    common: Common,
    identity: IdentityOption = None,
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Claim what final epochs granted to this account."""
    from sapo_client.node import ledger_commands

    _print(common, ledger_commands.claim(_config(common, identity, rpc, passphrase_file)))


@command(app)
def challenge(
    common: Common,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", min=0, help="Number of the epoch.")],
    identity: IdentityOption = None,
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Prove an epoch's posting or one of its auditors false, from what this node heard."""
    from sapo_client.node import ledger_commands

    _print(common, ledger_commands.challenge(_config(common, identity, rpc, passphrase_file), epoch))


@command(app)
def payout(
    common: Common,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Account that is to be paid.")],
    identity: IdentityOption = None,
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Have claims paid to ADDRESS: at once the first time, seven days after its announcement later."""
    from sapo_client.node import ledger_commands

    _print(common, ledger_commands.payout(_config(common, identity, rpc, passphrase_file), address))


@command(app)
def explain(
    common: Common,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", min=0, help="Number of the epoch.")],
    identity: IdentityOption = None,
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Show which own rollouts of an epoch counted, and why others did not."""
    from sapo_client.node import ledger_commands

    _print(common, ledger_commands.explain(_config(common, identity, rpc, passphrase_file), epoch))


@command(app)
def audit(
    common: Common,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", min=0, help="Number of the epoch.")],
    rpc: RpcOption = None,
) -> None:
    """Recompute an epoch's root from the tallies that this node heard; exit 7 unless it follows from them."""
    from sapo_client.node import epoch_audit

    _judge(common, epoch_audit.audit(_config(common, rpc=rpc), epoch))


@command(app)
def export(
    common: Common,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", min=0, help="Number of the epoch.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Write what is behind an epoch's root to a file, for `sapo ledger verify` anywhere."""
    from sapo_client.node import epoch_audit

    _print(common, epoch_audit.export(_config(common), epoch, file))


@command(app)
def verify(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `ledger export` wrote.")],
    manifest: ManifestOption = None,
    rpc: RpcOption = None,
) -> None:
    """Recompute an epoch's root from an exported file and the chain; exit 7 unless it follows from them."""
    from sapo_client.node import epoch_audit

    _judge(common, epoch_audit.verify(_config(common, rpc=rpc, manifest=manifest), file))


@command(app)
def revoke(
    common: Common,
    node: Annotated[str, typer.Argument(metavar="NODE_ID", help="The node key to give up.")],
    identity: IdentityOption = None,
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
    yes: YesOption = False,
) -> None:
    """End this account's claim on a node key, such as one of a lost machine."""
    from sapo_client.node import ledger_commands
    from sapo_protocol.errors import LocalProtocolError
    from sapo_protocol.identifiers import NodeId

    try:
        key = NodeId.from_hex(node)
    except LocalProtocolError as error:
        raise typer.BadParameter(str(error), param_hint="NODE_ID") from error
    config = _config(common, identity, rpc, passphrase_file)
    _print(common, ledger_commands.revoke(config, key, asker(common, yes)))


def _config(
    common: Common,
    identity: str | None = None,
    rpc: list[str] | None = None,
    passphrase_file: Path | None = None,
    manifest: Path | None = None,
) -> Config:
    flags = {
        "identity": identity,
        "ledger.rpc_urls": rpc,
        "passphrase_file": passphrase_file,
        "swarm.manifest": manifest,
    }
    return common.resolve(flags).config


def _judge(common: Common, facts: dict[str, Any]) -> None:
    from sapo_client.errors import ExitCode
    from sapo_client.node.epoch_audit import EXPLAINED

    _print(common, facts)
    if not facts["paid as by all tallies"]:
        common.output.warn("a proposer left tallies out, and that changed what some accounts were paid")
    raise typer.Exit(ExitCode.DONE if facts["verdict"] == EXPLAINED else ExitCode.VERIFICATION)


def _print(common: Common, facts: dict[str, Any]) -> None:
    """Single values as pairs; each list of records as a table below them."""
    pairs = [(name, value) for name, value in facts.items() if not isinstance(value, list)]
    tables = [
        Grid(tuple(value[0]), [tuple(record.values()) for record in value])
        for value in facts.values()
        if isinstance(value, list) and value
    ]
    blocks: list[Block] = [Pairs(pairs)]
    for table in tables:
        blocks += ["", table]
    common.output.emit(facts, *blocks)
