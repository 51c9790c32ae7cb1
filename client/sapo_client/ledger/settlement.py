"""The fate of a transaction, as a majority of the endpoints reports it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from eth_utils import to_checksum_address
from web3 import Web3

from sapo_client.ledger.rpc import Answer, Rpc, majority
from sapo_client.ledger.transactions import Call, Receipt, Refused, estimate, find_receipt
from sapo_protocol.identifiers import Account, Digest


class Fate(Enum):
    """State of a transaction that is not settled."""

    UNSEEN = "unseen"
    """At least one endpoint has no block that holds it."""

    MINED = "mined"
    """It is in a block, which may still be reorganised away."""


@dataclass(frozen=True, slots=True)
class Settled:
    """One of several transactions with one nonce has this receipt, under enough blocks."""

    receipt: Receipt
    block_seconds: int


def fate(rpc: Rpc, digests: Sequence[Digest], confirmations: int) -> Settled | Fate:
    """Return the fate of transactions with the same nonce, of which at most one can be mined."""
    views = rpc.each(lambda web3: _look(web3, digests, confirmations))
    verdicts = [_settled_alone(view) for view in views]
    rpc.compare(verdicts, "a transaction's receipt")
    agreed = majority([verdict.value for verdict in verdicts])
    if agreed is not None:
        return agreed
    return Fate.UNSEEN if any(view.value is Fate.UNSEEN for view in views) else Fate.MINED


def _settled_alone(view: Answer[Settled | Fate]) -> Answer[Settled]:
    """Return only the settled part of an endpoint's answer: endpoints may differ in the rest."""
    return Answer(view.endpoint, view.value if isinstance(view.value, Settled) else None, view.unable)


def is_lost(rpc: Rpc, account: Account, nonce: int, digests: Sequence[Digest], confirmations: int) -> bool:
    """Whether a settled transaction other than these has used the nonce.

    Raises:
        Disagreement: the endpoints contradict each other.
    """
    return rpc.agree(lambda web3: _lost(web3, account, nonce, digests, confirmations))


def settled_refusal(rpc: Rpc, sender: Account, call: Call, confirmations: int) -> str | None:
    """Return the error with which a contract refuses a call in a settled block; none if none is known."""
    views = rpc.each(lambda web3: _refusal(web3, sender, call, confirmations), sure=True)
    return majority([answer.value for answer in views])


def _look(web3: Web3, digests: Sequence[Digest], confirmations: int) -> Settled | Fate:
    receipts = (find_receipt(web3, digest) for digest in digests)
    last_settled = _last_settled(web3, confirmations)
    found = next((receipt for receipt in receipts if receipt is not None), None)
    if found is None:
        return Fate.UNSEEN
    block = web3.eth.get_block(found.block)
    # An index may be behind a reorganisation: the chain must still hold the receipt's block.
    stands = bytes(block["hash"]) == found.block_hash
    return Settled(found, int(block["timestamp"])) if stands and found.block <= last_settled else Fate.MINED


def _lost(web3: Web3, account: Account, nonce: int, digests: Sequence[Digest], confirmations: int) -> bool:
    block = _last_settled(web3, confirmations)
    if block < 0 or web3.eth.get_transaction_count(to_checksum_address(account), block) <= nonce:
        return False
    return all(find_receipt(web3, digest) is None for digest in digests)


def _refusal(web3: Web3, sender: Account, call: Call, confirmations: int) -> str | None:
    block = _last_settled(web3, confirmations)
    if block < 0:
        return None
    try:
        estimate(web3, sender, call, block)
    except Refused as refused:
        return refused.error
    return None


def _last_settled(web3: Web3, confirmations: int) -> int:
    return int(web3.eth.block_number) - confirmations + 1
