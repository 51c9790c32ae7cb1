"""Putting the contracts on a chain, and serving newcomers from the faucet; for whoever starts a swarm.

Every function blocks: call it in a worker thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eth_account.signers.local import LocalAccount
from eth_utils import to_checksum_address
from web3 import Web3

from sapo_client.founding.deployer import Deployer
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.artifact import load
from sapo_client.ledger.contract import Contract, EpochLedgerContract, Faucet, Registry, Token, Vault
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.identifiers import Account

_TOKEN: Final = 10**18

_FAUCET_REFUSALS: Final = {
    "TooEarly": ("served this account within the last day", "wait, or send it coins yourself"),
    "Empty": ("is empty", "send it coins: anyone may, and its address is in deployment.json"),
}


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """What a new ledger is to be.

    Attributes:
        auditors: whose signatures count.
        quorum: how many of them a posting needs.
        challenge_seconds: how long a posting can be challenged; shorter than an epoch.
        epoch_budget_points: most points that one epoch may grant.
        points_cap: most points that it may grant to one account.
        auditor_bond: what an auditor must have bonded, in the token's smallest unit. The deployer bonds it
            for the first auditors, and theirs it is.
        tokens_per_point: in the token's smallest unit.
        reward_tokens: what the distributor is given, in the smallest unit; likewise the faucet's.
        faucet_wei: coins that the faucet is given, out of the deployer's.
    """

    auditors: tuple[Account, ...]
    quorum: int
    genesis_seconds: int
    epoch_seconds: int
    challenge_seconds: int
    epoch_budget_points: int
    points_cap: int
    auditor_bond: int = 100 * _TOKEN
    tokens_per_point: int = _TOKEN
    supply_tokens: int = 1_000_000_000 * _TOKEN
    reward_tokens: int = 100_000_000 * _TOKEN
    faucet_tokens: int = 1_000_000 * _TOKEN
    faucet_wei: int = 10_000 * _TOKEN
    tokens_per_drip: int = 100 * _TOKEN
    wei_per_drip: int = 10 * _TOKEN


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where the contracts came to lie."""

    chain_id: int
    token: Account
    faucet: Account
    registry: Account
    ledger: Account
    distributor: Account
    verifier: Account
    vault: Account


def deploy(rpc_urls: Sequence[str], deployer: LocalAccount | Deployer, plan: LedgerTerms) -> Deployment:
    """Deploy everything, fund distributor, faucet and bonds, and check the code that lies on the chain.

    Raises:
        LedgerError: a transaction fails, or the code is not what was sent.
    """
    rpc = Rpc(rpc_urls)
    deployer = deployer if isinstance(deployer, Deployer) else Deployer(deployer)
    holder = Account.from_hex(deployer.address)
    token = Token(rpc, _create(rpc, deployer, "SapoToken", deployer.address, plan.supply_tokens))
    registry = Registry(rpc, _create(rpc, deployer, "NodeRegistry"))
    ledger = EpochLedgerContract(rpc, _create(rpc, deployer, "EpochLedger", _terms(plan, token.address)))
    faucet = Faucet(rpc, _create_faucet(rpc, deployer, plan, token.address))
    distributor, verifier, vault = ledger.distributor(), ledger.verifier(), ledger.vault()
    _require_code((token, registry, ledger, faucet, distributor, verifier, vault))
    deployer.send(rpc, tx.Call(token.address, token.transfer(distributor.address, plan.reward_tokens)))
    deployer.send(rpc, tx.Call(token.address, token.transfer(faucet.address, plan.faucet_tokens)))
    bonds = _bond_auditors(rpc, deployer, plan=plan, token=token, vault=vault)
    if token.balance(holder) != plan.supply_tokens - plan.reward_tokens - plan.faucet_tokens - bonds:
        raise LedgerError("the token does not add up after the deployment", hint="deploy to a fresh chain")
    return Deployment(
        chain_id=int(rpc.ask(lambda web3: web3.eth.chain_id)),
        token=token.address,
        faucet=faucet.address,
        registry=registry.address,
        ledger=ledger.address,
        distributor=distributor.address,
        verifier=verifier.address,
        vault=vault.address,
    )


def fund(rpc_urls: Sequence[str], payer: LocalAccount, faucet: Account, receiver: Account) -> None:
    """Have the faucet serve a newcomer, at the payer's cost in gas.

    Raises:
        LedgerError: the faucet is empty or has served the account lately.
    """
    rpc = Rpc(rpc_urls)
    try:
        Deployer(payer).send(rpc, tx.Call(faucet, Faucet(rpc, faucet).drip(receiver)))
    except tx.Refused as refused:
        if refused.error not in _FAUCET_REFUSALS:
            raise
        text, hint = _FAUCET_REFUSALS[refused.error]
        raise LedgerError(f"the faucet {text}", hint=hint) from refused


def send_coins(rpc_urls: Sequence[str], payer: LocalAccount, receiver: Account, wei: int) -> None:
    """Send native coins, as much as named.

    Raises:
        LedgerError: the payer does not hold them.
    """
    Deployer(payer).send(Rpc(rpc_urls), tx.Call(receiver, b"", wei))


def _terms(plan: LedgerTerms, token: Account) -> tuple[object, ...]:
    """Return the ledger's only argument, in the order of its struct."""
    return (
        [to_checksum_address(auditor) for auditor in sorted(plan.auditors)],
        plan.quorum,
        plan.genesis_seconds,
        plan.epoch_seconds,
        plan.challenge_seconds,
        plan.epoch_budget_points,
        plan.points_cap,
        plan.auditor_bond,
        to_checksum_address(token),
        plan.tokens_per_point,
    )


def _bond_auditors(rpc: Rpc, deployer: Deployer, plan: LedgerTerms, token: Token, vault: Vault) -> int:
    """Bond what each auditor needs; returns what that is in all."""
    bonds = plan.auditor_bond * len(plan.auditors)
    if bonds:
        deployer.send(rpc, tx.Call(token.address, token.approve(vault.address, bonds)))
        for auditor in plan.auditors:
            deployer.send(rpc, tx.Call(vault.address, vault.deposit(auditor, plan.auditor_bond)))
    return bonds


def _create_faucet(rpc: Rpc, deployer: Deployer, plan: LedgerTerms, token: Account) -> Account:
    arguments = (to_checksum_address(token), plan.tokens_per_drip, plan.wei_per_drip)
    return _create(rpc, deployer, "Faucet", *arguments, value_wei=plan.faucet_wei)


def _create(rpc: Rpc, deployer: Deployer, name: str, *arguments: object, value_wei: int = 0) -> Account:
    artefact = load(name)
    contract = Web3().eth.contract(abi=list(artefact.abi), bytecode=artefact.bytecode)
    data = contract.constructor(*arguments).data_in_transaction
    receipt = deployer.send(rpc, tx.Call(None, bytes.fromhex(str(data)[2:]), value_wei))
    if receipt.created is None:
        raise LedgerError(f"{name} was not created", hint="deploy to a fresh chain")
    return receipt.created


def _require_code(contracts: Sequence[Contract]) -> None:
    for contract in contracts:
        if not contract.is_deployed():
            raise LedgerError(
                f"the code at {contract.address} is not {contract.NAME}",
                hint="the chain altered what was sent: do not use it",
            )
