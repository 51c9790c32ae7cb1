"""`sapo swarm`: found a swarm on a public test network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.consent import YesOption, asker
from sapo_client.cli.options import (
    ISLAND_ACCOUNTS,
    BondOption,
    Common,
    DifficultyOption,
    FamiliesOption,
    ForModel,
    IslandAccountsOption,
    IslandsOption,
    LevelOption,
    PassphraseFile,
    SampleAuditsOption,
    SwarmFolder,
    command,
    listed,
)
from sapo_client.cli.render import Output, Pairs
from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.islands import islands_of

if TYPE_CHECKING:
    from sapo_client.founding.gates import EasTerms
    from sapo_client.founding.quote import Quote
    from sapo_client.founding.swarm import Founding, SwarmTerms
    from sapo_client.founding.tasks import TaskChoice
    from sapo_client.keystore import Identity
    from sapo_protocol.identifiers import Account
    from sapo_protocol.manifest import Manifest
    from sapo_protocol.terms.audits import AuditTerms

KeyOption = Annotated[
    str, typer.Option("--key", metavar="KEY", help="Identity that signs and pays: a name, or a path.")
]
Urls = Annotated[
    list[str], typer.Option("--rpc", metavar="URL", help="JSON-RPC endpoint of the chain; may be repeated.")
]

Auditors = Annotated[
    list[str] | None,
    typer.Option("--auditor", metavar="ACCOUNT", help="Auditor: an address or an identity; repeatable."),
]
Quorum = Annotated[
    int | None,
    typer.Option("--quorum", min=1, help="Auditors that must agree; by default all but a third of them."),
]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--address", metavar="MULTIADDR", help="Address at which this identity's node can be reached."
    ),
]
Name = Annotated[str, typer.Option("--name", help="Display name of the swarm.")]
EpochSeconds = Annotated[
    int | None,
    typer.Option(
        "--epoch-seconds",
        min=10,
        metavar="S",
        help="Length of an epoch; by default two hours, ten minutes on a development chain.",
    ),
]
ChallengeSeconds = Annotated[
    int | None,
    typer.Option(
        "--challenge-seconds",
        min=1,
        metavar="S",
        help="Time to challenge a posting; by default half of an epoch, a tenth on a development chain.",
    ),
]
FinalitySeconds = Annotated[
    int, typer.Option("--finality-seconds", min=0, metavar="S", help="Age at which a block counts as final.")
]
FaucetCoins = Annotated[float, typer.Option("--faucet-coins", min=0, help="Coins that the faucet receives.")]
CoinsPerDrip = Annotated[
    float, typer.Option("--coins-per-drip", min=0, help="Coins that it sends to each newcomer.")
]
EasOption = Annotated[
    str | None,
    typer.Option(
        "--eas",
        metavar="CONTRACT",
        help="Ethereum Attestation Service that must have an attestation of every account.",
    ),
]
SchemaOption = Annotated[
    str | None, typer.Option("--schema", metavar="UID", help="Schema of the accounts' attestations.")
]
Attesters = Annotated[
    list[str] | None,
    typer.Option(
        "--attester",
        metavar="ACCOUNT",
        help="Accepted attester: an address or an identity; repeatable.",
    ),
]
CostsMoney = Annotated[
    bool,
    typer.Option(
        "--i-know-this-costs-money",
        help="Deploy on a chain that is not known as a test network, and pay with its coins.",
    ),
]


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Found a swarm, and invite others to it.",
)


@command(app)
def deploy(
    common: Common,
    folder: SwarmFolder,
    rpc: Urls,
    key: KeyOption,
    passphrase_file: PassphraseFile = None,
    auditor: Auditors = None,
    quorum: Quorum = None,
    address: Addresses = None,
    name: Name = "testnet",
    epoch_seconds: EpochSeconds = None,
    challenge_seconds: ChallengeSeconds = None,
    finality_seconds: FinalitySeconds = 60,
    faucet_coins: FaucetCoins = 0.02,
    coins_per_drip: CoinsPerDrip = 0.001,
    families: FamiliesOption = None,
    level: LevelOption = None,
    difficulty: DifficultyOption = "fixed",
    bond: BondOption = None,
    eas: EasOption = None,
    schema: SchemaOption = None,
    attester: Attesters = None,
    islands: IslandsOption = None,
    island_accounts: IslandAccountsOption = ISLAND_ACCOUNTS,
    sample_audits: SampleAuditsOption = None,
    model: ForModel = "bundled",
    costs_money: CostsMoney = False,
    yes: YesOption = False,
) -> None:
    """Found a swarm on an EVM test network: deploy its contracts and write its manifest.

    Shows every transaction and the highest possible cost, and asks before it signs. The same command resumes
    an interrupted deployment, and changes nothing once everything is deployed.
    """
    from sapo_client.founding.swarm import SwarmTerms
    from sapo_client.founding.tasks import choose_tasks

    tasks = choose_tasks(families=listed(families), level=level, model=model, difficulty=difficulty)
    founder, bootstrap = _founder(common, key, passphrase_file, address or [])
    auditors = tuple(sorted({_account(text) for text in auditor or ()})) or (founder.account,)
    epoch_seconds, window = _clock(rpc, epoch_seconds, challenge_seconds, costs_money=costs_money)
    terms = SwarmTerms(
        name=name,
        auditors=auditors,
        quorum=quorum or _usual_quorum(auditors),
        epoch_seconds=epoch_seconds,
        challenge_seconds=window,
        bootstrap=bootstrap,
        finality_seconds=finality_seconds,
        faucet_coins=faucet_coins,
        coins_per_drip=coins_per_drip,
        **asdict(tasks),
        bond=bond,
        eas=_attestation(bond, eas, schema, attester),
        islands=islands_of(islands, island_accounts, epoch_seconds),
        audits=_audits(sample_audits, tasks, epoch_seconds, finality_seconds),
    )
    founding = _founding(folder, rpc, founder, terms, costs_money=costs_money)
    manifest = _found(common, founding, founder, terms, yes=yes)
    _show_founded(common, folder, manifest, key, rpc[0], founder=founder, audits=founder.account in auditors)


def _audits(
    one_in: int | None, tasks: TaskChoice, epoch_seconds: int, finality_seconds: int
) -> AuditTerms | None:
    from sapo_client.founding.audits import audits_of

    return audits_of(
        one_in, difficulty=tasks.difficulty, epoch_seconds=epoch_seconds, finality_seconds=finality_seconds
    )


def _clock(
    rpc: list[str], epoch_seconds: int | None, challenge_seconds: int | None, *, costs_money: bool
) -> tuple[int, int]:
    """Return the length of an epoch and of the window for challenges, in seconds."""
    from sapo_client.founding.chains import agreed_chain_id
    from sapo_client.founding.defaults import clock_of
    from sapo_client.ledger.rpc import Rpc

    chain_id = agreed_chain_id(Rpc(rpc), costs_money=costs_money)
    return clock_of(chain_id, epoch_seconds, challenge_seconds)


def _attestation(
    bond: float | None, eas: str | None, schema: str | None, attesters: list[str] | None
) -> EasTerms | None:
    """Return the attestation that the founder asks for, if any."""
    from sapo_client.founding.gates import eas_terms

    contract = None if eas is None else _account(eas)
    terms = eas_terms(contract, schema, [_account(text) for text in attesters or ()])
    if terms is not None and bond is not None:
        raise SapoError(
            "a swarm requires a bond or an attestation, not both",
            hint="leave out --bond, or --eas, --schema and --attester",
            exit_code=ExitCode.USAGE,
        )
    return terms


def _founding(
    folder: Path, rpc: list[str], founder: Identity, terms: SwarmTerms, *, costs_money: bool
) -> Founding:
    from eth_account import Account as EthAccount

    from sapo_client.founding.swarm import Founding

    account = EthAccount.from_key(founder.account_key)
    return Founding(folder, rpc, account, terms, costs_money=costs_money)


def _found(
    common: Common, founding: Founding, founder: Identity, terms: SwarmTerms, *, yes: bool
) -> Manifest:
    """Return the manifest of the swarm, founding it now unless that is done."""
    from sapo_client.founding.quote import require_coins
    from sapo_client.founding.tasks import TaskChoice

    _check_quorum(common, terms)
    manifest = founding.finished()
    if manifest is None:
        for concern in founding.concerns():
            common.output.warn(concern)
        wanted = founding.quote()
        require_coins(wanted, founder.account)
        asker(common, yes)([_statement(wanted, founder.account)])
        manifest = founding.carry_out(TaskChoice(terms.level, terms.families, terms.difficulty).suite())
    return manifest


@command(app)
def faucet(
    common: Common,
    folder: SwarmFolder,
    receiver: Annotated[str, typer.Argument(metavar="ACCOUNT", help="An address, or an identity.")],
    rpc: Urls,
    key: KeyOption,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Send a newcomer coins for gas and test tokens from the faucet of a deployed swarm."""
    from eth_account import Account as EthAccount

    from sapo_client.founding import contracts
    from sapo_client.founding.swarm import faucet_of
    from sapo_client.ledger.rpc import Rpc

    payer, account = _open(common, key, passphrase_file), _account(receiver)
    place = faucet_of(folder)
    chain = Rpc(rpc, chain_id=place.chain_id)
    contracts.fund(chain, EthAccount.from_key(payer.account_key), place.contract, account)
    common.output.emit({"served": str(account)}, f"served {account}")


