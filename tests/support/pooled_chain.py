"""An embedded chain whose blocks have a length: what is sent meanwhile waits for the next one."""

from __future__ import annotations

from typing import Any

from support.ledger import Contracts

from sapo_client.ledger.chain.embedded import EmbeddedChain
from sapo_protocol.identifiers import Account


class PooledChain(EmbeddedChain):
    """Transactions wait until ``mine``, as on a public chain; without ``holds`` each is mined at once.

    Attributes:
        holds: whether transactions wait.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.holds = False
        self._pool: dict[bytes, bytes] = {}
        super().__init__(*arguments, **options)

    def send(self, raw: bytes) -> bytes:
        """Accept a transaction, also one that reverts when it is mined."""
        if not self.holds:
            return super().send(raw)
        digest = self.decode(raw).hash
        self._pool[digest] = raw
        return digest

    def mine(self) -> None:
        """Mine what waits, in the order in which it was sent, all in one second."""
        waiting, self._pool = self._pool, {}
        for raw in waiting.values():
            super().send(raw)


def paid_since(contracts: Contracts, block: int) -> dict[Account, list[tuple[bool, int]]]:
    """Return success and gas of every transaction after a block, by sender."""
    engine = contracts.chain.engine
    found: dict[Account, list[tuple[bool, int]]] = {}
    for number in range(block + 1, engine.head.block_number + 1):
        for mined in engine.block(engine.header(number), full=True)["transactions"]:
            receipt = engine.receipt(bytes.fromhex(mined["hash"][2:]))
            assert receipt is not None
            sender = Account.from_hex(mined["from"])
            found.setdefault(sender, []).append((receipt["status"] == "0x1", int(receipt["gasUsed"], 16)))
    return found
