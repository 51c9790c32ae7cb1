"""Transactions and cost of a deployment, from a simulation on an embedded chain."""

from dataclasses import dataclass
from typing import Final

from eth_account.signers.local import LocalAccount
from eth_utils import function_abi_to_4byte_selector

from sapo_client.founding.contracts import LedgerTerms, deploy
from sapo_client.founding.deployer import Deployer
from sapo_client.ledger import fees
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.artifact import CONTRACTS, load
from sapo_client.ledger.chain.scratch import scratch_chain
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc
from sapo_client.units import COIN
from sapo_protocol.identifiers import Account

_GAS_MARGIN: Final = 1.25
"""Ratio of a transaction's gas limit to its estimated gas; its sender must hold coins for the limit."""


@dataclass(frozen=True, slots=True)
class QuotedTransaction:
    """One transaction of a deployment."""

    does: str
    gas: int
    value_wei: int


@dataclass(frozen=True, slots=True)
class Quote:
    """A deployment's transactions, at the chain's current fees.

    Attributes:
        fee_wei: highest price of a unit of gas; the chain usually takes half of it.
        balance_wei: balance of the account.
        unsent: number of transactions that are not mined yet.
    """

    chain_id: int
    steps: tuple[QuotedTransaction, ...]
    fee_wei: int
    balance_wei: int
    unsent: int

    @property
    def max_wei(self) -> int:
        """Upper bound of what remains to be paid, coins for the faucet included."""
        left = self.steps[len(self.steps) - self.unsent :]
        return sum(int(step.gas * _GAS_MARGIN) * self.fee_wei + step.value_wei for step in left)


def quote(rpc: Rpc, deployer: LocalAccount, plan: LedgerTerms, *, mined: int = 0) -> Quote:
    """Return the transactions and the cost of a deployment.

    Args:
        rpc: endpoints of the chain that it is meant for.
        mined: number of its transactions that are on the chain already.

    Raises:
        LedgerError: no endpoint answers.
    """
    steps = rehearse(deployer, plan)
    fee_wei = rpc.ask(lambda web3: fees.quote(web3, fees.DEFAULT_LIMIT_WEI)).max_fee
    balance_wei = int(rpc.ask(lambda web3: web3.eth.get_balance(deployer.address)))
    return Quote(rpc.chain_id(), steps, fee_wei, balance_wei, unsent=len(steps) - mined)


def require_coins(wanted: Quote, account: Account) -> None:
    """Raise unless the account can pay for it.

    Raises:
        LedgerError: it cannot.
    """
    if wanted.balance_wei < wanted.max_wei:
        raise LedgerError(
            f"{account} holds {coins(wanted.balance_wei)} coins on chain {wanted.chain_id}; "
            f"up to {coins(wanted.max_wei)} are needed",
            hint="send it coins of this test network, or lower --faucet-coins, and run the command again",
        )


def rehearse(deployer: LocalAccount, plan: LedgerTerms) -> tuple[QuotedTransaction, ...]:
    """Deploy on a temporary embedded chain, and return the transactions that it took."""
    recorder = Deployer(deployer)
    with scratch_chain([Account.from_hex(deployer.address)], lambda: plan.genesis_seconds) as url:
        deploy([url], recorder, plan)
    return tuple(
        QuotedTransaction(_does(call), receipt.gas_used, call.value_wei) for call, receipt in recorder.done
    )


def coins(wei: int) -> str:
    """Return an amount in whole coins as text."""
    return f"{wei / COIN:.6f}".rstrip("0").rstrip(".")


def _does(call: tx.Call) -> str:
    """Return a description of a call, by the interfaces of our contracts."""
    for name in CONTRACTS:
        artifact = load(name)
        if call.to is None and call.data.startswith(artifact.bytecode):
            return f"create {name}"
        functions = [entry for entry in artifact.abi if entry["type"] == "function" and call.to is not None]
        for function in functions:
            if call.data.startswith(function_abi_to_4byte_selector(function)):
                return f"call {name}.{function['name']}"
    return "send coins"
