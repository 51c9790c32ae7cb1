"""A node that is killed at any time of a transaction's life sends it exactly once in the end.

The node under test is a real process. Between it and the chain stands a relay that kills it when a chosen
request passes: before the chain hears it, or after the chain has acted but before the node learns of it.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.ledger import ALICE, NOW_SECONDS, Contracts, address, node_key

from sapo_client.ledger.records import RegistryEvent

pytestmark = pytest.mark.e2e

LATER = NOW_SECONDS + 10**9

NODE = """
import sys
from pathlib import Path
from eth_account import Account
from sapo_client.ledger.contract import Registry
from sapo_client.ledger.outbox import Outbox
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.sender import Sender
from sapo_client.ledger.transactions import Call
from sapo_protocol.identifiers import Account as Address, NodeId

url, path, secret, registry, key, end = sys.argv[1:]
rpc = Rpc([url])
outbox = Outbox(Path(path), owner="test")
contract = Registry(rpc, Address.from_hex(registry))
outbox.add("register", key, Call(contract.address, contract.register(NodeId.from_hex(key), int(end))))
sender = Sender(rpc, Account.from_key(secret), outbox, confirmations=1)
while sender.step():
    pass
"""


class Relay(ThreadingHTTPServer):
    """Forwards JSON-RPC; kills the process that it watches at one request."""

    daemon_threads = True

    def __init__(self, chain_url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.chain_url = chain_url
        self.fatal: tuple[str, str] | None = None
        self.victim: subprocess.Popen[bytes] | None = None
        self.killed = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def kills_at(self, method: str, moment: str) -> bool:
        return self.fatal == (method, moment)

    def kill(self) -> None:
        assert self.victim is not None
        self.fatal, self.killed = None, self.killed + 1
        self.victim.kill()


class _Forward(BaseHTTPRequestHandler):
    server: Relay

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        method = json.loads(body)["method"]
        if self.server.kills_at(method, "before"):
            self.server.kill()
            return
        request = urllib.request.Request(self.server.chain_url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            reply = answer.read()
        if self.server.kills_at(method, "after"):
            self.server.kill()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def relay(contracts: Contracts) -> Iterator[Relay]:
    server = Relay(contracts.chain.url)
    yield server
    server.shutdown()
    server.server_close()


def _run_node(relay: Relay, contracts: Contracts, path: Path) -> int:
    arguments = [relay.url, str(path), ALICE.key.hex(), contracts.registry.address.hex(), node_key(5).hex()]
    command = [sys.executable, "-c", NODE, *arguments, str(LATER)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    relay.victim = subprocess.Popen(command, env=environment)
    return relay.victim.wait(timeout=60)


@pytest.mark.parametrize(
    "fatal",
    [
        ("eth_estimateGas", "before"),  # nothing is signed
        ("eth_sendRawTransaction", "before"),  # signed and on disk, never sent
        ("eth_sendRawTransaction", "after"),  # mined, but the node never learned of it
        ("eth_getTransactionReceipt", "after"),  # mined, not yet confirmed in the outbox
    ],
)
def test_a_node_killed_on_the_way_registers_exactly_once(
    contracts: Contracts, relay: Relay, tmp_path: Path, fatal: tuple[str, str]
) -> None:
    chain = contracts.chain
    nonce = int(chain.request("eth_getTransactionCount", ALICE.address, "latest")["result"], 16)
    relay.fatal = fatal
    assert _run_node(relay, contracts, tmp_path / "outbox.sqlite") == -9
    assert relay.killed == 1
    assert _run_node(relay, contracts, tmp_path / "outbox.sqlite") == 0
    events = contracts.registry.events(0, chain.engine.head.block_number)
    assert events == [RegistryEvent(address(ALICE), node_key(5), LATER)]
    assert int(chain.request("eth_getTransactionCount", ALICE.address, "latest")["result"], 16) == nonce + 1
