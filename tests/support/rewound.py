"""A ledger whose chain can be reorganised: founded once for a module, and restored for every test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from support.faulty import connected
from support.ledger import NOW_SECONDS, Contracts, found
from support.lying_endpoint import Liar
from support.network import ForkingChain, Network

from sapo_client.ledger.rpc import Rpc

L = TypeVar("L", bound=Liar)


@contextmanager
def forking_ledger(folder: Path, **changes: Any) -> Iterator[Contracts]:
    """Found a ledger on a chain that can be reorganised, and close it in the end."""
    contracts = found(folder / "chain.sqlite", kind=ForkingChain, **changes)
    try:
        yield contracts
    finally:
        contracts.chain.close()


class RewoundSite(Generic[L]):
    """Contracts as after a block, and the addresses at which they are read.

    Args:
        head: number of the block; what came after it is undone.
        endpoint: what serves an address.
    """

    def __init__(self, contracts: Contracts, head: int, endpoint: type[L]) -> None:
        self.contracts = contracts
        self.told: list[str] = []
        engine = contracts.chain.engine
        assert isinstance(engine, ForkingChain)
        self.engine = engine
        self.network = Network(engine)
        self._endpoint = endpoint
        engine.rewind(head)
        contracts.chain.now_seconds = float(NOW_SECONDS)

    @property
    def block(self) -> int:
        """Number of the newest block."""
        return self.engine.head.block_number

    def rpc(self, endpoints: int) -> tuple[Rpc, list[L]]:
        """Return a connection to a number of new addresses, and what serves them."""
        serving = [self._endpoint(self.network) for _ in range(endpoints)]
        names = {f"http://{number}": each for number, each in enumerate(serving)}
        rpc = Rpc(
            tuple(names),
            connect=lambda name: connected(names[name]),
            now=lambda: self.contracts.chain.now_seconds,
            report=self.told.append,
        )
        return rpc, serving
