"""A public network for tests: the real embedded engine behind a transaction pool, with reorganisations.

The engine mines what it is sent at once and never reorganises. Here ordinary nodes stand before it: a
pool that holds what waits for a nonce or pays too little, replacements for at least a tenth more, and a
head that can be taken back by some blocks.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlp
from eth.db.schema import SchemaV1
from eth.rlp.sedes import chain_gaps

from sapo_client.ledger.chain.engine import Engine, Genesis
from sapo_client.ledger.chain.errors import REFUSED, RpcError
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.vm import open_chain
from sapo_protocol.identifiers import Account


class ForkingEngine(Engine):
    """The embedded engine with what it has no use for: a way back, and blocks that hold nothing."""

    def __init__(self, path: Path, birth: Genesis, *, now: Callable[[], float]) -> None:
        super().__init__(path, birth, now=now)
        self._store._connection.execute("PRAGMA synchronous = OFF")  # no test cuts the power

    def mine_empty(self, name: bytes) -> None:
        """Mine a block without transactions, told from others by a name."""
        header = self._next_header().copy(extra_data=name)
        machine = self._chain.get_vm(header)
        filled = machine.set_block_transactions_and_withdrawals(machine.get_block(), header, [], [])
        self._chain.chaindb.persist_block(machine.mine_block(filled).block)
        self._store.commit()

    def rewind(self, head: int) -> list[bytes]:
        """Take the head back to a block; the dropped transactions, raw, oldest first."""
        pairs, connection = self._store.pairs, self._store._connection
        last, header = self.head.block_number, self.header(head)
        dropped = [
            raw.encode()
            for number in range(head + 1, last + 1)
            for raw in self._chain.get_canonical_block_by_number(number).transactions
        ]
        pairs[SchemaV1.make_canonical_head_hash_lookup_key()] = header.hash
        for number in range(head + 1, last + 1):
            del pairs[SchemaV1.make_block_number_to_hash_lookup_key(number)]
        gapless = rlp.encode(((), head + 1), sedes=chain_gaps)
        pairs[SchemaV1.make_header_chain_gaps_lookup_key()] = gapless
        pairs[SchemaV1.make_chain_gaps_lookup_key()] = gapless
        connection.execute("DELETE FROM transactions WHERE block > ?", (head,))
        connection.execute("DELETE FROM logs WHERE block > ?", (head,))
        self._store.commit()
        self._chain = open_chain(pairs, self.birth.chain_id)
        return dropped


@dataclass(frozen=True)
class _Waiting:
    raw: bytes
    digest: bytes
    tip: int
    most: int


class Network:
    """One chain that all honest endpoints show, and its pool.

    Attributes:
        floor_wei: what a unit of gas must offer to be mined now.
        seen: every transaction that anybody ever handed in, raw.
    """

    def __init__(self, engine: ForkingEngine) -> None:
        self.engine = engine
        self.methods = Methods(engine)
        self.floor_wei = 0
        self.seen: dict[bytes, Any] = {}
        self._pool: dict[tuple[Account, int], _Waiting] = {}
        self._filled = 0

    def reset(self, head: int) -> None:
        """Back to a block, with nothing waiting."""
        self.engine.rewind(head)
        self.floor_wei = 0
        self.seen.clear()
        self._pool.clear()

    def send(self, raw: bytes) -> bytes:
        """Take a transaction into the pool, as ordinary nodes do.

        Raises:
            RpcError: it is known, its nonce is used, or it replaces another for too little.
        """
        parsed = self.engine._decode(raw)
        self.seen[bytes(parsed.hash)] = parsed
        sender = Account(parsed.sender)
        if parsed.chain_id != self.engine.birth.chain_id:
            raise RpcError(REFUSED, "invalid chain id for signer")
        if parsed.nonce < self._nonce(sender):
            raise RpcError(REFUSED, "nonce too low")
        place = (sender, parsed.nonce)
        offer = _Waiting(raw, bytes(parsed.hash), parsed.max_priority_fee_per_gas, parsed.max_fee_per_gas)
        held = self._pool.get(place)
        if held is not None and held.digest == offer.digest:
            raise RpcError(REFUSED, "already known")
        if held is not None and (10 * offer.tip < 11 * held.tip or 10 * offer.most < 11 * held.most):
            raise RpcError(REFUSED, "replacement transaction underpriced")
        self._pool[place] = offer
        return offer.digest

    def mine(self) -> int:
        """Put everything into blocks that may be; how many."""
        mined = 0
        while (
            place := next((place for place in sorted(self._pool) if self._is_ready(place)), None)
        ) is not None:
            self.engine.send(self._pool.pop(place).raw)
            mined += 1
        return mined

    def forget(self) -> None:
        """Lose what waits, as nodes do that restart or overflow."""
        self._pool.clear()

    def fill(self, blocks: int) -> None:
        """Let blocks pass that hold nothing."""
        for _ in range(blocks):
            self._filled += 1
            self.engine.mine_empty(b"%d" % self._filled)  # no two blocks are the same, on no branch

    def reorganise(self, blocks: int, rng: random.Random) -> None:
        """Replace the last blocks by as many others; what was in them waits again, or is forgotten."""
        height = self.engine.head.block_number
        for raw in self.engine.rewind(height - blocks):
            parsed = self.engine._decode(raw)
            if rng.random() < 0.5:
                self._pool[Account(parsed.sender), parsed.nonce] = _Waiting(
                    raw, bytes(parsed.hash), parsed.max_priority_fee_per_gas, parsed.max_fee_per_gas
                )
        self.fill(blocks)

    def _is_ready(self, place: tuple[Account, int]) -> bool:
        sender, nonce = place
        base = self.engine.head.base_fee_per_gas
        held = self._pool[place]
        if nonce < self._nonce(sender):
            del self._pool[place]
            return False
        return nonce == self._nonce(sender) and held.most >= max(self.floor_wei, base)

    def _nonce(self, sender: Account) -> int:
        return int(self.engine.state(self.engine.head).get_nonce(bytes(sender)))
