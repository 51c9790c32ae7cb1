"""An independent chain implementation: anvil as a process, if npm has installed it."""

import json
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sapo_client.testnet.processes import spawn, stop, wait_until

HERE = Path(__file__).parents[1] / "chain"
ARGUMENTS = ("--block-time", "1")
"""As in docs/testnet.md."""

PATIENCE_SECONDS = 60.0
OLD_ENOUGH_BLOCKS = 6
"""An epoch's beacon needs a block that was settled when the epoch began."""


@dataclass(frozen=True)
class Anvil:
    """A running anvil.

    Attributes:
        blocks: how many it must have made before it counts as ready.
    """

    url: str
    blocks: int = OLD_ENOUGH_BLOCKS

    def ask(self, method: str, *params: object) -> Any:
        """Return the result of a request."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as reply:
            answer = json.load(reply)
        assert "result" in answer, f"{method}: {answer}"
        return answer["result"]

    def give(self, account: str, wei: int) -> None:
        """Set the balance of an account."""
        self.ask("anvil_setBalance", account, hex(wei))

    def nonce(self, account: str) -> int:
        """Return how many transactions of an account are mined."""
        return int(self.ask("eth_getTransactionCount", account, "latest"), 16)

    def receipt(self, digest: str) -> Any:
        """Return the receipt of a transaction, once it is mined."""
        assert wait_until(
            lambda: self.ask("eth_getTransactionReceipt", digest) is not None, PATIENCE_SECONDS
        ), digest
        return self.ask("eth_getTransactionReceipt", digest)

    def is_ready(self) -> bool:
        """Whether it answers and has made a few blocks."""
        try:
            return int(self.ask("eth_blockNumber"), 16) >= self.blocks
        except OSError:
            return False


@contextmanager
def running_anvil(
    folder: Path, *, arguments: Sequence[str] = ARGUMENTS, blocks: int = OLD_ENOUGH_BLOCKS
) -> Iterator[Anvil]:
    """Yield a running anvil on a free port once it has a number of blocks; skip if it is not installed."""
    binaries = sorted(HERE.glob("node_modules/@foundry-rs/anvil-*/bin/anvil"))
    if not binaries:
        pytest.skip("anvil is not installed: `make test` installs it where Node.js and npm are")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = (str(binaries[0]), *arguments, "--port", str(port))
    child = spawn("anvil", argv, folder=folder, log=folder / "anvil.txt")
    anvil = Anvil(f"http://127.0.0.1:{port}", blocks)
    try:
        assert wait_until(anvil.is_ready, PATIENCE_SECONDS), child.log_tail()
        yield anvil
    finally:
        stop([child], PATIENCE_SECONDS)
