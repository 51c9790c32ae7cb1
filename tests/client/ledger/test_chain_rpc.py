"""The embedded chain's JSON-RPC: answers and refusals."""

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from eth_utils import keccak
from support.ledger import ALICE, BOB, FUNDED, NOW_SECONDS, ServedChain, address, keys, node_key, send_coins

from sapo_client.errors import SapoError
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis
from sapo_client.ledger.chain.errors import ChainClosed
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.server import MAX_BATCH, MAX_REQUEST_BYTES
from sapo_client.ledger.scan import numbered_block_before
from sapo_protocol.identifiers import Account


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[ServedChain]:
    served = ServedChain(tmp_path / "chain.sqlite")
    yield served
    served.close()


def _post(url: str, body: bytes) -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _error(url: str, method: str, *params: object) -> int:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return int(_post(url, body)["error"]["code"])


def _pay(chain: ServedChain, wei: int = 1) -> None:
    send_coins(chain.url, ALICE, address(BOB), wei)


def _signed(chain: ServedChain, **changes: object) -> str:
    fields = {
        "chainId": DEFAULT_CHAIN_ID,
        "nonce": tx.next_nonce(chain.rpc, address(ALICE)),
        "to": BOB.address,
        "value": 1,
        "gas": 21_000,
        "maxFeePerGas": 10**10,
        "maxPriorityFeePerGas": 1,
        **changes,
    }
    return "0x" + bytes(ALICE.sign_transaction(fields).raw_transaction).hex()


def test_timestamps_of_blocks_follow_the_clock_and_never_decrease(chain: ServedChain) -> None:
    times = []
    for now in (NOW_SECONDS + 5.9, NOW_SECONDS + 5.95, NOW_SECONDS, NOW_SECONDS + 9):
        chain.now_seconds = now
        _pay(chain)
        times.append(chain.engine.head.timestamp - NOW_SECONDS)
    assert times == [5, 5, 5, 9]


def test_blocks_are_found_by_number_tag_and_hash(chain: ServedChain) -> None:
    _pay(chain)
    by_number = chain.request("eth_getBlockByNumber", "0x1", True)["result"]
    assert by_number["transactions"][0]["from"] == "0x" + address(ALICE).hex()
    for tag in ("latest", "safe", "finalized", "pending"):
        assert chain.request("eth_getBlockByNumber", tag, True)["result"] == by_number
    assert chain.request("eth_getBlockByHash", by_number["hash"], True)["result"] == by_number
    genesis = chain.request("eth_getBlockByNumber", "earliest", False)["result"]
    assert by_number["parentHash"] == genesis["hash"]
    assert chain.request("eth_getBlockByNumber", "0x2", False)["result"] is None
    assert chain.request("eth_getBlockByHash", "0x" + "00" * 32, False)["result"] is None


def test_balances_and_nonces_of_earlier_blocks_can_be_queried(chain: ServedChain) -> None:
    account = BOB.address
    _pay(chain, 7)
    now, then = (int(chain.request("eth_getBalance", account, at)["result"], 16) for at in ("latest", "0x0"))
    assert now - then == 7
    assert chain.request("eth_getTransactionCount", ALICE.address, "0x0")["result"] == "0x0"
    assert chain.request("eth_getTransactionCount", ALICE.address, "latest")["result"] == "0x1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"chainId": 1}, "for chain 1"),
        ({"nonce": 0}, "nonce too low"),
        ({"nonce": 50}, "nonce too high"),
        ({"value": 10**30}, "enough balance"),
        ({"maxFeePerGas": 1}, "base fee"),
        ({"gas": 20_999}, "gas"),
        ({"gas": 30_000_001}, "gas limit"),
    ],
)
def test_an_invalid_transaction_is_refused_and_changes_no_state(
    chain: ServedChain, changes: dict[str, object], words: str
) -> None:
    _pay(chain)
    head = chain.engine.head
    answer = chain.request("eth_sendRawTransaction", _signed(chain, **changes))
    assert words in answer["error"]["message"]
    assert chain.engine.head == head
    _pay(chain)


def test_a_transaction_sent_again_is_already_known(chain: ServedChain) -> None:
    raw = _signed(chain)
    chain.request("eth_sendRawTransaction", raw)
    assert chain.request("eth_sendRawTransaction", raw)["error"]["message"] == "already known"
    assert chain.engine.head.block_number == 1


@pytest.mark.parametrize("raw", ["0x", "0x00", "0xc0", "0x02", "0x02c0", "0x7f00", "0x" + "ff" * 100])
def test_bytes_that_are_no_transaction_are_refused(chain: ServedChain, raw: str) -> None:
    assert _error(chain.url, "eth_sendRawTransaction", raw) == -32602


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("eth_sign", [], -32601),
        ("anvil_setBalance", ["0x" + "11" * 20, "0x1"], -32601),
        ("eth_getBalance", [], -32602),
        ("eth_getBalance", ["0x11"], -32602),
        ("eth_getBalance", ["0x" + "11" * 20, "0xzz"], -32602),
        ("eth_getBalance", ["0x" + "11" * 20, "0xffff"], -32602),
        ("eth_getBlockByHash", ["0x12", False], -32602),
        ("eth_getLogs", ["x"], -32602),
        ("eth_getLogs", [{"topics": [[["0x"]]]}], -32602),
        ("eth_getLogs", [{"topics": [None] * 5}], -32602),
        ("eth_call", [7], -32602),
        ("eth_call", [{"to": "0x1"}], -32602),
        ("eth_sendRawTransaction", ["not hex"], -32602),
    ],
)
def test_invalid_requests_get_the_right_error_code(
    chain: ServedChain, method: str, params: list[object], code: int
) -> None:
    assert _error(chain.url, method, *params) == code


