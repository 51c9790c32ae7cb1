"""The chain itself: mine a transaction, run a call, look things up. One caller at a time."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eth.constants import CREATE_CONTRACT_ADDRESS
from eth.exceptions import HeaderNotFound, PyEVMError, Revert
from eth.vm.spoof import SpoofTransaction
from eth_utils import ValidationError
from rlp.exceptions import RLPException

from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.chain import formats
from sapo_client.ledger.chain.errors import INVALID_PARAMS, REFUSED, REVERTED, RpcError
from sapo_client.ledger.chain.store import ChainStore, IndexEntry, Json, LogFilter
from sapo_client.ledger.chain.vm import GAS_LIMIT, create_chain, open_chain
from sapo_protocol.identifiers import Account

_BIRTH_KEY: Final = b"sapo/birth"
"""Where the parameters of the genesis lie, beside py-evm's own keys (which start otherwise)."""

_PLAIN_TYPES: Final = frozenset({None, 1, 2})
"""Legacy, access-list and EIP-1559 transactions; blobs and delegations have no use here."""


@dataclass(frozen=True, slots=True)
class Genesis:
    """What a chain was created with.

    Attributes:
        funded: the accounts that hold coins from the start.
    """

    chain_id: int
    funded: tuple[Account, ...]

    def to_bytes(self) -> bytes:
        """The form that is kept."""
        return json.dumps([self.chain_id, [account.hex() for account in self.funded]]).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Genesis":
        """The kept form, read."""
        chain_id, funded = json.loads(raw)
        return cls(chain_id, tuple(map(Account.from_hex, funded)))


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call or a transaction to be tried, not sent; gas and value in their smallest units."""

    sender: bytes
    to: bytes
    data: bytes
    value: int
    gas: int


class Engine:
    """The open chain. The server's lock serialises every method.

    Args:
        now: the clock that stamps blocks, in seconds since the Unix epoch.
    """

    def __init__(self, path: Path, birth: Genesis, *, now: Callable[[], float] = time.time) -> None:
        self._store = ChainStore(path)
        self._now = now
        self.birth = self._settle_birth(birth)
        self._chain = open_chain(self._store.pairs, self.birth.chain_id)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def _settle_birth(self, wanted: Genesis) -> Genesis:
        if _BIRTH_KEY not in self._store.pairs:
            create_chain(self._store.pairs, wanted.chain_id, int(self._now()), wanted.funded)
            self._store.pairs[_BIRTH_KEY] = wanted.to_bytes()
            self._store.commit()
            return wanted
        born = Genesis.from_bytes(self._store.pairs[_BIRTH_KEY])
        if born.chain_id != wanted.chain_id or not set(wanted.funded) <= set(born.funded):
            raise SapoError(
                f"the folder holds chain {born.chain_id} with other accounts or another id than asked for",
                hint="name another folder with --data, or leave out --fund and --chain-id",
                exit_code=ExitCode.LEDGER,
            )
        return born

    # Blocks

    @property
    def head(self) -> Any:
        """The last block's header."""
        return self._chain.get_canonical_head()

    def header(self, number: int) -> Any:
        """The header of a block by number."""
        try:
            return self._chain.get_canonical_block_header_by_number(number)
        except HeaderNotFound as error:
            raise RpcError(INVALID_PARAMS, f"there is no block {number}") from error

    def block(self, header: Any, *, full: bool) -> Json:
        """A block as JSON."""
        transactions = self._store.transactions_in(header.block_number)
        return formats.block_json(self._chain.get_block_by_header(header), transactions, full=full)

    def header_by_hash(self, block_hash: bytes) -> Any | None:
        """The header of a block by hash."""
        try:
            return self._chain.get_block_header_by_hash(block_hash)
        except HeaderNotFound:
            return None

    def transaction(self, transaction_hash: bytes) -> Json | None:
        """A mined transaction as JSON."""
        return self._store.transaction(transaction_hash)

    def receipt(self, transaction_hash: bytes) -> Json | None:
        """A mined transaction's receipt as JSON."""
        return self._store.receipt(transaction_hash)

    def logs(self, wanted: LogFilter) -> list[Json]:
        """Matching logs as JSON."""
        return self._store.logs(wanted)

    def state(self, header: Any) -> Any:
        """The accounts as a block left them."""
        return self._chain.get_vm(header).state

    # Sending

    def send(self, raw: bytes) -> bytes:
        """Mine a signed transaction into a block of its own, on disk when this returns its hash.

        Raises:
            RpcError: it is malformed, known, or not valid on top of the head.
        """
        transaction = self._decode(raw)
        self._refuse_unfit(transaction)
        header = self._next_header()
        try:
            block, receipt, created = self._apply(transaction, header)
            entry = self._index_entry(transaction, block.header, receipt, created)
            self._store.commit(entry)
        except (ValidationError, PyEVMError) as error:
            raise RpcError(REFUSED, str(error)) from error
        finally:
            self._store.pairs.discard()
        return bytes(transaction.hash)

    def _decode(self, raw: bytes) -> Any:
        builder = self._chain.get_vm_class(self.head).get_transaction_builder()
        try:
            transaction = builder.decode(raw)
            transaction.validate()
        except (RLPException, ValidationError, PyEVMError, ValueError, TypeError) as error:
            raise RpcError(INVALID_PARAMS, f"not a signed transaction: {error}") from error
        if transaction.type_id not in _PLAIN_TYPES:
            raise RpcError(REFUSED, f"transactions of type {transaction.type_id} are not mined here")
        return transaction

    def _refuse_unfit(self, transaction: Any) -> None:
        if transaction.chain_id != self.birth.chain_id:
            raise RpcError(
                REFUSED, f"transaction for chain {transaction.chain_id}, this is {self.birth.chain_id}"
            )
        if self._store.receipt(transaction.hash) is not None:
            raise RpcError(REFUSED, "already known")
        nonce = self.state(self.head).get_nonce(transaction.sender)
        if transaction.nonce != nonce:
            fault = "low" if transaction.nonce < nonce else "high"
            raise RpcError(
                REFUSED, f"nonce too {fault}: next is {nonce}, transaction has {transaction.nonce}"
            )

    def _next_header(self) -> Any:
        head = self.head
        # A clock that was set back must not break the order that the search by time relies on.
        return self._header_after(head, max(head.timestamp, int(self._now())))

    def _header_after(self, parent: Any, timestamp: int) -> Any:
        return self._chain.create_header_from_parent(parent, timestamp=timestamp, gas_limit=GAS_LIMIT)

    def _apply(self, transaction: Any, header: Any) -> tuple[Any, Any, bytes | None]:
        machine = self._chain.get_vm(header)
        new_header, receipts, computations = machine.apply_all_transactions([transaction], header)
        filled = machine.set_block_transactions_and_withdrawals(
            machine.get_block(), new_header, [transaction], receipts
        )
        block = machine.mine_block(filled).block
        self._chain.chaindb.persist_block(block)
        message = computations[0].msg
        return block, receipts[0], bytes(message.storage_address) if message.is_create else None

    def _index_entry(self, transaction: Any, header: Any, receipt: Any, created: bytes | None) -> IndexEntry:
        return IndexEntry(
            bytes(transaction.hash),
            header.block_number,
            formats.transaction_json(transaction, header, self.birth.chain_id),
            formats.receipt_json(transaction, header, receipt, created),
        )

    # Trying

    def call(self, request: CallRequest, header: Any) -> bytes:
        """What a call returns on top of a block.

        Raises:
            RpcError: it reverts (with the contract's data) or cannot run.
        """
        computation = self._try(request, header)
        _raise_if_failed(computation)
        return bytes(computation.output)

    def estimate_gas(self, request: CallRequest, header: Any) -> int:
        """A gas limit that suffices on top of a block.

        A call may take more than it uses in the end: refunds come late, and one call keeps 1/64 of its
        gas from the calls that it makes (EIP-150). So what it used is tried as a limit, then a bit more.
        """
        generous = self._try(request, header)
        _raise_if_failed(generous)
        used = generous.transaction_gas_used
        for limit in (used, used * 64 // 63 + 2_300, used * 3 // 2):
            if limit < request.gas and self._suffices(request, limit, header):
                return int(limit)
        return request.gas

    def _suffices(self, request: CallRequest, limit: int, header: Any) -> bool:
        tighter = CallRequest(request.sender, request.to, request.data, request.value, limit)
        try:
            return not self._try(tighter, header).is_error
        except RpcError:
            return False

    def _try(self, request: CallRequest, header: Any) -> Any:
        state = self._state_to_try(header)
        transaction = self._spoof(request, state.get_nonce(request.sender))
        try:
            computation = state.costless_execute_transaction(transaction)
        except (ValidationError, PyEVMError) as error:
            raise RpcError(REFUSED, str(error)) from error
        finally:
            self._store.pairs.discard()
        computation.transaction_gas_used = request.gas - computation.get_gas_remaining()
        return computation

    def _state_to_try(self, header: Any) -> Any:
        """The accounts as a block left them, in the block that would be mined on it now, free of charge.

        On top of the head that is the present second: a chain that was idle for an hour must not answer
        with the time of an hour ago.
        """
        following = (
            self._next_header() if header == self.head else self._header_after(header, header.timestamp)
        )
        free = following.copy(base_fee_per_gas=0)
        machine = self._chain.get_vm(free)
        return machine.build_state(
            self._chain.chaindb.db, free, machine.chain_context, machine.previous_hashes
        )

    def _spoof(self, request: CallRequest, nonce: int) -> Any:
        unsigned = self._chain.get_vm_class(self.head).create_unsigned_transaction(
            nonce=nonce,
            gas_price=0,
            gas=request.gas,
            to=request.to or CREATE_CONTRACT_ADDRESS,
            value=request.value,
            data=request.data,
        )
        return SpoofTransaction(unsigned, from_=request.sender)


def funded(addresses: Iterable[str]) -> tuple[Account, ...]:
    """Accounts as written on the command line, each once, ascending."""
    return tuple(sorted({Account.from_hex(address) for address in addresses}))


def _raise_if_failed(computation: Any) -> None:
    if not computation.is_error:
        return
    if isinstance(computation.error, Revert):
        raise RpcError(REVERTED, "execution reverted", formats.data(bytes(computation.output)))
    raise RpcError(REFUSED, f"{type(computation.error).__name__}: {computation.error}")
