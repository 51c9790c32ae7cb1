"""Signing a transaction, sending it, and reading why a contract refuses it."""

from dataclasses import dataclass
from typing import Any, Final

from eth_account.signers.local import LocalAccount
from eth_utils import to_checksum_address
from web3 import Web3
from web3.exceptions import ContractLogicError, TransactionNotFound, Web3RPCError

from sapo_client.ledger.contract import error_name
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.identifiers import Account, Digest

_GAS_MARGIN: Final = 1.2
"""What others do between the estimate and the block may cost us more: a first write instead of a second."""

_BASE_FEE_HEADROOM: Final = 2
"""The base fee at most doubles in six full blocks; what is not needed is not paid."""

_KNOWN: Final = ("already known", "already imported", "known transaction", "alreadyknown")
"""How nodes say that a repeated transaction is the one they hold; the wording differs."""

_NONCE_USED: Final = ("nonce too low", "nonce is too low", "oldnonce")


@dataclass(frozen=True, slots=True)
class Call:
    """What a transaction does: whom it calls (nobody to create a contract), with what."""

    to: Account | None
    data: bytes
    value_wei: int = 0


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed transaction, ready to be sent any number of times."""

    nonce: int
    digest: Digest
    raw: bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """A transaction's place in the chain and its end."""

    block: int
    succeeded: bool
    gas_used: int
    created: Account | None


class Refused(LedgerError):
    """A contract refuses the call; ``error`` is the name of its custom error, if it gave one."""

    def __init__(self, error: str | None, text: str) -> None:
        super().__init__(f"the contract refuses: {error or text}", hint="`sapo ledger status` shows more")
        self.error = error


class NonceUsed(LedgerError):
    """The account has sent another transaction with this nonce."""

    def __init__(self) -> None:
        super().__init__("the nonce is used up", hint="one process only may send from an account")


def sign(rpc: Rpc, account: LocalAccount, call: Call, nonce: int) -> Signed:
    """The call as a signed EIP-1559 transaction with today's fees.

    Raises:
        Refused: it would revert.
        LedgerUnavailable: no endpoint answers.
    """
    fields = rpc.ask(lambda web3: _priced(web3, account.address, call))
    signed = account.sign_transaction({**fields, "nonce": nonce})
    return Signed(nonce, Digest(bytes(signed.hash)), bytes(signed.raw_transaction))


def send(rpc: Rpc, signed: Signed) -> None:
    """Hand a transaction to the chain; sending it again does no harm.

    Raises:
        NonceUsed: another transaction, or this one, took the nonce already.
        LedgerError: the chain refuses it for another reason.
    """
    try:
        rpc.ask(lambda web3: web3.eth.send_raw_transaction(signed.raw))
    except Web3RPCError as error:
        text = str(error).lower()
        if any(phrase in text for phrase in _KNOWN):
            return
        if any(phrase in text for phrase in _NONCE_USED):
            raise NonceUsed from error
        raise LedgerError(
            f"the chain refuses the transaction: {error}", hint="check the account's coins"
        ) from error


def receipt(rpc: Rpc, digest: Digest) -> Receipt | None:
    """A transaction's receipt once it is mined."""
    try:
        found = rpc.ask(lambda web3: web3.eth.get_transaction_receipt(_hex(digest)))
    except TransactionNotFound:
        return None
    created = found.get("contractAddress")
    return Receipt(
        block=found["blockNumber"],
        succeeded=found["status"] == 1,
        gas_used=found["gasUsed"],
        created=Account.from_hex(created) if created else None,
    )


def head_block(rpc: Rpc) -> int:
    """The number of the last block."""
    return int(rpc.ask(lambda web3: web3.eth.block_number))


def next_nonce(rpc: Rpc, account: Account) -> int:
    """The first nonce that the chain has not seen from an account."""
    address = to_checksum_address(account)
    return int(rpc.ask(lambda web3: web3.eth.get_transaction_count(address, "latest")))


def _priced(web3: Web3, sender: str, call: Call) -> dict[str, Any]:
    tip = web3.eth.max_priority_fee
    base_fee = web3.eth.get_block("latest")["baseFeePerGas"]
    fields = {
        "chainId": web3.eth.chain_id,
        "from": sender,
        "value": call.value_wei,
        "data": "0x" + call.data.hex(),
        "maxPriorityFeePerGas": tip,
        "maxFeePerGas": _BASE_FEE_HEADROOM * base_fee + tip,
    }
    if call.to is not None:
        fields["to"] = to_checksum_address(call.to)
    return {**fields, "gas": int(_estimate(web3, fields) * _GAS_MARGIN)}


def _estimate(web3: Web3, fields: dict[str, Any]) -> int:
    try:
        return int(web3.eth.estimate_gas(fields))  # type: ignore[arg-type]  # web3's TypedDict
    except ContractLogicError as error:
        raise Refused(error_name(_revert_data(error)), str(error)) from error
    except Web3RPCError as error:
        raise LedgerError(
            f"the chain cannot run the call: {error}", hint="check the account's coins"
        ) from error


def _revert_data(error: ContractLogicError) -> bytes:
    data = error.data
    return bytes.fromhex(data[2:]) if isinstance(data, str) and data.startswith("0x") else b""


def _hex(digest: Digest) -> Any:
    return "0x" + digest.hex()
