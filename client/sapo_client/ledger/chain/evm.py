"""Interface of the Ethereum virtual machine that the embedded chain uses; ``prague`` implements it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sapo_client.ledger.chain.transaction import SignedTransaction


@dataclass(frozen=True, slots=True)
class AccountState:
    """One account's part of the state; ``code`` is empty for accounts with a secret key."""

    nonce: int = 0
    balance: int = 0
    code: bytes = b""


@dataclass(frozen=True, slots=True)
class StateChanges:
    """The difference between two states.

    Attributes:
        accounts: address to its account; none where the account is gone.
        slots: (address, slot number) to the value; 0 where the slot is cleared.
    """

    accounts: Mapping[bytes, AccountState | None] = field(default_factory=dict)
    slots: Mapping[tuple[bytes, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BlockContext:
    """The block in which code runs.

    Attributes:
        recent_hashes: hashes of at most 256 blocks before it, oldest first, for the opcode BLOCKHASH.
    """

    chain_id: int
    number: int
    timestamp_seconds: int
    base_fee_wei: int
    gas_limit: int
    recent_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call or a transaction to be tried, not sent; gas and value in their smallest units.

    Attributes:
        to: the address that is called; empty to create a contract.
    """

    sender: bytes
    to: bytes
    data: bytes
    value: int
    gas: int


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended.

    Attributes:
        output: what it returned, or the data that it reverted with.
        gas_used: before refunds, the transaction's own 21,000 and the price of its data included.
        failure: name and text of the error; none if the call succeeded.
        is_revert: whether the contract itself refused, by the opcode REVERT.
    """

    output: bytes
    gas_used: int
    failure: str | None = None
    is_revert: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """One event of a contract."""

    address: bytes
    topics: tuple[bytes, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a block's only transaction.

    Attributes:
        created: address of the contract that a creating transaction was for, even if it failed.
        bloom: the logs bloom of 256 bytes.
    """

    succeeded: bool
    gas_used: int
    logs: tuple[Log, ...]
    created: bytes | None
    bloom: bytes
    transactions_root: bytes
    receipts_root: bytes


class TransactionInvalid(Exception):
    """The transaction cannot be in a block on top of this state; the text says why."""


class CallInvalid(Exception):
    """The call cannot begin: its gas or the sender's balance does not suffice."""


class EvmState(Protocol):
    """Accounts and their storage after a block, and the machine that computes the next state from it."""

    def account(self, address: bytes) -> AccountState:
        """Return an account; an empty one where there is none."""

    def slot(self, address: bytes, number: int) -> int:
        """Return the value of a contract's storage slot."""

    def root(self) -> bytes:
        """Return the state root: the hash of the Merkle Patricia trie over everything."""

    def fork(self) -> "EvmState":
        """Return an independent copy."""

    def changes_since(self, earlier: "EvmState") -> StateChanges:
        """Return the difference from an earlier state of the same chain."""

    def transact(self, transaction: SignedTransaction, block: BlockContext) -> Outcome:
        """Apply a transaction to this state, in place.

        Raises:
            TransactionInvalid: it is not valid on top of this state, which is then to be thrown away.
        """

    def call(self, request: CallRequest, block: BlockContext) -> CallResult:
        """Run a call free of charge; this state stays as it is.

        Raises:
            CallInvalid: the gas or the sender's balance does not suffice to begin.
        """
