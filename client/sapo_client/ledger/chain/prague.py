"""The machine of the embedded chain: Ethereum's execution specification, fork Prague.

Importing this module takes about a second; without the extra ``testnet`` it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sapo_client.ledger.chain import bundled
from sapo_client.ledger.chain.evm import (
    AccountState,
    BlockContext,
    CallInvalid,
    CallRequest,
    CallResult,
    EvmState,
    Log,
    Outcome,
    StateChanges,
    TransactionInvalid,
)
from sapo_client.ledger.chain.header import COINBASE, EMPTY_TRIE_ROOT, ZERO_HASH
from sapo_client.ledger.chain.transaction import LEGACY, SignedTransaction

bundled.make_importable()

from ethereum import exceptions as general  # noqa: E402
from ethereum.crypto.hash import Hash32  # noqa: E402
from ethereum.exceptions import EthereumException  # noqa: E402
from ethereum.forks.prague import exceptions as specific  # noqa: E402
from ethereum.forks.prague import vm  # noqa: E402
from ethereum.forks.prague.blocks import decode_receipt  # noqa: E402
from ethereum.forks.prague.fork import process_transaction  # noqa: E402
from ethereum.forks.prague.fork_types import Account, Address  # noqa: E402
from ethereum.forks.prague.state import (  # noqa: E402
    State,
    TransientStorage,
    get_account,
    get_storage,
    increment_nonce,
    set_account,
    set_storage,
)
from ethereum.forks.prague.transactions import (  # noqa: E402
    LegacyTransaction,
    calculate_intrinsic_cost,
    decode_transaction,
)
from ethereum.forks.prague.trie import Trie, copy_trie, root  # noqa: E402
from ethereum.forks.prague.utils.address import compute_contract_address  # noqa: E402
from ethereum.forks.prague.utils.message import prepare_message  # noqa: E402
from ethereum.forks.prague.vm import interpreter  # noqa: E402
from ethereum.forks.prague.vm.exceptions import Revert  # noqa: E402
from ethereum_rlp import rlp  # noqa: E402
from ethereum_types.bytes import Bytes0, Bytes32  # noqa: E402
from ethereum_types.numeric import U64, U256, Uint  # noqa: E402

from sapo_client.ledger.chain.quicken import quicken  # noqa: E402

quicken()

_REASONS: Final = {
    specific.InsufficientMaxFeePerGasError: "the fee per unit of gas is below the base fee",
    specific.PriorityFeeGreaterThanMaxFeeError: "the tip per unit of gas is above the highest fee",
    specific.InitCodeTooLargeError: "the code that creates the contract is too large",
    general.InsufficientBalanceError: "the sender has not enough balance for the value and the most gas",
    general.InsufficientTransactionGasError: "the gas does not cover the transaction's own cost",
    general.GasUsedExceedsLimitError: "the gas is above the block's gas limit",
    general.InvalidBlock: "the gas price is below the base fee",
}
"""Plain words for what the specification raises; errors beyond these keep its own text."""


class PragueState:
    """A state in the specification's own types.

    Args:
        accounts: all accounts by address.
        slots: all storage slots that are not 0, by address and number.
    """

    def __init__(
        self, accounts: Mapping[bytes, AccountState], slots: Mapping[tuple[bytes, int], int]
    ) -> None:
        self._state = State()
        self._storage_roots: dict[bytes, bytes] = {}
        for address, account in accounts.items():
            set_account(self._state, Address(address), _to_spec(account))
        for (address, number), value in slots.items():
            set_storage(self._state, Address(address), _slot_key(number), U256(value))

    def account(self, address: bytes) -> AccountState:
        """Return an account; an empty one where there is none."""
        return _from_spec(get_account(self._state, Address(address)))

    def slot(self, address: bytes, number: int) -> int:
        """Return the value of a contract's storage slot."""
        return int(get_storage(self._state, Address(address), _slot_key(number)))

    def root(self) -> bytes:
        """Return the state root; the storage roots of untouched contracts are remembered."""
        return bytes(root(self._state._main_trie, get_storage_root=self._storage_root))

    def fork(self) -> PragueState:
        """Return an independent copy; it shares the values, which never change."""
        copy = PragueState({}, {})
        copy._state._main_trie = copy_trie(self._state._main_trie)
        copy._state._storage_tries = {
            address: copy_trie(trie) for address, trie in self._state._storage_tries.items()
        }
        copy._storage_roots = dict(self._storage_roots)
        return copy

    def changes_since(self, earlier: EvmState) -> StateChanges:
        """Return the difference from an earlier state of the same chain."""
        if not isinstance(earlier, PragueState):
            raise TypeError("states of different machines cannot be compared")
        accounts = _changes(earlier._state._main_trie._data, self._state._main_trie._data)
        slots: dict[tuple[bytes, int], int] = {}
        for address in earlier._state._storage_tries.keys() | self._state._storage_tries.keys():
            for key, value in _changes(earlier._slots(address), self._slots(address)).items():
                slots[bytes(address), int.from_bytes(key, "big")] = int(value or 0)
        return StateChanges(
            {
                bytes(address): None if item is None else _from_spec(item)
                for address, item in accounts.items()
            },
            slots,
        )

    def transact(self, transaction: SignedTransaction, block: BlockContext) -> Outcome:
        """Apply a transaction to this state, in place.

        Raises:
            TransactionInvalid: it is not valid on top of this state, which is then to be thrown away.
        """
        before = self.fork()
        output = vm.BlockOutput()
        try:
            parsed = _parse(transaction)
            process_transaction(self._environment(block, block.base_fee_wei), output, parsed, Uint(0))
        except (EthereumException, OverflowError, RecursionError) as error:
            raise TransactionInvalid(_reason(error)) from error
        for address, _ in self.changes_since(before).slots:
            self._storage_roots.pop(address, None)
        created = compute_contract_address(Address(transaction.sender), Uint(transaction.nonce))
        receipt = decode_receipt(next(iter(output.receipts_trie._data.values())))
        return Outcome(
            succeeded=bool(receipt.succeeded),
            gas_used=int(output.block_gas_used),
            logs=tuple(_log(item) for item in output.block_logs),
            created=None if transaction.to else bytes(created),
            bloom=bytes(receipt.bloom),
            transactions_root=bytes(root(output.transactions_trie)),
            receipts_root=bytes(root(output.receipts_trie)),
        )

    def call(self, request: CallRequest, block: BlockContext) -> CallResult:
        """Run a call free of charge; this state stays as it is.

        Raises:
            CallInvalid: the gas or the sender's balance does not suffice to begin.
        """
        return self.fork()._call(request, block)

    def _call(self, request: CallRequest, block: BlockContext) -> CallResult:
        sender = Address(request.sender)
        to = Address(request.to) if request.to else Bytes0(b"")
        transaction = LegacyTransaction(
            nonce=U256(get_account(self._state, sender).nonce),
            gas_price=Uint(0),
            gas=Uint(request.gas),
            to=to,
            value=U256(request.value),
            data=request.data,
            v=U256(0),
            r=U256(0),
            s=U256(0),
        )
        own_cost, floor = (int(cost) for cost in calculate_intrinsic_cost(transaction))
        if request.gas < max(own_cost, floor):
            raise CallInvalid(
                f"the call needs {max(own_cost, floor)} gas to begin with, it has {request.gas}"
            )
        if self.account(request.sender).balance < request.value:
            raise CallInvalid("the sender has not enough balance for the value")
        increment_nonce(self._state, sender)
        environment = self._environment(block, base_fee_wei=0)
        message = prepare_message(environment, _call_environment(sender, request.gas - own_cost), transaction)
        try:
            ended = interpreter.process_message_call(message)
        except RecursionError:  # Python's limit comes before the machine's depth of 1,024
            return CallResult(b"", request.gas, failure="the calls are nested too deeply")
        return CallResult(
            output=bytes(ended.return_data),
            gas_used=max(request.gas - int(ended.gas_left), floor),
            failure=None if ended.error is None else f"{type(ended.error).__name__}: {ended.error}",
            is_revert=isinstance(ended.error, Revert),
        )

    def _environment(self, block: BlockContext, base_fee_wei: int) -> vm.BlockEnvironment:
        return vm.BlockEnvironment(
            chain_id=U64(block.chain_id),
            state=self._state,
            block_gas_limit=Uint(block.gas_limit),
            block_hashes=[Hash32(item) for item in block.recent_hashes],
            coinbase=Address(COINBASE),
            number=Uint(block.number),
            base_fee_per_gas=Uint(base_fee_wei),
            time=U256(block.timestamp_seconds),
            prev_randao=Bytes32(ZERO_HASH),
            excess_blob_gas=U64(0),
            parent_beacon_block_root=Hash32(EMPTY_TRIE_ROOT),
        )

    def _slots(self, address: Address) -> Mapping[Any, Any]:
        trie: Trie[Bytes32, U256] | None = self._state._storage_tries.get(address)
        return {} if trie is None else trie._data

    def _storage_root(self, address: Address) -> bytes:
        known = self._storage_roots.get(address)
        if known is None:
            trie = self._state._storage_tries.get(address)
            known = self._storage_roots[address] = EMPTY_TRIE_ROOT if trie is None else root(trie)
        return known