def register_deprecated(group: typer.Typer, group_name: str) -> None:
    """Register the commands in the group that held them up to version 0.1, hidden from its help."""
    for function in (deploy, faucet):
        group.command(function.__name__, hidden=True)(_deprecated(function, group_name))


def _deprecated(function: Callable[..., None], group_name: str) -> Callable[..., None]:
    """Return the command with a line on standard error that names its new place."""
    name = function.__name__

    @wraps(function)
    def run(**given: Any) -> None:
        Output().warn(f"`sapo {group_name} {name}` is deprecated: use `sapo swarm {name}`")
        function(**given)

    return run


def _open(common: Common, key: str, passphrase_file: Path | None) -> Identity:
    from sapo_client import keystore
    from sapo_client.passphrase import PassphraseSource

    source = PassphraseSource(passphrase_file or common.resolve().config.passphrase_file)
    return keystore.load(keystore.locate(key), source)


def _account(text: str) -> Account:
    """Parse an address, or return the account of an identity."""
    from sapo_client import keystore
    from sapo_protocol.errors import LocalProtocolError
    from sapo_protocol.identifiers import Account

    written = text if text.startswith("0x") else keystore.read(keystore.locate(text)).account
    try:
        return Account.from_hex(written)
    except LocalProtocolError as error:
        raise SapoError(
            str(error), hint="an account is written as 0x and 40 digits", exit_code=ExitCode.USAGE
        ) from error


