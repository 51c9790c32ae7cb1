"""The chain itself: mines transactions, runs calls and answers queries, for one caller at a time."""

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from rlp.exceptions import RLPException

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.chain import formats, transaction
from sapo_client.ledger.chain.errors import INVALID_PARAMS, REFUSED, REVERTED, RpcError
from sapo_client.ledger.chain.evm import (
    AccountState,
    BlockContext,
    CallInvalid,
    CallRequest,
    CallResult,
    EvmState,
    Outcome,
    StateChanges,
    TransactionInvalid,
)
from sapo_client.ledger.chain.header import GAS_LIMIT, Header, genesis_header
from sapo_client.ledger.chain.replay import OldChain, ReplayMismatch
from sapo_client.ledger.chain.store import Block, ChainStore, IndexEntry, Json, LogFilter
from sapo_client.ledger.chain.transaction import SignedTransaction
from sapo_protocol.identifiers import Account

GENESIS_WEI: Final = 10**24
"""A million coins per account of the genesis: never the reason why a local swarm stops."""

_STATES: Final = 8
"""States in memory: clients ask for the last few blocks again and again. Older ones are read again."""

_RECENT_HASHES: Final = 256
"""As far back as the opcode BLOCKHASH sees."""


@dataclass(frozen=True, slots=True)
class Genesis:
    """The parameters of a chain's creation.

    Attributes:
        alloc: the accounts that hold coins from the start.
    """

    chain_id: int
    alloc: tuple[Account, ...]

    def to_bytes(self) -> bytes:
        """Return the form that is kept."""
        return json.dumps([self.chain_id, [account.hex() for account in self.alloc]]).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Genesis":
        """Read the form that is kept."""
        chain_id, alloc = json.loads(raw)
        return cls(chain_id, tuple(map(Account.from_hex, alloc)))


class OpenState(Protocol):
    """How a machine begins: with all accounts and all storage slots."""

    def __call__(
        self, accounts: Mapping[bytes, AccountState], slots: Mapping[tuple[bytes, int], int], /
    ) -> EvmState:
        """Return the state."""


