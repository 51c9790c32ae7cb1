"""Signing a transaction, sending it, and reading why a contract refuses it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import rlp
from eth_account.signers.local import LocalAccount
from eth_utils import keccak, to_checksum_address
from web3 import Web3
from web3.exceptions import ContractLogicError, TransactionNotFound, Web3RPCError

from sapo_client.ledger.artifact import error_name
from sapo_client.ledger.errors import Disagreement, LedgerError
from sapo_client.ledger.fees import DEFAULT_LIMIT_WEI, Fees, bump, middle, quote
from sapo_client.ledger.rpc import Answer, Rpc
from sapo_protocol.identifiers import Account, Digest

T = TypeVar("T")

_GAS_MARGIN: Final = 1.2
"""Margin on a gas estimate: other transactions may come first and make a storage write more expensive."""

_MAX_GAS_RATIO: Final = 2
"""Maximum ratio of the largest gas estimate to the median."""

_USUAL_BLOCK_GAS: Final = 15_000_000

_KNOWN: Final = ("already known", "already imported", "known transaction", "alreadyknown")
"""Messages with which nodes refuse a transaction that they hold already; the wording differs."""

_NONCE_USED: Final = ("nonce too low", "nonce is too low", "oldnonce")


@dataclass(frozen=True, slots=True)
class Call:
    """The effect of a transaction: recipient (none to create a contract), data and value."""

    to: Account | None
    data: bytes
    value_wei: int = 0


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed transaction, ready to be sent any number of times.

    Attributes:
        block: the last block when it was signed.
    """

    nonce: int
    digest: Digest
    raw: bytes
    gas: int
    fees: Fees
    block: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A mined transaction's block and outcome."""

    digest: Digest
    block: int
    block_hash: Digest
    succeeded: bool
    gas_used: int
    created: Account | None


class Refused(LedgerError):
    """A contract refuses the call; ``error`` is the name of its custom error, if it gave one."""

    kind = "refused"

    def __init__(self, error: str | None, text: str) -> None:
        super().__init__(f"the contract refuses: {error or text}", hint="`sapo ledger status` shows more")
        self.error = error


class NonceUsed(LedgerError):
    """The account has sent another transaction with this nonce."""

    kind = "nonce_used"

    def __init__(self) -> None:
        super().__init__("the nonce is used up", hint="one process only may send from an account")


def sign(
    rpc: Rpc,
    account: LocalAccount,
    call: Call,
    nonce: int,
    *,
    limit_wei: int = DEFAULT_LIMIT_WEI,
    block: int = 0,
) -> Signed:
    """Return the call as a signed EIP-1559 transaction with the current fees.

    Args:
        block: number of the last block, from which its waiting time is computed later.

    Raises:
        Refused: it would revert.
        LedgerError: fees are above the limit, or the account holds too little.
        LedgerUnavailable: no endpoint answers.
    """
    sender = Account.from_hex(account.address)
    answers = rpc.each(lambda web3: (estimate(web3, sender, call), quote(web3, limit_wei)), sure=True)
    gas = _gas([gas for gas, _ in _known(answers)])
    fees = middle([fees for _, fees in _known(answers)])
    draft = Signed(nonce, Digest(bytes(Digest.SIZE)), b"", gas, fees, block)
    return _sign(rpc.chain_id(), account, call, draft)


def replacement(
    rpc: Rpc,
    account: LocalAccount,
    call: Call,
    stuck: Signed,
    *,
    limit_wei: int,
    block: int,
    urgent: bool = False,
) -> Signed | None:
    """Return the same call under the same nonce for higher fees; none if the limit leaves no room for them.

    Args:
        urgent: double the fees instead of raising them by the minimum.

    Raises:
        LedgerError: the current fees are above the limit.
        LedgerUnavailable: no endpoint answers.
    """
    today = middle(_known(rpc.each(lambda web3: quote(web3, limit_wei), sure=True)))
    fees = bump(stuck.fees, today, limit_wei, urgent=urgent)
    if fees is None:
        return None
    gas = _gas_again(rpc, Account.from_hex(account.address), call, stuck)
    return _sign(rpc.chain_id(), account, call, replace(stuck, gas=gas, fees=fees, block=block))


def send(rpc: Rpc, signed: Signed) -> None:
    """Send a transaction to every endpoint; sending it again does no harm.

    Raises:
        NonceUsed: another transaction, or this one, took the nonce already.
        LedgerError: the chain refuses it for another reason.
    """
    outcomes = rpc.broadcast(lambda web3: web3.eth.send_raw_transaction(signed.raw))
    refusals = [refusal for refusal in outcomes if refusal is not None and not _says(refusal, _KNOWN)]
    if len(refusals) < len(outcomes):
        return
    if any(_says(refusal, _NONCE_USED) for refusal in refusals):
        raise NonceUsed from refusals[0]
    raise LedgerError(
        f"the chain refuses the transaction: {_message(refusals[0])}", hint="check the account's coins"
    ) from refusals[0]


def receipt(rpc: Rpc, digest: Digest) -> Receipt | None:
    """Return a transaction's receipt once it is mined, as one endpoint reports it."""
    return rpc.ask(lambda web3: find_receipt(web3, digest))


