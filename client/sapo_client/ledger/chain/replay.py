"""A chain file of version 0.1.0, brought into the present form by running its transactions again.

Version 0.1.0 kept blocks and state as the key/value pairs of py-evm, which is no longer maintained. Genesis,
transactions and timestamps determine everything else, and both machines compute the same rules: every
replayed block must have the hash that it had, and with it the same state, receipts and time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Final

import rlp

from sapo_client.ledger.chain.header import Header

_GENESIS_KEY: Final = b"sapo/birth"
"""Under which version 0.1.0 kept the parameters of the genesis."""


class ReplayMismatch(ValueError):
    """The old file is incomplete, or a replayed block is not the one that it holds."""


@dataclass(frozen=True, slots=True)
class OldBlock:
    """One block of the old file.

    Attributes:
        raw: the signed transaction in it; none in the genesis block.
    """

    header: Header
    raw: bytes | None


class OldChain:
    """The part of an old file that is needed to run its transactions again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def is_present(self) -> bool:
        """Whether the file holds a chain in the old form."""
        return self._value(_GENESIS_KEY) is not None

    def genesis(self) -> bytes:
        """Return the parameters of the genesis."""
        return self._required(_GENESIS_KEY)

    def blocks(self) -> Iterator[OldBlock]:
        """Yield all blocks, oldest first.

        Raises:
            ReplayMismatch: a part of the file is missing.
        """
        last = self._connection.execute("SELECT MAX(block) FROM transactions").fetchone()[0] or 0
        for number in range(last + 1):
            block_hash = rlp.decode(self._required(b"block-number-to-hash:%d" % number))
            header = Header.from_bytes(self._required(block_hash))
            if header.hash != block_hash:
                raise ReplayMismatch(f"block {number} has a header with fields that this chain does not know")
            yield OldBlock(header, self._transaction(header) if number else None)

    def forget(self) -> None:
        """Delete the old form, in the open transaction."""
        self._connection.execute("DELETE FROM pairs")

    def _transaction(self, header: Header) -> bytes:
        """Return a block's only transaction: the one leaf of the trie that the header names."""
        leaf = rlp.decode(self._required(header.transactions_root))
        if not isinstance(leaf, list) or len(leaf) != 2:
            raise ReplayMismatch(f"block {header.block_number} does not hold exactly one transaction")
        return bytes(leaf[1])

    def _required(self, key: bytes) -> bytes:
        value = self._value(key)
        if value is None:
            raise ReplayMismatch(f"the entry {key.hex()} is missing")
        return value

    def _value(self, key: bytes) -> bytes | None:
        row = self._connection.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])