def _founder(
    common: Common, key: str, passphrase_file: Path | None, addresses: Sequence[str]
) -> tuple[Identity, tuple[str, ...]]:
    """Return the founder and the addresses of its node."""
    founder = _open(common, key, passphrase_file)
    return founder, tuple(_reached(founder, text) for text in addresses)


def _reached(founder: Identity, address: str) -> str:
    """Return a node's address with its peer id, which others need to authenticate it.

    Raises:
        SapoError: nobody could dial it.
    """
    from sapo_client.founding.invitation import require_node_address
    from sapo_client.swarm.peer_id import peer_id_from_key

    whole = address if "/p2p/" in address else f"{address}/p2p/{peer_id_from_key(founder.node_id)}"
    require_node_address("--address", whole)
    return whole


def listen_option(founded: Manifest, founder: bytes) -> str:
    """Return the option with which the founder's node listens at its address in the manifest, if any."""
    from sapo_client.swarm.addresses import Scope, parse_address, scope_of
    from sapo_client.swarm.peer_id import peer_id_from_key

    own = peer_id_from_key(founder)
    for address in filter(None, map(parse_address, founded.bootstrap)):
        if address.peer_id == own:
            if scope_of(address.host) is Scope.MACHINE:
                return f" --listen /{address.kind}/{address.host}/tcp/{address.port}"
            everywhere = "/ip6/::" if ":" in address.host else "/ip4/0.0.0.0"
            return f" --listen {everywhere}/tcp/{address.port}"
    return ""


