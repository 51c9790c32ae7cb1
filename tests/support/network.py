"""A public network for tests: the real embedded chain behind a transaction pool, with reorganisations.

The chain mines what it is sent at once and never reorganises. Here ordinary nodes stand before it: a
pool that holds what waits for a nonce or pays too little, replacements for at least a tenth more, and a
head that can be taken back by some blocks.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis
from sapo_client.ledger.chain.errors import REFUSED, RpcError
from sapo_client.ledger.chain.evm import StateChanges
from sapo_client.ledger.chain.header import EMPTY_TRIE_ROOT, Header
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.store import Block
from sapo_client.ledger.chain.transaction import SignedTransaction
from sapo_protocol.identifiers import Account


class ForkingChain(EmbeddedChain):
    """The embedded chain with reorganisations and empty blocks, which only tests need."""

    def __init__(self, path: Path, genesis: Genesis, *, now: Callable[[], float]) -> None:
        super().__init__(path, genesis, now=now)
        self._store.connection.execute("PRAGMA synchronous = OFF")  # no test cuts the power

    def mine_empty(self, name: bytes) -> None:
        """Mine a block without transactions, distinguished from others by a name."""
        state = self.state(self.head)
        header = Header(
            block_number=self.head.block_number + 1,
            parent_hash=self.head.hash,
            timestamp=self._next_timestamp(),
            base_fee_per_gas=self.head.next_base_fee(),
            gas_used=0,
            state_root=self.head.state_root,
            transactions_root=EMPTY_TRIE_ROOT,
            receipts_root=EMPTY_TRIE_ROOT,
            extra_data=name,
        )
        with self._store.transaction_of_all():
            self._store.put(Block(header, None, StateChanges()))
        self._remember(header, state)
        self.head = header

    def rewind(self, head: int) -> list[bytes]:
        """Reset the head to a block; return the dropped transactions, raw, oldest first."""
        last = self.head.block_number
        dropped = [
            raw for number in range(head + 1, last + 1) if (raw := self._store.raw(number)) is not None
        ]
        with self._store.transaction_of_all():
            self._store.connection.execute("DELETE FROM blocks WHERE number > ?", (head,))
            for table in ("accounts", "slots", "transactions", "logs"):
                self._store.connection.execute(f"DELETE FROM {table} WHERE block > ?", (head,))
        self.head = self._store.head()
        return dropped


@dataclass(frozen=True)
class _Waiting:
    raw: bytes
    digest: bytes
    tip: int
    max_fee: int


class Network:
    """One chain that all honest endpoints show, and its pool.

    Attributes:
        floor_wei: the least price of gas that is mined now.
        seen: every submitted transaction, raw.
    """

    def __init__(self, engine: ForkingChain) -> None:
        self.engine = engine
        self.methods = Methods(engine)
        self.floor_wei = 0
        self.seen: dict[bytes, SignedTransaction] = {}
        self._pool: dict[tuple[Account, int], _Waiting] = {}
        self._filled = 0

    def reset(self, head: int) -> None:
        """Reset to a block with an empty pool."""
        self.engine.rewind(head)
        self.floor_wei = 0
        self.seen.clear()
        self._pool.clear()

    def send(self, raw: bytes) -> bytes:
        """Add a transaction to the pool, as ordinary nodes do.

        Raises:
            RpcError: it is known, its nonce is used, or it replaces another for too little.
        """
        parsed = self.engine.decode(raw)
        self.seen[parsed.hash] = parsed
        sender = Account(parsed.sender)
        if parsed.chain_id != self.engine.genesis.chain_id:
            raise RpcError(REFUSED, "invalid chain id for signer")
        if parsed.nonce < self._nonce(sender):
            raise RpcError(REFUSED, "nonce too low")
        place = (sender, parsed.nonce)
        offer = _Waiting(raw, parsed.hash, parsed.tip_wei, parsed.max_fee_wei)
        held = self._pool.get(place)
        if held is not None and held.digest == offer.digest:
            raise RpcError(REFUSED, "already known")
        if held is not None and (10 * offer.tip < 11 * held.tip or 10 * offer.max_fee < 11 * held.max_fee):
            raise RpcError(REFUSED, "replacement transaction underpriced")
        self._pool[place] = offer
        return offer.digest

    def mine(self) -> int:
        """Mine all transactions that can be mined; return their number."""
        mined = 0
        while (
            place := next((place for place in sorted(self._pool) if self._is_ready(place)), None)
        ) is not None:
            self.engine.send(self._pool.pop(place).raw)
            mined += 1
        return mined

    def forget(self) -> None:
        """Drop waiting transactions, as nodes do that restart or have a full pool."""
        self._pool.clear()

    def fill(self, blocks: int) -> None:
        """Mine empty blocks."""
        for _ in range(blocks):
            self._filled += 1
            self.engine.mine_empty(b"%d" % self._filled)  # no two blocks are the same, on no branch

    def reorganise(self, blocks: int, rng: random.Random) -> None:
        """Replace the last blocks by as many others; their transactions wait again or are dropped."""
        height = self.engine.head.block_number
        for raw in self.engine.rewind(height - blocks):
            parsed = self.engine.decode(raw)
            if rng.random() < 0.5:
                self._pool[Account(parsed.sender), parsed.nonce] = _Waiting(
                    raw, parsed.hash, parsed.tip_wei, parsed.max_fee_wei
                )
        self.fill(blocks)

    def _is_ready(self, place: tuple[Account, int]) -> bool:
        sender, nonce = place
        base = self.engine.head.base_fee_per_gas
        held = self._pool[place]
        if nonce < self._nonce(sender):
            del self._pool[place]
            return False
        return nonce == self._nonce(sender) and held.max_fee >= max(self.floor_wei, base)

    def _nonce(self, sender: Account) -> int:
        return self.engine.state(self.engine.head).account(bytes(sender)).nonce
