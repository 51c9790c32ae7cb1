"""Findings about commands that query a chain: bad answers, a missing contract, coins with a market value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from findings.commands import LEDGER_EXIT, deploy, invoke
from support.ledger import DEPLOYER, ServedChain
from web3 import Web3

from sapo_client import keystore

RECEIVER: Final = "0x" + "11" * 20
BLOCK_SECONDS: Final = 12
STUCK_BLOCKS: Final = 6
"""Blocks that a transaction waits before eae0a53 raises its fees for the first time."""


def result(value: Any) -> bytes:
    """Return the response with a result."""
    return json.dumps({"jsonrpc": "2.0", "id": 0, "result": value}).encode()


def error(value: Any) -> bytes:
    """Return the response with an error."""
    return json.dumps({"jsonrpc": "2.0", "id": 0, "error": value}).encode()


ANSWERS: Final[Mapping[str, bytes]] = {
    "nothing": b"",
    "null": b"null",
    "text": b"hello",
    "list": b"[]",
    "number": b"5",
    "binary": bytes(range(256)),
    "result null": result(None),
    "result text": result("hello"),
    "result empty": result(""),
    "result number": result(31337),
    "result huge": result("0x" + "f" * 5000),
    "result object": result({}),
    "error": error({"code": -32000, "message": "no"}),
    "error text": error("no"),
}


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """Serve the same body as the response to every request; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The identity of an account that holds coins."""
    monkeypatch.setenv("HOME", str(tmp_path))
    keystore.create(tmp_path / "key.json", None, account_key=bytes(DEPLOYER.key))
    return tmp_path / "key.json"


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_malformed_reply_to_a_deployment_is_a_sapo_error(answer: str, key: Path, tmp_path: Path) -> None:
    with answering(ANSWERS[answer]) as url:
        code, said = deploy(tmp_path / "swarm", url, key)
    assert code == LEDGER_EXIT, said
    assert not (tmp_path / "swarm" / "manifest.json").exists()


def test_a_missing_faucet_is_reported_and_no_coins_are_sent(key: Path, tmp_path: Path) -> None:
    chain = ServedChain(tmp_path / "chain.sqlite")
    facts = {"chain_id": 31337, "faucet": "0x" + "07" * 20}
    (tmp_path / "deployment.json").write_text(json.dumps(facts))
    code, said = invoke("testnet", "faucet", str(tmp_path), RECEIVER, "--rpc", chain.url, "--key", str(key))
    chain.close()
    assert (code, f"served {RECEIVER}" in said) == (LEDGER_EXIT, False), said


def test_a_main_network_of_any_id_is_not_deployed_to_unasked(key: Path, tmp_path: Path) -> None:
    """Fraxtal (252) was not on the list of eae0a53."""
    chain = ServedChain(tmp_path / "chain.sqlite", chain_id=252)
    code, said = deploy(tmp_path / "swarm", chain.url, key)
    chain.close()
    assert not (tmp_path / "swarm" / "manifest.json").exists(), said
    assert (code, "money" in said) == (LEDGER_EXIT, True), said


def test_a_window_outlasts_the_first_raise_of_a_challenges_fees(key: Path, tmp_path: Path) -> None:
    """Sepolia, a public test network: one block in twelve seconds."""
    chain = ServedChain(tmp_path / "chain.sqlite", chain_id=11155111)
    code, said = deploy(tmp_path / "swarm", chain.url, key)
    assert code == 0, said
    ledger = json.loads((tmp_path / "swarm" / "deployment.json").read_text())["ledger"]
    web3 = Web3(Web3.HTTPProvider(chain.url))
    asked = web3.eth.call(
        {"to": Web3.to_checksum_address(ledger), "data": web3.keccak(text="challengeSeconds()")[:4]}
    )
    chain.close()
    assert int.from_bytes(asked, "big") > 2 * BLOCK_SECONDS * STUCK_BLOCKS