class EmbeddedChain:
    """The open chain. The server's lock serialises every method.

    Args:
        now: the clock that stamps blocks, in seconds since the Unix epoch.

    Raises:
        SapoError: the extra ``testnet`` is missing, or the file holds a chain with another genesis.
    """

    def __init__(self, path: Path, genesis: Genesis, *, now: Callable[[], float] = time.time) -> None:
        self._open_state = load_machine()
        self._store = ChainStore(path)
        self._now = now
        self._states: OrderedDict[bytes, EvmState] = OrderedDict()
        self._replay_old_form(path)
        self.genesis = self._settle_genesis(genesis)
        self.head = self._store.head()

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def _settle_genesis(self, wanted: Genesis) -> Genesis:
        stored = self._store.genesis()
        if stored is None:
            with self._store.transaction_of_all():
                self._begin(wanted, int(self._now()))
            return wanted
        found = Genesis.from_bytes(stored)
        if found.chain_id != wanted.chain_id or not set(wanted.alloc) <= set(found.alloc):
            raise SapoError(
                f"the folder holds chain {found.chain_id} with other accounts or another id than asked for",
                hint="name another folder with --data, or leave out --fund and --chain-id",
                exit_code=ExitCode.LEDGER,
            )
        return found

    def _begin(self, genesis: Genesis, timestamp: int) -> None:
        accounts = {bytes(account): AccountState(balance=GENESIS_WEI) for account in genesis.alloc}
        state = self._open_state(accounts, {})
        self._store.put_genesis(genesis.to_bytes())
        self._store.put(Block(genesis_header(timestamp, state.root()), None, StateChanges(accounts)))

    def _replay_old_form(self, path: Path) -> None:
        """Bring a file of version 0.1.0 into the present form; a kill in between leaves it as it was."""
        old = OldChain(self._store.connection)
        if self._store.genesis() is not None or not old.is_present():
            return
        try:
            with self._store.transaction_of_all():
                self._replay(old)
                old.forget()
        except (ValueError, RLPException, RpcError) as error:
            self._store.close()
            raise SapoError(
                f"{path} is a chain of version 0.1.0 that cannot be replayed: {error}",
                hint="open it with version 0.1.0, or start a new testnet in another folder",
                exit_code=ExitCode.LEDGER,
            ) from error

    def _replay(self, old: OldChain) -> None:
        self.genesis = Genesis.from_bytes(old.genesis())
        for block in old.blocks():
            if block.raw is None:
                self._begin(self.genesis, block.header.timestamp)
            else:
                mined, state = self._mined(self.decode(block.raw), block.header.timestamp)
                self._store.put(replace(mined, entry=None))  # the index is the same in both forms
                self._remember(mined.header, state)
            self.head = self._store.head()
            if self.head.hash != block.header.hash:
                raise ReplayMismatch(f"block {block.header.block_number} comes out with another hash")

    # Blocks

    def header(self, number: int) -> Header:
        """Return the header of a block by number.

        Raises:
            RpcError: there is no such block.
        """
        found = self._store.header(number)
        if found is None:
            raise RpcError(INVALID_PARAMS, f"there is no block {number}")
        return found

    def block(self, header: Header, *, full: bool) -> Json:
        """Return a block as JSON."""
        number = header.block_number
        return formats.block_json(
            header, self._store.raw(number), self._store.transactions_in(number), full=full
        )

    def header_by_hash(self, block_hash: bytes) -> Header | None:
        """Return the header of a block by hash."""
        return self._store.header_by_hash(block_hash)

    def transaction(self, transaction_hash: bytes) -> Json | None:
        """Return a mined transaction as JSON."""
        return self._store.transaction(transaction_hash)

    def receipt(self, transaction_hash: bytes) -> Json | None:
        """Return a mined transaction's receipt as JSON."""
        return self._store.receipt(transaction_hash)

    def logs(self, wanted: LogFilter) -> list[Json]:
        """Return matching logs as JSON."""
        return self._store.logs(wanted)

    def state(self, header: Header) -> EvmState:
        """Return the accounts as a block left them; not to be changed."""
        known = self._states.get(header.hash)
        if known is None:
            number = header.block_number
            known = self._open_state(self._store.accounts(number), self._store.slots(number))
        self._remember(header, known)
        return known

    def _remember(self, header: Header, state: EvmState) -> None:
        self._states[header.hash] = state
        self._states.move_to_end(header.hash)
        while len(self._states) > _STATES:
            self._states.popitem(last=False)

    # Sending

    def send(self, raw: bytes) -> bytes:
        """Mine a signed transaction into a block of its own, on disk when this returns its hash.

        Raises:
            RpcError: it is malformed, known, or not valid on top of the head.
        """
        signed = self.decode(raw)
        self._refuse_unfit(signed)
        block, state = self._mined(signed, self._next_timestamp())
        with self._store.transaction_of_all():
            self._store.put(block)
        self._remember(block.header, state)
        self.head = block.header
        return signed.hash

    @staticmethod
    def decode(raw: bytes) -> SignedTransaction:
        """Read a signed transaction.

        Raises:
            RpcError: it is malformed, or of a type that is not mined here.
        """
        try:
            return transaction.decode(raw)
        except transaction.MalformedTransaction as error:
            raise RpcError(INVALID_PARAMS, f"not a signed transaction: {error}") from error
        except transaction.UnsupportedTransaction as error:
            raise RpcError(REFUSED, str(error)) from error

    def _refuse_unfit(self, signed: SignedTransaction) -> None:
        if signed.chain_id != self.genesis.chain_id:
            raise RpcError(
                REFUSED, f"transaction for chain {signed.chain_id}, this is {self.genesis.chain_id}"
            )
        if self._store.receipt(signed.hash) is not None:
            raise RpcError(REFUSED, "already known")
        nonce = self.state(self.head).account(signed.sender).nonce
        if signed.nonce != nonce:
            fault = "low" if signed.nonce < nonce else "high"
            raise RpcError(REFUSED, f"nonce too {fault}: next is {nonce}, transaction has {signed.nonce}")

    def _next_timestamp(self) -> int:
        # A clock that was set back must not break the order that the search by time relies on.
        return max(self.head.timestamp, int(self._now()))

    def _mined(self, signed: SignedTransaction, timestamp: int) -> tuple[Block, EvmState]:
        """Return the next block, which holds one transaction, and its state; nothing is written."""
        before = self.state(self.head)
        after = before.fork()
        try:
            outcome = after.transact(signed, self._context(self.head, timestamp))
        except TransactionInvalid as error:
            raise RpcError(REFUSED, str(error)) from error
        header = self._next_header(timestamp, outcome, after)
        entry = IndexEntry(
            signed.hash,
            header.block_number,
            formats.transaction_json(signed, header, self.genesis.chain_id),
            formats.receipt_json(signed, header, outcome),
        )
        return Block(header, signed.raw, after.changes_since(before), entry), after

    def _next_header(self, timestamp: int, outcome: Outcome, state: EvmState) -> Header:
        return Header(
            block_number=self.head.block_number + 1,
            parent_hash=self.head.hash,
            timestamp=timestamp,
            base_fee_per_gas=self.head.next_base_fee(),
            gas_used=outcome.gas_used,
            state_root=state.root(),
            transactions_root=outcome.transactions_root,
            receipts_root=outcome.receipts_root,
            bloom=outcome.bloom,
        )

    def _context(self, parent: Header, timestamp: int) -> BlockContext:
        number = parent.block_number + 1
        return BlockContext(
            chain_id=self.genesis.chain_id,
            number=number,
            timestamp_seconds=timestamp,
            base_fee_wei=parent.next_base_fee(),
            gas_limit=GAS_LIMIT,
            recent_hashes=self._store.hashes_before(number, _RECENT_HASHES),
        )

    # Trying

    def call(self, request: CallRequest, header: Header) -> bytes:
        """Return the output of a call on top of a block.

        Raises:
            RpcError: it reverts (with the contract's data) or cannot run.
        """
        result = self._try(request, header)
        _raise_if_failed(result)
        return result.output

    def estimate_gas(self, request: CallRequest, header: Header) -> int:
        """Return a gas limit that suffices on top of a block.

        A call may take more than it uses in the end: refunds come late, and one call keeps 1/64 of its
        gas from the calls that it makes (EIP-150). So what it used is tried as a limit, then a bit more.

        Raises:
            RpcError: it reverts (with the contract's data) or cannot run.
        """
        generous = self._try(request, header)
        _raise_if_failed(generous)
        used = generous.gas_used
        for limit in (used, used * 64 // 63 + 2_300, used * 3 // 2):
            if limit < request.gas and self._suffices(request, limit, header):
                return limit
        return request.gas

    def _suffices(self, request: CallRequest, limit: int, header: Header) -> bool:
        try:
            return self._try(replace(request, gas=limit), header).failure is None
        except RpcError:
            return False

    def _try(self, request: CallRequest, header: Header) -> CallResult:
        # On top of the head it is the present second: a chain that was idle for an hour must not answer
        # with the time of an hour ago.
        timestamp = self._next_timestamp() if header == self.head else header.timestamp
        try:
            return self.state(header).call(request, self._context(header, timestamp))
        except CallInvalid as error:
            raise RpcError(REFUSED, str(error)) from error


def load_machine() -> OpenState:
    """Return the machine that runs the contracts. Importing it takes a second.

    Raises:
        SapoError: the extra ``testnet`` is missing.
    """
    extras.require(extras.TESTNET)
    from sapo_client.ledger.chain.prague import PragueState

    return PragueState


def alloc(addresses: Iterable[str]) -> tuple[Account, ...]:
    """Return accounts as written on the command line, each once, ascending."""
    return tuple(sorted({Account.from_hex(address) for address in addresses}))


def _raise_if_failed(result: CallResult) -> None:
    if result.failure is None:
        return
    if result.is_revert:
        raise RpcError(REVERTED, "execution reverted", formats.data(result.output))
    raise RpcError(REFUSED, result.failure)
