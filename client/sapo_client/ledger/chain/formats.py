"""Blocks, transactions, receipts and logs in the shape of the Ethereum JSON-RPC."""

import rlp

from sapo_client.ledger.chain.evm import Log, Outcome
from sapo_client.ledger.chain.header import (
    COINBASE,
    EMPTY_TRIE_ROOT,
    GAS_LIMIT,
    NO_REQUESTS_HASH,
    NO_UNCLES_HASH,
    ZERO_HASH,
    Header,
)
from sapo_client.ledger.chain.store import Json
from sapo_client.ledger.chain.transaction import SignedTransaction


def quantity(value: int) -> str:
    """Return an integer in hexadecimal, without leading zeros."""
    return hex(value)


def data(value: bytes) -> str:
    """Return bytes in hexadecimal, two digits each."""
    return "0x" + value.hex()


def optional_address(value: bytes) -> str | None:
    """Return an address; none where a transaction creates a contract."""
    return data(value) if value else None


def block_json(header: Header, raw: bytes | None, transactions: list[Json], *, full: bool) -> Json:
    """Return a block, with its transactions in full or by hash.

    Args:
        raw: the signed transaction in it, if there is one.
    """
    return {
        **header_json(header),
        "size": quantity(_size(header, raw)),
        "transactions": transactions if full else [item["hash"] for item in transactions],
        "uncles": [],
        "withdrawals": [],
    }


def _size(header: Header, raw: bytes | None) -> int:
    """Return the bytes of a block's RLP: a legacy transaction is a list in it, a typed one a string."""
    transactions = [] if raw is None else [rlp.decode(raw) if raw[0] >= 0xC0 else raw]
    return len(rlp.encode([header.items(), transactions, [], []]))


def header_json(header: Header) -> Json:
    """Return a block's header."""
    return {
        "number": quantity(header.block_number),
        "hash": data(header.hash),
        "parentHash": data(header.parent_hash),
        "nonce": data(bytes(8)),
        "sha3Uncles": data(NO_UNCLES_HASH),
        "logsBloom": data(header.bloom),
        "transactionsRoot": data(header.transactions_root),
        "stateRoot": data(header.state_root),
        "receiptsRoot": data(header.receipts_root),
        "miner": data(COINBASE),
        "difficulty": quantity(0),
        "extraData": data(header.extra_data),
        "gasLimit": quantity(GAS_LIMIT),
        "gasUsed": quantity(header.gas_used),
        "timestamp": quantity(header.timestamp),
        "mixHash": data(ZERO_HASH),
        "baseFeePerGas": quantity(header.base_fee_per_gas),
        "withdrawalsRoot": data(EMPTY_TRIE_ROOT),
        "blobGasUsed": quantity(0),
        "excessBlobGas": quantity(0),
        "parentBeaconBlockRoot": data(EMPTY_TRIE_ROOT),
        "requestsHash": data(NO_REQUESTS_HASH),
    }


def transaction_json(transaction: SignedTransaction, header: Header, chain_id: int) -> Json:
    """Return a mined transaction; it is always the first of its block."""
    return {
        **_position(header),
        "hash": data(transaction.hash),
        "type": quantity(transaction.type_id),
        "chainId": quantity(chain_id),
        "from": data(transaction.sender),
        "to": optional_address(transaction.to),
        "nonce": quantity(transaction.nonce),
        "value": quantity(transaction.value),
        "gas": quantity(transaction.gas),
        "gasPrice": quantity(transaction.price_paid(header.base_fee_per_gas)),
        "maxFeePerGas": quantity(transaction.max_fee_wei),
        "maxPriorityFeePerGas": quantity(transaction.tip_wei),
        "input": data(transaction.data),
        "accessList": [
            {"address": data(address), "storageKeys": [data(key) for key in keys]}
            for address, keys in transaction.access_list
        ],
        "v": quantity(transaction.v),
        "yParity": quantity(transaction.y_parity),
        "r": quantity(transaction.r),
        "s": quantity(transaction.s),
    }


def receipt_json(transaction: SignedTransaction, header: Header, outcome: Outcome) -> Json:
    """Return the receipt of a block's only transaction."""
    return {
        **_position(header),
        "transactionHash": data(transaction.hash),
        "type": quantity(transaction.type_id),
        "from": data(transaction.sender),
        "to": optional_address(transaction.to),
        "cumulativeGasUsed": quantity(outcome.gas_used),
        "gasUsed": quantity(outcome.gas_used),
        "effectiveGasPrice": quantity(transaction.price_paid(header.base_fee_per_gas)),
        "contractAddress": optional_address(outcome.created or b""),
        "status": quantity(outcome.succeeded),
        "logsBloom": data(outcome.bloom),
        "logs": [_log(log, index, transaction, header) for index, log in enumerate(outcome.logs)],
    }


def _log(log: Log, index: int, transaction: SignedTransaction, header: Header) -> Json:
    return {
        **_position(header),
        "address": data(log.address),
        "topics": [data(topic) for topic in log.topics],
        "data": data(log.data),
        "logIndex": quantity(index),
        "transactionHash": data(transaction.hash),
        "removed": False,
    }


def _position(header: Header) -> Json:
    return {
        "blockHash": data(header.hash),
        "blockNumber": quantity(header.block_number),
        "transactionIndex": quantity(0),
    }
