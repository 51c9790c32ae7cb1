"""An embedded chain for a moment, in this process: to measure what transactions cost before they are sent."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.engine import Engine, Genesis
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.server import ChainServer
from sapo_protocol.identifiers import Account

_POLL_SECONDS: Final = 0.02
"""How long the end of a server that nobody uses any more may take."""


@contextmanager
def scratch_chain(funded: Sequence[Account], now: Callable[[], float]) -> Iterator[str]:
    """The URL of a new chain, gone with all that it held at the end; the accounts are rich in it.

    Args:
        now: its clock, in seconds; what it tells never falls.
    """
    birth = Genesis(DEFAULT_CHAIN_ID, tuple(sorted(set(funded))))
    with (
        tempfile.TemporaryDirectory(prefix="sapo-chain-") as folder,
        closing(Methods(Engine(Path(folder) / "chain.sqlite", birth, now=now))) as methods,
        ChainServer(methods, 0) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()
