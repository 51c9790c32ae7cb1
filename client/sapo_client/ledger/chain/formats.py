"""Blocks, transactions, receipts and logs in the shape of the Ethereum JSON-RPC."""

from typing import Any

import rlp

from sapo_client.ledger.chain.store import Json


def quantity(value: int) -> str:
    """An integer: no leading zeros."""
    return hex(value)


def data(value: bytes) -> str:
    """Bytes: two digits each."""
    return "0x" + value.hex()


def optional_address(value: bytes) -> str | None:
    """An address; none where a transaction creates a contract."""
    return data(value) if value else None


def bloom(value: int) -> str:
    """A logs bloom of 2048 bits."""
    return data(value.to_bytes(256, "big"))


def block_json(block: Any, transactions: list[Json], *, full: bool) -> Json:
    """A block, with its transactions in full or by hash."""
    return {
        **header_json(block.header),
        "size": quantity(len(rlp.encode(block))),
        "transactions": transactions if full else [item["hash"] for item in transactions],
        "uncles": [],
        "withdrawals": [],
    }


def header_json(header: Any) -> Json:
    """A block's header."""
    return {
        "number": quantity(header.block_number),
        "hash": data(header.hash),
        "parentHash": data(header.parent_hash),
        "nonce": data(header.nonce),
        "sha3Uncles": data(header.uncles_hash),
        "logsBloom": bloom(header.bloom),
        "transactionsRoot": data(header.transaction_root),
        "stateRoot": data(header.state_root),
        "receiptsRoot": data(header.receipt_root),
        "miner": data(header.coinbase),
        "difficulty": quantity(header.difficulty),
        "extraData": data(header.extra_data),
        "gasLimit": quantity(header.gas_limit),
        "gasUsed": quantity(header.gas_used),
        "timestamp": quantity(header.timestamp),
        "mixHash": data(header.mix_hash),
        "baseFeePerGas": quantity(header.base_fee_per_gas),
        "withdrawalsRoot": data(header.withdrawals_root),
        "blobGasUsed": quantity(header.blob_gas_used),
        "excessBlobGas": quantity(header.excess_blob_gas),
        "parentBeaconBlockRoot": data(header.parent_beacon_block_root),
        "requestsHash": data(header.requests_hash),
    }


def transaction_json(transaction: Any, header: Any, chain_id: int) -> Json:
    """A mined transaction; it is always the first of its block."""
    return {
        **_place(header),
        "hash": data(transaction.hash),
        "type": quantity(transaction.type_id or 0),
        "chainId": quantity(chain_id),
        "from": data(transaction.sender),
        "to": optional_address(transaction.to),
        "nonce": quantity(transaction.nonce),
        "value": quantity(transaction.value),
        "gas": quantity(transaction.gas),
        "gasPrice": quantity(price_paid(transaction, header)),
        "maxFeePerGas": quantity(transaction.max_fee_per_gas),
        "maxPriorityFeePerGas": quantity(transaction.max_priority_fee_per_gas),
        "input": data(transaction.data),
        "accessList": _access_list(transaction),
        "v": quantity(getattr(transaction, "v", transaction.y_parity)),
        "yParity": quantity(transaction.y_parity),
        "r": quantity(transaction.r),
        "s": quantity(transaction.s),
    }


def receipt_json(transaction: Any, header: Any, receipt: Any, created: bytes | None) -> Json:
    """The receipt of a block's only transaction.

    Args:
        created: the address of the contract that it created, if it did.
    """
    return {
        **_place(header),
        "transactionHash": data(transaction.hash),
        "type": quantity(transaction.type_id or 0),
        "from": data(transaction.sender),
        "to": optional_address(transaction.to),
        "cumulativeGasUsed": quantity(receipt.gas_used),
        "gasUsed": quantity(receipt.gas_used),
        "effectiveGasPrice": quantity(price_paid(transaction, header)),
        "contractAddress": optional_address(created or b""),
        "status": quantity(int.from_bytes(receipt.state_root, "big")),
        "logsBloom": bloom(receipt.bloom),
        "logs": [_log(log, index, transaction, header) for index, log in enumerate(receipt.logs)],
    }


def price_paid(transaction: Any, header: Any) -> int:
    """Wei per unit of gas (EIP-1559)."""
    base: int = header.base_fee_per_gas
    tip: int = min(transaction.max_priority_fee_per_gas, transaction.max_fee_per_gas - base)
    return base + tip


def _log(log: Any, index: int, transaction: Any, header: Any) -> Json:
    return {
        **_place(header),
        "address": data(log.address),
        "topics": [data(topic.to_bytes(32, "big")) for topic in log.topics],
        "data": data(log.data),
        "logIndex": quantity(index),
        "transactionHash": data(transaction.hash),
        "removed": False,
    }


def _place(header: Any) -> Json:
    return {
        "blockHash": data(header.hash),
        "blockNumber": quantity(header.block_number),
        "transactionIndex": quantity(0),
    }


def _access_list(transaction: Any) -> list[Json]:
    return [
        {"address": data(address), "storageKeys": [data(key.to_bytes(32, "big")) for key in keys]}
        for address, keys in getattr(transaction, "access_list", ())
    ]
