"""The JSON-RPC methods that Ethereum clients need, over one chain and one lock."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sapo_client.ledger.chain import params as p
from sapo_client.ledger.chain.embedded import EmbeddedChain
from sapo_client.ledger.chain.errors import INVALID_PARAMS, METHOD_NOT_FOUND, ChainClosed, RpcError
from sapo_client.ledger.chain.evm import EvmState
from sapo_client.ledger.chain.formats import data, quantity
from sapo_client.ledger.chain.header import GAS_LIMIT, Header
from sapo_client.ledger.chain.store import Json, LogFilter

_TIP_WEI = 10**9
"""The tip that wallets are advised to offer: one gwei, the habit of quiet networks."""

_MAX_FEE_HISTORY = 1_024
"""As many blocks as other nodes look back over."""

Params = Sequence[Any]
Method = Callable[[Params], object]


class Methods:
    """Name to method. Calls are serialised: the chain and its store know no concurrency. Closes its chain."""

    def __init__(self, chain: EmbeddedChain) -> None:
        self._chain = chain
        self._lock = threading.Lock()
        self._is_closed = False
        self._table = self._table_of_methods()

    def call(self, name: str, params: Params) -> object:
        """Return the result of a method.

        Raises:
            RpcError: there is no such method, or it refuses.
            ChainClosed: the chain can answer nothing any more.
        """
        method = self._table.get(name)
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, f"the method {name} does not exist here")
        with self._lock:
            if self._is_closed:
                raise ChainClosed
            return method(params)

    def close(self) -> None:
        """Close the chain after the call under way: threads of connections outlive their server."""
        with self._lock:
            self._is_closed = True
            self._chain.close()

    def _table_of_methods(self) -> Mapping[str, Method]:
        return {
            "web3_clientVersion": lambda _: "sapo-chain/1",
            "net_version": lambda _: str(self._chain.genesis.chain_id),
            "eth_chainId": lambda _: quantity(self._chain.genesis.chain_id),
            "eth_syncing": lambda _: False,
            "eth_accounts": lambda _: [],
            "eth_blockNumber": lambda _: quantity(self._chain.head.block_number),
            "eth_gasPrice": lambda _: quantity(self._base_fee() + _TIP_WEI),
            "eth_maxPriorityFeePerGas": lambda _: quantity(_TIP_WEI),
            "eth_feeHistory": self._fee_history,
            "eth_getBlockByNumber": self._block_by_number,
            "eth_getBlockByHash": self._block_by_hash,
            "eth_getBalance": lambda given: quantity(self._state(given, 1).account(_address(given)).balance),
            "eth_getTransactionCount": lambda given: quantity(
                self._state(given, 1).account(_address(given)).nonce
            ),
            "eth_getCode": lambda given: data(self._state(given, 1).account(_address(given)).code),
            "eth_getStorageAt": self._storage,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate,
            "eth_sendRawTransaction": self._send,
            "eth_getTransactionByHash": lambda given: self._chain.transaction(_hash(given)),
            "eth_getTransactionReceipt": lambda given: self._chain.receipt(_hash(given)),
            "eth_getLogs": self._logs,
        }

    def _header(self, given: Params, index: int) -> Header:
        head = self._chain.head
        number = p.block_number(p.at(given, index), head.block_number)
        return head if number == head.block_number else self._chain.header(number)

    def _state(self, given: Params, index: int) -> EvmState:
        return self._chain.state(self._header(given, index))

    def _base_fee(self) -> int:
        return self._chain.head.base_fee_per_gas

    def _block_by_number(self, given: Params) -> Json | None:
        head = self._chain.head.block_number
        if p.block_number(p.at(given, 0), head) > head:
            return None
        return self._chain.block(self._header(given, 0), full=bool(p.at(given, 1)))

    def _block_by_hash(self, given: Params) -> Json | None:
        header = self._chain.header_by_hash(_hash(given))
        return None if header is None else self._chain.block(header, full=bool(p.at(given, 1)))

    def _storage(self, given: Params) -> str:
        slot = p.quantity(p.at(given, 1), "slot")
        return data(self._state(given, 2).slot(_address(given), slot).to_bytes(32, "big"))

    def _call(self, given: Params) -> str:
        return data(self._chain.call(p.call_request(p.at(given, 0)), self._header(given, 1)))

    def _estimate(self, given: Params) -> str:
        return quantity(self._chain.estimate_gas(p.call_request(p.at(given, 0)), self._header(given, 1)))

    def _send(self, given: Params) -> str:
        return data(self._chain.send(p.data(p.at(given, 0), "transaction")))

    def _logs(self, given: Params) -> list[Json]:
        wanted = p.at(given, 0)
        if not isinstance(wanted, Mapping):
            raise RpcError(INVALID_PARAMS, "the filter is not an object")
        first, last = self._span(wanted)
        return self._chain.logs(
            LogFilter(first, last, p.addresses(wanted.get("address")), p.topics(wanted.get("topics")))
        )

    def _span(self, wanted: Mapping[str, Any]) -> tuple[int, int]:
        if wanted.get("blockHash") is not None:
            header = self._chain.header_by_hash(p.data(wanted["blockHash"], "blockHash", size=32))
            if header is None:
                raise RpcError(INVALID_PARAMS, "there is no block with this hash")
            return header.block_number, header.block_number
        head = self._chain.head.block_number
        return p.block_number(wanted.get("fromBlock"), head), p.block_number(wanted.get("toBlock"), head)

    def _fee_history(self, given: Params) -> Json:
        count = min(p.quantity(p.at(given, 0), "block count"), _MAX_FEE_HISTORY)
        newest = self._header(given, 1)
        first = max(0, newest.block_number + 1 - max(count, 1))
        headers = [self._chain.header(number) for number in range(first, newest.block_number + 1)]
        fees = [header.base_fee_per_gas for header in headers]
        percentiles = p.at(given, 2) or []
        return {
            "oldestBlock": quantity(first),
            "baseFeePerGas": [quantity(fee) for fee in [*fees, fees[-1]]],
            "gasUsedRatio": [header.gas_used / GAS_LIMIT for header in headers],
            "reward": [[quantity(_TIP_WEI) for _ in percentiles] for _ in headers],
        }


def _address(given: Params) -> bytes:
    return p.data(p.at(given, 0), "address", size=20)


def _hash(given: Params) -> bytes:
    return p.data(p.at(given, 0), "hash", size=32)
