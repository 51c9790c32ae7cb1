"""`sapo ledger`: what this account earned, and why; and what is wrong with the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.options import Common, IdentityOption, PassphraseFile, RpcOption, command
from sapo_client.cli.render import Block, Grid, Pairs

if TYPE_CHECKING:
    from sapo_client.config import Config

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at, claim and explain what was earned; challenge what is false.",
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


def _config(
    common: Common, identity: str | None, rpc: list[str] | None, passphrase_file: Path | None
) -> Config:
    flags = {"identity": identity, "ledger.rpc_urls": rpc, "passphrase_file": passphrase_file}
    return common.resolve(flags).config


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