def find_receipt(web3: Web3, digest: Digest) -> Receipt | None:
    """Return a transaction's receipt as an endpoint knows it."""
    try:
        found = web3.eth.get_transaction_receipt(_hex(digest))
    except TransactionNotFound:
        return None
    created = found.get("contractAddress")
    return Receipt(
        digest=digest,
        block=found["blockNumber"],
        block_hash=Digest(bytes(found["blockHash"])),
        succeeded=found["status"] == 1,
        gas_used=found["gasUsed"],
        created=Account.from_hex(created) if created else None,
    )


def created_by(sender: Account, nonce: int) -> Account:
    """Return the address of the contract that an account's transaction creates (``CREATE``)."""
    return Account(keccak(rlp.encode([bytes(sender), nonce]))[12:])


def head_block(rpc: Rpc) -> int:
    """Return the number of the last block."""
    return int(rpc.ask(lambda web3: web3.eth.block_number))


def next_nonce(rpc: Rpc, account: Account) -> int:
    """Return the first nonce that the chain has not seen from an account, as its endpoints agree.

    Raises:
        Disagreement: a new block has not reached all of them.
    """
    address = to_checksum_address(account)
    return rpc.agree(lambda web3: int(web3.eth.get_transaction_count(address, "latest")))


def estimate(web3: Web3, sender: Account, call: Call, block: int | None = None) -> int:
    """Return the gas that a call takes on top of a block, the last one if none is named.

    Raises:
        Refused: it would revert.
        LedgerError: the account holds too little.
    """
    fields = _fields(sender, call)
    try:
        return int(web3.eth.estimate_gas(fields, "latest" if block is None else _number(block)))
    except ContractLogicError as error:
        raise Refused(error_name(_revert_data(error)), str(error)) from error
    except Web3RPCError as error:
        raise LedgerError(
            f"the chain cannot run the call: {error}", hint="check the account's coins"
        ) from error


def _gas(estimates: Sequence[int]) -> int:
    """Return the gas limit; unused gas is not paid.

    The largest estimate, since some endpoints have a newer block, but at most twice the median: a gas limit
    above the block's is refused everywhere and would block all later nonces.

    Raises:
        Disagreement: of an even number, the two in the middle are more than that apart.
    """
    ordered = sorted(estimates)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if high > _MAX_GAS_RATIO * low:
        raise Disagreement("the gas of a call")
    return int(min(ordered[-1], _MAX_GAS_RATIO * low) * _GAS_MARGIN)


def _gas_again(rpc: Rpc, sender: Account, call: Call, stuck: Signed) -> int:
    """Return the gas limit of a replacement, from a new estimate.

    If the call would be refused now, the old limit, at most the block's: the nonce must be used in any case.
    """
    answers = rpc.each(lambda web3: estimate(web3, sender, call), sure=True)
    estimates = [answer.value for answer in answers if answer.value is not None]
    if 2 * len(estimates) > len(answers):
        return _gas(estimates)
    limits = sorted(_known(rpc.each(_block_gas, sure=True)))
    return min(stuck.gas, limits[(len(limits) - 1) // 2])


def _block_gas(web3: Web3) -> int:
    """Return the block's gas limit; if an endpoint does not report it, one that every network allows."""
    return int(web3.eth.get_block("latest").get("gasLimit", _USUAL_BLOCK_GAS))


def _known(answers: Sequence[Answer[T]]) -> list[T]:
    """Return the endpoints' values, if more than half of them have one."""
    known = [answer.value for answer in answers if answer.value is not None]
    unable = [answer.unable for answer in answers if answer.unable is not None]
    if len(known) <= len(unable):
        raise unable[0]
    return known


def _sign(chain_id: int, account: LocalAccount, call: Call, draft: Signed) -> Signed:
    fields = {
        **_fields(Account.from_hex(account.address), call),
        "chainId": chain_id,
        "nonce": draft.nonce,
        "gas": draft.gas,
        "maxPriorityFeePerGas": draft.fees.tip,
        "maxFeePerGas": draft.fees.max_fee,
    }
    signed = account.sign_transaction(fields)
    return replace(draft, digest=Digest(bytes(signed.hash)), raw=bytes(signed.raw_transaction))


def _fields(sender: Account, call: Call) -> Any:
    fields = {
        "from": to_checksum_address(sender),
        "value": call.value_wei,
        "data": "0x" + call.data.hex(),
    }
    return fields if call.to is None else {**fields, "to": to_checksum_address(call.to)}


def _message(refusal: Web3RPCError) -> str:
    """Return the message of an endpoint's refusal."""
    error = (refusal.rpc_response or {}).get("error")
    return str(error["message"]) if isinstance(error, dict) and error.get("message") else str(refusal)


def _says(refusal: Web3RPCError, phrases: Sequence[str]) -> bool:
    text = str(refusal).lower()
    return any(phrase in text for phrase in phrases)


def _revert_data(error: ContractLogicError) -> bytes:
    data = error.data
    return bytes.fromhex(data[2:]) if isinstance(data, str) and data.startswith("0x") else b""


def _number(block: int) -> Any:
    return block


def _hex(digest: Digest) -> Any:
    return "0x" + digest.hex()