def _usual_quorum(auditors: Sequence[Account]) -> int:
    from sapo_protocol.settlement import quorum_size

    return quorum_size(len(auditors))


def _check_quorum(common: Common, terms: SwarmTerms) -> None:
    from sapo_protocol.settlement import max_faulty, quorum_size

    count = len(terms.auditors)
    if terms.quorum > count:
        raise SapoError(
            f"{terms.quorum} of {count} auditors cannot agree",
            hint="name more auditors with --auditor, or a smaller --quorum",
            exit_code=ExitCode.USAGE,
        )
    if terms.quorum != (best := quorum_size(count)):
        done = "change" if terms.quorum < best else "stop"
        common.output.warn(
            f"of {count} auditors {max_faulty(count)} may lie or be absent if {best} must agree; "
            f"with a quorum of {terms.quorum} fewer can {done} what is paid"
        )


def _statement(wanted: Quote, payer: Account) -> dict[str, str]:
    from sapo_client.founding.quote import coins

    confirmed = len(wanted.steps) - wanted.unsent
    steps = {}
    for number, step in enumerate(wanted.steps):
        value = f", {coins(step.value_wei)} coins with it" if step.value_wei else ""
        steps[f"{number + 1}. {step.does}"] = (
            f"{step.gas} gas{value}{' (done)' if number < confirmed else ''}"
        )
    return steps | {
        "chain id": str(wanted.chain_id),
        "account": str(payer),
        "it holds": f"{coins(wanted.balance_wei)} coins",
        "it pays at most": f"{coins(wanted.max_wei)} coins, at {wanted.fee_wei / 1e9:.3f} gwei per gas",
    }


def _show_swarm(common: Common, folder: Path, manifest: Manifest) -> None:
    document: dict[str, Any] = {
        "manifest": str(folder / "manifest.json"),
        "swarm": str(manifest.swarm_id),
        "chain": manifest.chain_id,
        "registry": str(manifest.registry),
        "ledger": str(manifest.ledger),
        "bootstrap": list(manifest.bootstrap),
    }
    common.output.emit(document, Pairs(list(document.items())))


def _show_founded(
    common: Common, folder: Path, founded: Manifest, key: str, url: str, *, founder: Identity, audits: bool
) -> None:
    """Show the swarm and how to join it."""
    from sapo_client.founding.invitation import Invitation, link
    from sapo_client.node.runtime.manifests import read_manifest

    _show_swarm(common, folder, founded)
    manifest = folder / "manifest.json"
    audit = " --audit" if audits else ""
    note = common.output.note
    payer, at = quote(key), quote(url)
    options = f"--rpc {at}{audit}{listen_option(founded, founder.node_id)}"
    note(f"Your node:      sapo join --identity {payer} --manifest {quote(str(manifest))} {options}")
    note(f"A newcomer:     sapo swarm faucet {quote(str(folder))} ACCOUNT --key {payer} --rpc {at}")
    note(f"then, at home:  sapo join '{link(Invitation(read_manifest(manifest), (url,)))}'")
