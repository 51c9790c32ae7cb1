"""`sapo ledger`: points, claims, bonds, audits and challenges of an account."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.consent import SigningOptions
from sapo_client.cli.options import AccountOptions, Common, ManifestOption, RpcOption, command
from sapo_client.cli.render import Block, Grid, Pairs

if TYPE_CHECKING:
    from sapo_client.config import Config

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, claim, explain and audit points; bond tokens; challenge false postings; revoke a key.",
)

OfAccount = Annotated[
    bool,
    typer.Option(
        "--account",
        help="The account's bond for the swarm's gate, not the auditor's bond.",
    ),
]
Epoch = Annotated[int, typer.Argument(metavar="EPOCH", min=0, help="Number of the epoch.")]


@command(app)
def status(options: AccountOptions) -> None:
    """Show registration, points, claimable points, the bond, and queued transactions."""
    from sapo_client.account import ledger_commands

    _print(options, ledger_commands.status(options.account_config()))


@command(app)
def register(options: SigningOptions) -> None:
    """Register the node key with the account, or renew it, as `sapo join` does automatically."""
    from sapo_client.account import ledger_commands

    _print(options, ledger_commands.register(options.account_config(), options.ask))


@command(app)
def claim(options: SigningOptions) -> None:
    """Claim what final epochs granted to this account."""
    from sapo_client.account import ledger_commands

    _print(options, ledger_commands.claim(options.account_config(), options.ask))


@command(app)
def challenge(options: SigningOptions, epoch: Epoch) -> None:
    """Prove an epoch's posting or one of its auditors false, from messages that this node received."""
    from sapo_client.account import ledger_commands

    _print(options, ledger_commands.challenge(options.account_config(), epoch, options.ask))


@command(app)
def finalise(options: SigningOptions) -> None:
    """Make the epoch in its challenge window final once the window is over; any account may."""
    from sapo_client.account import ledger_commands

    _print(options, ledger_commands.finalise(options.account_config(), options.ask))


@command(app)
def payout(
    options: SigningOptions,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Account that claims are paid to.")],
) -> None:
    """Pay claims to ADDRESS: at once for the first address, a change seven days after its announcement."""
    from sapo_client.account import payouts

    _print(options, payouts.payout(options.account_config(), address, options.ask))


@command(app)
def bond(
    options: SigningOptions,
    amount: Annotated[
        str | None, typer.Argument(metavar="AMOUNT", help="Tokens; the missing part of the bond if left out.")
    ] = None,
    account: OfAccount = False,
) -> None:
    """Bond tokens of an auditor, or of an account in a swarm that requires it.

    Without its bond an auditor's signatures are not valid, and it loses the bond for a false one. In a swarm
    that requires a bond, an account without one is ignored, and loses it for two contents in one slot.
    """
    from sapo_client.account import bonds

    _print(options, bonds.bond(options.account_config(), _tokens(amount), options.ask, account=account))


@command(app, "exit")
def leave(
    options: SigningOptions,
    amount: Annotated[
        str | None, typer.Argument(metavar="AMOUNT", help="Tokens; the whole bond if left out.")
    ] = None,
    account: OfAccount = False,
) -> None:
    """Start the exit of tokens from the bond.

    They can be withdrawn more than two epochs later, those of an account's bond fourteen epochs later.
    """
    from sapo_client.account import bonds

    _print(options, bonds.leave(options.account_config(), _tokens(amount), options.ask, account=account))


@command(app)
def withdraw(options: SigningOptions, account: OfAccount = False) -> None:
    """Withdraw the tokens of `sapo ledger exit` after its delay."""
    from sapo_client.account import bonds

    _print(options, bonds.withdraw(options.account_config(), options.ask, account=account))


@command(app)
def explain(options: AccountOptions, epoch: Epoch) -> None:
    """Show which own rollouts of an epoch counted, and why others did not."""
    from sapo_client.account import ledger_commands

    _print(options, ledger_commands.explain(options.account_config(), epoch))


@command(app)
def audit(common: Common, epoch: Epoch, rpc: RpcOption = None) -> None:
    """Recompute an epoch's root from the tallies that this node received; exit 7 unless it follows."""
    from sapo_client.account import epoch_audit

    _show_audit(common, epoch_audit.audit(_config(common, rpc), epoch))


@command(app)
def export(
    common: Common,
    epoch: Epoch,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Write the messages behind an epoch's root to a file, for `sapo ledger verify` on any machine."""
    from sapo_client.account import epoch_audit

    _print(common, epoch_audit.export(_config(common), epoch, file))


@command(app)
def verify(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `ledger export` wrote.")],
    manifest: ManifestOption = None,
    rpc: RpcOption = None,
) -> None:
    """Recompute an epoch's root from an exported file and the chain; exit 7 unless it follows."""
    from sapo_client.account import epoch_audit

    _show_audit(common, epoch_audit.verify(_config(common, rpc, manifest), file))


@command(app)
def revoke(
    options: SigningOptions,
    node: Annotated[str, typer.Argument(metavar="NODE_ID", help="The node key to revoke.")],
) -> None:
    """End this account's claim on a node key, such as that of a lost machine."""
    from sapo_client.account import ledger_commands
    from sapo_protocol.errors import LocalProtocolError
    from sapo_protocol.identifiers import NodeId

    try:
        key = NodeId.from_hex(node)
    except LocalProtocolError as error:
        raise typer.BadParameter(str(error), param_hint="NODE_ID") from error
    _print(options, ledger_commands.revoke(options.account_config(), key, options.ask))


def _tokens(amount: str | None) -> int | None:
    from sapo_client.account.tokens import parse_tokens

    return None if amount is None else parse_tokens(amount)


def _config(common: Common, rpc: list[str] | None = None, manifest: Path | None = None) -> Config:
    return common.resolve({"ledger.rpc_urls": rpc, "swarm.manifest": manifest}).config


def _show_audit(common: Common, facts: dict[str, Any]) -> None:
    from sapo_client.account.epoch_audit import EXPLAINED
    from sapo_client.errors import ExitCode

    _print(common, facts)
    if not facts["paid as by all tallies"]:
        common.output.warn("a proposer left tallies out, and that changed what some accounts were paid")
    raise typer.Exit(ExitCode.DONE if facts["verdict"] == EXPLAINED else ExitCode.VERIFICATION)


def _print(common: Common, facts: dict[str, Any]) -> None:
    """Print single values as pairs, and each list of records as a table below them."""
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