def _call_environment(sender: Address, gas: int) -> vm.TransactionEnvironment:
    return vm.TransactionEnvironment(
        origin=sender,
        gas_price=Uint(0),
        gas=Uint(gas),
        access_list_addresses={Address(COINBASE)},
        access_list_storage_keys=set(),
        transient_storage=TransientStorage(),
        blob_versioned_hashes=(),
        authorizations=(),
        index_in_block=None,
        tx_hash=None,
    )


def _parse(transaction: SignedTransaction) -> Any:
    if transaction.type_id == LEGACY:
        return rlp.decode_to(LegacyTransaction, transaction.raw)
    return decode_transaction(transaction.raw)


def _reason(error: Exception) -> str:
    for kind, text in _REASONS.items():
        if isinstance(error, kind):
            return text
    return f"{type(error).__name__}: {error}"


def _changes(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the changed keys between two mappings; none for a removed key."""
    if before is after:
        return {}
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    return {**changed, **dict.fromkeys(before.keys() - after.keys())}


def _to_spec(account: AccountState) -> Account:
    return Account(nonce=Uint(account.nonce), balance=U256(account.balance), code=account.code)


def _from_spec(account: Account) -> AccountState:
    return AccountState(int(account.nonce), int(account.balance), bytes(account.code))


def _slot_key(number: int) -> Bytes32:
    return Bytes32(number.to_bytes(32, "big"))


def _log(item: Any) -> Log:
    return Log(bytes(item.address), tuple(bytes(topic) for topic in item.topics), bytes(item.data))
