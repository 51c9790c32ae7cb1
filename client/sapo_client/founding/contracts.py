"""Deploying the contracts on a chain, and sending coins to newcomers from the faucet.

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
from sapo_client.ledger.account_bond import AccountBond
from sapo_client.ledger.artifact import load
from sapo_client.ledger.contract import Contract, EpochLedgerContract, Faucet, Registry, Token, Vault
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc
from sapo_client.units import TOKEN
from sapo_protocol.identifiers import Account

_HAS_CODE: Final = "HasCode"
_FAUCET_REFUSALS: Final = {
    _HAS_CODE: (
        "serves no contracts, and there is one at this address",
        "name an account that a key signs for",
    ),
    "TooEarly": ("served this account within the last day", "wait, or send coins to the account yourself"),
    "Empty": ("is empty", "send coins to its address in deployment.json: anyone may"),
}


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """Terms of a new ledger.

    Attributes:
        auditors: accounts whose signatures count.
        quorum: number of auditors that must sign a posting.
        challenge_seconds: time in which a posting can be challenged; shorter than an epoch.
        epoch_budget_points: most points that one epoch may grant.
        points_cap: most points that it may grant to one account.
        auditor_bond: tokens that an auditor must have bonded, in the smallest unit. The deployer bonds them
            for the first auditors, who own them.
        tokens_per_point: in the token's smallest unit.
        account_exit_seconds: exit delay of an account's bond; none: accounts need no bond.
        reward_tokens: tokens that the distributor receives, in the smallest unit; likewise `faucet_tokens`.
        faucet_wei: coins that the faucet receives from the deployer.
    """

    auditors: tuple[Account, ...]
    quorum: int
    genesis_seconds: int
    epoch_seconds: int
    challenge_seconds: int
    epoch_budget_points: int
    points_cap: int
    auditor_bond: int = 100 * TOKEN
    tokens_per_point: int = TOKEN
    account_exit_seconds: int | None = None
    supply_tokens: int = 1_000_000_000 * TOKEN
    reward_tokens: int = 100_000_000 * TOKEN
    faucet_tokens: int = 1_000_000 * TOKEN
    faucet_wei: int = 10_000 * TOKEN
    tokens_per_drip: int = 100 * TOKEN
    wei_per_drip: int = 10 * TOKEN


@dataclass(frozen=True, slots=True)
class Deployment:
    """Addresses of the deployed contracts."""

    chain_id: int
    token: Account
    faucet: Account
    registry: Account
    ledger: Account
    distributor: Account
    verifier: Account
    vault: Account
    account_bond: Account | None = None


def deploy(
    endpoints: Sequence[str] | Rpc, deployer: LocalAccount | Deployer, plan: LedgerTerms
) -> Deployment:
    """Deploy all contracts, fund distributor, faucet and bonds, and verify the code on the chain.

    Args:
        endpoints: of one chain.

    Raises:
        LedgerError: a transaction fails, or the deployed code differs from the code sent.
    """
    rpc = endpoints if isinstance(endpoints, Rpc) else Rpc(endpoints)
    deployer = deployer if isinstance(deployer, Deployer) else Deployer(deployer)
    holder = Account.from_hex(deployer.address)
    token = Token(rpc, _create(rpc, deployer, "SapoToken", deployer.address, plan.supply_tokens))
    ledger = EpochLedgerContract(rpc, _create(rpc, deployer, "EpochLedger", _terms(plan, token.address)))
    distributor, verifier, vault = ledger.distributor(), ledger.verifier(), ledger.vault()
    paying = to_checksum_address(distributor.address)
    registry = Registry(rpc, _create(rpc, deployer, "NodeRegistry", paying))
    faucet = Faucet(rpc, _create_faucet(rpc, deployer, plan, token.address))
    gate = None
    if plan.account_exit_seconds is not None:
        arguments = to_checksum_address(ledger.address), plan.account_exit_seconds
        gate = AccountBond(rpc, _create(rpc, deployer, "AccountBond", *arguments))
    gates = () if gate is None else (gate,)
    _require_code((token, registry, ledger, faucet, distributor, verifier, vault, *gates))
    deployer.send(rpc, tx.Call(token.address, token.transfer(distributor.address, plan.reward_tokens)))
    deployer.send(rpc, tx.Call(token.address, token.transfer(faucet.address, plan.faucet_tokens)))
    bonds = _bond_auditors(rpc, deployer, plan=plan, token=token, vault=vault)
    if token.balance(holder) != plan.supply_tokens - plan.reward_tokens - plan.faucet_tokens - bonds:
        raise LedgerError("the token does not add up after the deployment", hint="deploy to a fresh chain")
    return Deployment(
        chain_id=rpc.chain_id(),
        token=token.address,
        faucet=faucet.address,
        registry=registry.address,
        ledger=ledger.address,
        distributor=distributor.address,
        verifier=verifier.address,
        vault=vault.address,
        account_bond=None if gate is None else gate.address,
    )


class FaucetRefusal(LedgerError):
    """The faucet does not serve this account now."""


def require_faucet(rpc: Rpc, faucet: Account) -> Faucet:
    """Return the faucet at an address, also one of 0.1.0.

    Raises:
        LedgerError: there is another contract, or none, or no endpoint answers.
    """
    contract = Faucet(rpc, faucet)
    if contract.version() is None:
        raise LedgerError(
            f"there is no faucet at {faucet} on chain {rpc.chain_id()}",
            hint="give the RPC address of the chain that the swarm was deployed on",
        )
    return contract


def fund(rpc: Rpc, payer: LocalAccount, faucet: Account, receiver: Account) -> None:
    """Send coins and tokens from the faucet to a newcomer; the payer pays the gas.

    Raises:
        FaucetRefusal: it is empty, has served the account within a day, or the receiver is a contract.
        LedgerError: there is no faucet, or no endpoint answers.
    """
    contract = require_faucet(rpc, faucet)
    where = to_checksum_address(receiver)
    if rpc.agree(lambda web3: bytes(web3.eth.get_code(where)), f"the code at {where}"):
        raise _refusal(
            _HAS_CODE
        )  # a faucet of 0.1.0 would send it coins and run its code at the payer's expense
    try:
        Deployer(payer).send(rpc, tx.Call(faucet, contract.drip(receiver)))
    except tx.Refused as refused:
        if refused.error not in _FAUCET_REFUSALS:
            raise
        raise _refusal(refused.error) from refused


def _refusal(error: str) -> FaucetRefusal:
    text, hint = _FAUCET_REFUSALS[error]
    return FaucetRefusal(f"the faucet {text}", hint=hint)


def _terms(plan: LedgerTerms, token: Account) -> tuple[object, ...]:
    """Return the constructor argument of the ledger, in the order of its struct."""
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


def bond_accounts(
    rpc: Rpc, deployer: Deployer, at: Deployment, accounts: Sequence[Account], amount: int
) -> None:
    """Bond tokens of the deployer for accounts behind the swarm's gate; each account owns its own.

    Args:
        amount: for each of them, in the token's smallest unit.

    Raises:
        LedgerError: the swarm has no gate, or a transaction fails.
    """
    if at.account_bond is None:
        raise LedgerError("accounts of this swarm need no bond", hint="found it with --bond TOKENS")
    gate, token = AccountBond(rpc, at.account_bond), Token(rpc, at.token)
    deployer.send(rpc, tx.Call(token.address, token.approve(gate.address, amount * len(accounts))))
    for account in accounts:
        deployer.send(rpc, tx.Call(gate.address, gate.deposit(account, amount)))


def _bond_auditors(rpc: Rpc, deployer: Deployer, plan: LedgerTerms, token: Token, vault: Vault) -> int:
    """Bond tokens for each auditor; return their sum."""
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
    artifact = load(name)
    contract = Web3().eth.contract(abi=list(artifact.abi), bytecode=artifact.bytecode)
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
                hint="the chain changed the code that was sent: do not use this chain",
            )
