"""What a read of the chain costs, and how long an endpoint can hold it up."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from eth_utils import to_checksum_address
from support.ledger import Contracts

from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.endpoints import RpcEndpoint, Unanswered, connect

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


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
def test_reading_a_function_takes_one_request(
    contracts: Contracts, asked: list[str], read: Callable[[Contracts], object]
) -> None:
    read(contracts)
    asked.clear()
    read(contracts)
    assert asked == ["eth_call"]


def test_reading_a_function_says_what_web3_says(contracts: Contracts) -> None:
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
def trickling() -> Iterator[str]:
    """Serve an answer of which one byte after the other arrives, for ever."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(HEAD)
                while not ended.wait(0.01):
                    connection.sendall(b" ")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join()


def test_an_endpoint_that_trickles_is_silent_when_its_time_is_up() -> None:
    told: list[str] = []
    with trickling() as url:
        endpoint = RpcEndpoint(url, connect(url, timeout_seconds=0.2), lambda: 0.0, told.append)
        with pytest.raises(Unanswered):
            endpoint.ask(lambda web3: web3.eth.block_number)
    assert told == [f"{url}: no answer (ReadTimeout)"]
    assert endpoint.rests


def test_an_answer_that_breaks_off_is_silence() -> None:
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
