"""Cost of reading the chain, and the maximum delay by an endpoint."""

import gzip
import http.client
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import cast

import pytest
from eth_utils import to_checksum_address
from support.ledger import ALICE, NOW_SECONDS, Contracts, address, node_key

from sapo_client.ledger.chain.errors import REFUSED, RpcError
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.contract import Registry
from sapo_client.ledger.endpoints import RpcEndpoint, Unanswered, connect
from sapo_client.ledger.errors import NotYet
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.scan import RegistryView

LATER = NOW_SECONDS + 10**9
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
HEAD = ENDLESS[:-2] + b"Content-Length: 100000\r\n\r\n"
PACKED = ENDLESS[:-2] + b"Content-Encoding: gzip\r\n\r\n"


class CountingMethods(Methods):
    """The chain's methods, which remember what they were asked."""

    asked: list[str]

    def call(self, name: str, params: object) -> object:
        self.asked.append(name)
        return super().call(name, params)  # type: ignore[arg-type]


@pytest.fixture
def asked(contracts: Contracts) -> list[str]:
    """The requests to the chain, in their order."""
    methods = CountingMethods(contracts.chain.engine)
    methods.asked = []
    contracts.chain._server.methods = methods
    return methods.asked


READS: dict[str, Callable[[Contracts], object]] = {
    "a record": lambda at: at.ledger.live(),
    "a number": lambda at: at.ledger.next_epoch(),
    "an address": lambda at: at.ledger.verifier(),
    "a list": lambda at: at.ledger.successions(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_call_of_a_function_takes_one_request(
    contracts: Contracts, asked: list[str], read: Callable[[Contracts], object]
) -> None:
    read(contracts)
    asked.clear()
    read(contracts)
    assert asked == ["eth_call"]


def test_reading_a_function_equals_web3s_result(contracts: Contracts) -> None:
    web3 = connect(contracts.chain.url)
    where = to_checksum_address(contracts.deployment.ledger)
    bound = web3.eth.contract(address=where, abi=list(contracts.ledger.artifact.abi)).functions
    genesis_seconds, epoch_seconds = bound.genesisSeconds().call(), bound.epochSeconds().call()
    assert contracts.ledger.clock() == (genesis_seconds, epoch_seconds)
    assert to_checksum_address(contracts.ledger.verifier().address) == bound.verifier().call()
    assert contracts.ledger.live() is None
    assert bound.live().call()[1] == 0


def test_an_answer_is_read_in_large_parts(contracts: Contracts, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read1 = http.client.HTTPResponse.read1

    def counted(response: http.client.HTTPResponse, n: int = -1) -> bytes:
        reads.append(n)
        return read1(response, n)

    monkeypatch.setattr(http.client.HTTPResponse, "read1", counted)
    block = connect(contracts.chain.url).eth.get_block(0)
    assert block["number"] == 0
    assert 1 <= len(reads) <= 3  # it has two thousand bytes


@contextmanager
def endless(head: bytes, part: bytes, pause_seconds: float = 0.0) -> Iterator[str]:
    """Serve an answer of which the same part arrives again and again, for ever."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(head)
                while not ended.wait(pause_seconds):
                    connection.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join()


def test_a_slow_endpoint_times_out() -> None:
    told: list[str] = []
    with endless(HEAD, b" ", 0.01) as url:
        endpoint = RpcEndpoint(url, connect(url, timeout_seconds=0.2), lambda: 0.0, told.append)
        with pytest.raises(Unanswered):
            endpoint.ask(lambda web3: web3.eth.block_number)
    assert told == [f"{url}: no answer (ReadTimeout)"]
    assert endpoint.rests


def packed(text: bytes) -> bytes:
    """Return a text as one member of a gzip stream; members may follow each other."""
    return gzip.compress(text, mtime=0)


@pytest.mark.parametrize(
    ("head", "part"),
    [(ENDLESS, b" " * 65_536), (PACKED, packed(b" " * 10_000_000))],
    ids=["plain", "packed a thousandfold"],
)
def test_an_endless_answer_is_cut_at_its_limit(head: bytes, part: bytes) -> None:
    told: list[str] = []
    with endless(head, part) as url:
        endpoint = RpcEndpoint(url, connect(url, max_bytes=1_000_000), lambda: 0.0, told.append)
        with pytest.raises(Unanswered):
            endpoint.ask(lambda web3: web3.eth.block_number)
    assert told == [f"{url}: no answer (its answer to eth_blockNumber is longer than 1,000,000 bytes)"]
    assert endpoint.rests


def test_a_truncated_answer_counts_as_no_answer() -> None:
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(HEAD + b'{"jsonrpc": ')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        endpoint = RpcEndpoint(url, connect(url), lambda: 0.0, told.append)
        with pytest.raises(Unanswered):
            endpoint.ask(lambda web3: web3.eth.block_number)
        thread.join()
    assert told == [f"{url}: no answer (ConnectionError)"]


class FewLogs(CountingMethods):
    """The chain's methods at an endpoint that gives logs of few blocks at once."""

    max_blocks: int
    blocks: list[int]

    def call(self, name: str, params: object) -> object:
        if name == "eth_getLogs":
            wanted = cast(list[dict[str, str]], params)[0]
            self.blocks.append(int(wanted["toBlock"], 16) - int(wanted["fromBlock"], 16) + 1)
            if self.blocks[-1] > self.max_blocks:
                raise RpcError(REFUSED, "too many blocks")
        return super().call(name, params)


def _few(contracts: Contracts, max_blocks: int) -> FewLogs:
    methods = FewLogs(contracts.chain.engine)
    methods.asked, methods.blocks, methods.max_blocks = [], [], max_blocks
    contracts.chain._server.methods = methods
    return methods


def test_the_registry_is_read_in_parts_where_an_endpoint_refuses_many_blocks(contracts: Contracts) -> None:
    for number in range(1, 4):
        contracts.register(ALICE, node_key(number), LATER)
    claims = {(address(ALICE), node_key(number)) for number in range(1, 4)}
    methods = _few(contracts, 10)
    view = RegistryView(contracts.chain.rpc, contracts.registry, confirmations=1)
    assert view.live(NOW_SECONDS) == claims
    assert max(methods.blocks[:2]) > 10 >= max(methods.blocks[2:])
    contracts.register(ALICE, node_key(4), LATER)
    methods.blocks.clear()
    assert view.live(NOW_SECONDS) == claims | {(address(ALICE), node_key(4))}
    assert methods.blocks == [1]


def test_an_endpoint_without_logs_is_reported(contracts: Contracts) -> None:
    methods = _few(contracts, 0)
    view = RegistryView(contracts.chain.rpc, contracts.registry, confirmations=1)
    with pytest.raises(NotYet, match="too many blocks"):
        view.live(NOW_SECONDS)
    methods.max_blocks = 1_000
    assert view.live(NOW_SECONDS) == frozenset()


def test_logs_that_are_too_long_are_asked_for_in_parts(contracts: Contracts) -> None:
    """An attacker who fills blocks with claims makes no honest endpoint unusable."""
    for number in range(1, 5):
        contracts.register(ALICE, node_key(number), LATER)
    web3 = connect(contracts.chain.url, max_bytes=2_000)  # a block, and fewer than four claims
    rpc = Rpc([contracts.chain.url], connect=lambda _: web3)
    view = RegistryView(rpc, Registry(rpc, contracts.deployment.registry), confirmations=1)
    assert view.live(NOW_SECONDS) == {(address(ALICE), node_key(number)) for number in range(1, 5)}
    assert rpc.endpoints[0].trouble is None


def test_a_dead_endpoint_asked_every_second_for_a_day_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The only endpoint is asked although it rests: the log says so as often as it would be asked else."""
    now, told = [0.0], list[str]()
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    endpoint = RpcEndpoint(url, connect(url), lambda: now[0], told.append)
    caplog.set_level(logging.INFO, logger="sapo_client.ledger.endpoints")
    for second in range(1_500):
        now[0] = float(second)
        with pytest.raises(Unanswered):
            endpoint.ask(lambda web3: web3.eth.block_number)
    pauses = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    assert caplog.messages == [
        f"{url}: no answer (ConnectionError); it rests for {rest} s" for rest in pauses
    ]
    assert told == [f"{url}: no answer (ConnectionError)"]
