"""Block headers of the embedded chain: Ethereum's as of Prague, for blocks without consensus or blobs."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import rlp
from eth_hash.auto import keccak

GAS_LIMIT: Final = 30_000_000
"""Ethereum's own limit for years; the largest deployment of this project needs a tenth of it."""

GENESIS_BASE_FEE_WEI: Final = 10**9
"""Price of a unit of gas in the first block with a base fee (EIP-1559)."""

_BASE_FEE_CHANGE: Final = 8
"""A full block raises the base fee by an eighth, an empty one lowers it by as much (EIP-1559)."""

EMPTY_TRIE_ROOT: Final = keccak(rlp.encode(b""))
NO_UNCLES_HASH: Final = keccak(rlp.encode([]))
NO_REQUESTS_HASH: Final = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
"""SHA-256 of nothing: no requests to the consensus layer (EIP-7685)."""

_FIELDS: Final = 21

ZERO_HASH: Final = bytes(32)
COINBASE: Final = bytes(20)
"""Tips go to the zero address."""


@dataclass(frozen=True)
class Header:
    """One block's header.

    Attributes:
        bloom: the logs bloom of 256 bytes.
    """

    block_number: int
    parent_hash: bytes
    timestamp: int
    base_fee_per_gas: int
    gas_used: int
    state_root: bytes
    transactions_root: bytes
    receipts_root: bytes
    bloom: bytes = bytes(256)
    extra_data: bytes = b""

    @cached_property
    def hash(self) -> bytes:
        """Return the block's hash."""
        return keccak(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the header's RLP."""
        return bytes(rlp.encode(self.items()))

    def items(self) -> list[Any]:
        """Return the fields of Ethereum's header, in its order."""
        fields = (
            *(self.parent_hash, NO_UNCLES_HASH, COINBASE, self.state_root),
            *(self.transactions_root, self.receipts_root, self.bloom),
            *(0, self.block_number, GAS_LIMIT, self.gas_used, self.timestamp, self.extra_data),
            *(ZERO_HASH, bytes(8), self.base_fee_per_gas),
            # No withdrawals, blobs or beacon chain; the root of the latter is what version 0.1.0 wrote there.
            *(EMPTY_TRIE_ROOT, 0, 0, EMPTY_TRIE_ROOT, NO_REQUESTS_HASH),
        )
        return [_number(field) if isinstance(field, int) else field for field in fields]

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Header":
        """Read a header of this chain.

        Raises:
            ValueError: it has more or fewer fields.
        """
        items = rlp.decode(raw)
        if not isinstance(items, list) or len(items) != _FIELDS:
            raise ValueError(f"a header has {_FIELDS} fields")
        return cls(
            parent_hash=items[0],
            state_root=items[3],
            transactions_root=items[4],
            receipts_root=items[5],
            bloom=items[6],
            block_number=int.from_bytes(items[8], "big"),
            gas_used=int.from_bytes(items[10], "big"),
            timestamp=int.from_bytes(items[11], "big"),
            extra_data=items[12],
            base_fee_per_gas=int.from_bytes(items[15], "big"),
        )

    def next_base_fee(self) -> int:
        """Return the base fee of the block after this one (EIP-1559)."""
        target = GAS_LIMIT // 2
        base, used = self.base_fee_per_gas, self.gas_used
        change = base * abs(used - target) // target // _BASE_FEE_CHANGE
        if used > target:
            return base + max(change, 1)
        return base - change


def genesis_header(timestamp: int, state_root: bytes) -> Header:
    """Return the header of block 0."""
    return Header(
        block_number=0,
        parent_hash=ZERO_HASH,
        timestamp=timestamp,
        base_fee_per_gas=GENESIS_BASE_FEE_WEI,
        gas_used=0,
        state_root=state_root,
        transactions_root=EMPTY_TRIE_ROOT,
        receipts_root=EMPTY_TRIE_ROOT,
        extra_data=b"sapo",
    )


def _number(value: int) -> bytes:
    """Return a number as RLP has it: big-endian, without leading zeros."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")
