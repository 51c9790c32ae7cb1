"""A temporary embedded chain in this process, to measure the cost of transactions before they are sent."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.server import ChainServer
from sapo_protocol.identifiers import Account

_POLL_SECONDS: Final = 0.02
"""How long the end of a server that is no longer used may take."""


@contextmanager
def scratch_chain(alloc: Sequence[Account], now: Callable[[], float]) -> Iterator[str]:
    """Yield the URL of a new chain, removed with all that it held at the end.

    Args:
        alloc: the accounts that hold coins from the start.
        now: its clock, in seconds; it never goes back.
    """
    genesis = Genesis(DEFAULT_CHAIN_ID, tuple(sorted(set(alloc))))
    with (
        tempfile.TemporaryDirectory(prefix="sapo-chain-") as folder,
        closing(Methods(EmbeddedChain(Path(folder) / "chain.sqlite", genesis, now=now))) as methods,
        ChainServer(methods, 0) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()