@pytest.mark.parametrize(
    ("body", "code"), [(b"", -32700), (b"{", -32700), (b"[]", -32600), (b"7", -32600), (b"{}", -32600)]
)
def test_malformed_bodies_get_the_right_error_code(chain: ServedChain, body: bytes, code: int) -> None:
    assert _post(chain.url, body)["error"]["code"] == code


def test_a_batch_is_answered_in_order_and_bounded(chain: ServedChain) -> None:
    one = {"jsonrpc": "2.0", "method": "eth_chainId", "params": []}
    answers = _post(chain.url, json.dumps([{**one, "id": 1}, 5, {**one, "id": 2}]).encode())
    assert [answer.get("id") for answer in answers] == [1, None, 2]
    assert _post(chain.url, json.dumps([one] * (MAX_BATCH + 1)).encode())["error"]["code"] == -32600


def test_a_large_body_is_refused_unread(chain: ServedChain) -> None:
    with closing(http.client.HTTPConnection(chain.url.removeprefix("http://"), timeout=30)) as connection:
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", str(MAX_REQUEST_BYTES + 1))
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_fees_are_returned_for_recent_blocks(chain: ServedChain) -> None:
    _pay(chain)
    history = chain.request("eth_feeHistory", "0x10", "latest", [50])["result"]
    assert history["oldestBlock"] == "0x0"
    assert [len(history[name]) for name in ("baseFeePerGas", "gasUsedRatio", "reward")] == [3, 2, 2]


def test_the_last_block_before_a_moment_is_found(chain: ServedChain) -> None:
    hashes = {}
    for offset in (10, 20, 20, 30, 40):
        chain.now_seconds = NOW_SECONDS + offset
        _pay(chain)
        hashes[offset] = bytes(chain.engine.head.hash)  # of several in one second, the last
    for before, last in ((11, 10), (20, 10), (21, 20), (40, 30), (41, 40), (1_000, 40)):
        _, found = numbered_block_before(chain.rpc, NOW_SECONDS + before, confirmations=1)
        assert found == hashes[last]
    with pytest.raises(SapoError, match="no block before"):
        numbered_block_before(chain.rpc, NOW_SECONDS, confirmations=1)
    with pytest.raises(SapoError, match="not settled"):
        numbered_block_before(chain.rpc, NOW_SECONDS + 1_000, confirmations=2)
    with pytest.raises(SapoError, match="still to come"):
        numbered_block_before(chain.rpc, NOW_SECONDS + 41, confirmations=1, now=lambda: NOW_SECONDS + 40.9)


def test_reopening_a_chain_with_another_genesis_is_refused(tmp_path: Path) -> None:
    born = Genesis(5, (address(ALICE),))
    EmbeddedChain(tmp_path / "c", born).close()
    reopened = EmbeddedChain(tmp_path / "c", Genesis(5, ()))
    assert reopened.genesis == born
    reopened.close()
    for other in (Genesis(6, ()), Genesis(5, (address(keys(50)),))):
        with pytest.raises(SapoError, match="other accounts or another id"):
            EmbeddedChain(tmp_path / "c", other)


class StoppedClock:
    """Returns the time only once it is released."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> float:
        self.asked.set()
        assert self.go_on.wait(30)
        return NOW_SECONDS


def test_the_file_closes_after_the_call_under_way(tmp_path: Path) -> None:
    chain = ServedChain(tmp_path / "c")
    raw, clock = _signed(chain), StoppedClock()
    chain.close()
    clock.go_on.set()
    methods = Methods(EmbeddedChain(tmp_path / "c", Genesis(DEFAULT_CHAIN_ID, ()), now=clock))
    clock.asked.clear()
    clock.go_on.clear()
    with ThreadPoolExecutor(2) as threads:
        sending = threads.submit(methods.call, "eth_sendRawTransaction", [raw])
        assert clock.asked.wait(30)
        closing = threads.submit(methods.close)
        clock.go_on.set()
        assert (sending.result(), closing.result()) == ("0x" + keccak(bytes.fromhex(raw[2:])).hex(), None)
    with pytest.raises(ChainClosed):
        methods.call("eth_blockNumber", [])


def test_a_connection_that_outlives_the_chain_is_dropped_without_an_answer(tmp_path: Path) -> None:
    chain = ServedChain(tmp_path / "c")
    connection = http.client.HTTPConnection(chain.url.removeprefix("http://"), timeout=30)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": []})
    connection.request("POST", "/", body)
    assert json.load(connection.getresponse())["result"] == "0x0"
    chain.close()
    connection.request("POST", "/", body)
    with pytest.raises(http.client.RemoteDisconnected):
        connection.getresponse()


def test_funded_accounts_have_a_million_coins_and_others_none(chain: ServedChain) -> None:
    for signer in FUNDED:
        assert chain.request("eth_getBalance", signer.address, "latest")["result"] == hex(10**24)
    assert chain.request("eth_getBalance", "0x" + Account(node_key(1)[:20]).hex())["result"] == "0x0"
