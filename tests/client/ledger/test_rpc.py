"""Several endpoints: which are queried, which are trusted, and reports about the others."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faulty import Faults, FaultyEndpoint, Mode, connected
from support.ledger import FUNDED, NOW_SECONDS, address
from support.network import ForkingChain, Network
from web3 import Web3
from web3.types import BlockIdentifier, RPCEndpoint, RPCResponse

from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import Genesis
from sapo_client.ledger.endpoints import EndpointStatus
from sapo_client.ledger.errors import Disagreement, LedgerUnavailable, WrongChain
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.scan import numbered_block_before
from sapo_protocol.identifiers import Digest

NO_FAULTS = Faults(random.Random(0), fault_rate=0.0, kill_rate=0.0, off=True)


class Counting(FaultyEndpoint):
    """An endpoint that counts what it is asked."""

    requests = 0

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        self.requests += 1
        answer: RPCResponse = super().make_request(method, params)
        return answer


class Bench:
    """Endpoints of an honest network and of a fork of it, their clocks, and what was told of them."""

    def __init__(self, folder: Path) -> None:
        self.now, self.seconds, self.told = float(NOW_SECONDS), 0.0, list[str]()
        self.honest = self._network(folder / "honest.sqlite", DEFAULT_CHAIN_ID)
        self.fork = self._network(folder / "fork.sqlite", DEFAULT_CHAIN_ID)
        self.foreign = self._network(folder / "foreign.sqlite", DEFAULT_CHAIN_ID + 1)
        self.honest.fill(5)
        self.fork.engine.mine_empty(b"another history")
        self.fork.fill(4)
        self.foreign.fill(9)
        self.endpoints: list[Counting] = []

    def rpc(self, *networks: Network, chain_id: int | None = DEFAULT_CHAIN_ID) -> Rpc:
        self.endpoints = [Counting(network, self.foreign, NO_FAULTS) for network in networks]
        names = {f"http://{number}/secret": end for number, end in enumerate(self.endpoints)}
        return Rpc(
            tuple(names),
            chain_id=chain_id,
            connect=lambda name: connected(names[name]),
            clock=lambda: self.seconds,
            now=lambda: self.now,
            report=self.told.append,
        )

    def beacon(self, rpc: Rpc) -> Digest:
        return numbered_block_before(rpc, NOW_SECONDS + 1, confirmations=1, now=lambda: NOW_SECONDS + 2.0)[1]

    def close(self) -> None:
        for network in (self.honest, self.fork, self.foreign):
            network.engine.close()

    def _network(self, path: Path, chain_id: int) -> Network:
        birth = Genesis(chain_id, tuple(sorted(map(address, FUNDED))))
        return Network(ForkingChain(path, birth, now=lambda: self.now))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    opened = Bench(tmp_path)
    yield opened
    opened.close()


def tip(network: Network) -> Digest:
    return Digest(bytes(network.engine.head.hash))


def test_an_answer_of_all_endpoints_is_trusted(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.honest)
    assert bench.beacon(rpc) == tip(bench.honest)
    assert (bench.told, rpc.survey()) == ([], 5)
    assert rpc.endpoints == (EndpointStatus("http://0", 5, None, 0), EndpointStatus("http://1", 5, None, 0))


def test_of_two_endpoints_that_disagree_neither_is_trusted(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.fork)
    for _ in range(2):
        with pytest.raises(Disagreement, match="the last block before"):
            bench.beacon(rpc)
    assert [endpoint.disagreements for endpoint in rpc.endpoints] == [2, 2]
    assert [text.split(": ")[0] for text in bench.told] == ["http://0", "http://1"]  # once each


def test_of_three_endpoints_the_majority_is_trusted(bench: Bench) -> None:
    rpc = bench.rpc(bench.fork, bench.honest, bench.honest)
    assert bench.beacon(rpc) == tip(bench.honest)
    assert [endpoint.disagreements for endpoint in rpc.endpoints] == [1, 0, 0]


def test_an_endpoint_without_an_answer_yet_counts_without_penalty(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.honest)
    bench.endpoints[1].turn(Mode.STALE)
    bench.now += 10
    bench.honest.fill(2)
    with pytest.raises(Disagreement):
        rpc.agree(lambda web3: bytes(web3.eth.get_block(6)["hash"]), "block 6")
    assert (bench.told, [endpoint.disagreements for endpoint in rpc.endpoints]) == ([], [0, 0])


@pytest.mark.parametrize(("count", "height"), [(2, 5), (3, 7)])
def test_a_read_uses_one_block_that_most_endpoints_have(bench: Bench, count: int, height: int) -> None:
    rpc = bench.rpc(*[bench.honest] * count)
    bench.endpoints[1].turn(Mode.STALE)
    bench.now += 10
    bench.honest.fill(2)
    assert rpc.read(_block_hash, "a block") == bytes(bench.honest.engine.header(height).hash)
    assert [endpoint.disagreements for endpoint in rpc.endpoints] == [0] * count


def test_two_endpoints_with_distant_blocks_disagree(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.honest)
    bench.endpoints[1].turn(Mode.STALE)
    bench.honest.fill(4)
    with pytest.raises(Disagreement, match="the newest blocks"):
        rpc.read(_block_hash, "a block")


def _block_hash(web3: Web3, block: BlockIdentifier) -> bytes:
    return bytes(web3.eth.get_block(block)["hash"])


def test_another_chain_is_not_trusted(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.honest)
    bench.endpoints[0].turn(Mode.FOREIGN)
    assert rpc.survey() == 5
    assert bench.beacon(rpc) == tip(bench.honest)
    wrong = f"it serves chain {DEFAULT_CHAIN_ID + 1}, the manifest names {DEFAULT_CHAIN_ID}"
    assert (bench.told, rpc.endpoints[0].trouble) == ([f"http://0: {wrong}"], wrong)
    bench.endpoints[0].turn(Mode.GOOD)
    rpc.survey()
    assert bench.told[1:] == ["http://0: works again"]


def test_only_endpoints_of_another_chain_are_an_error(bench: Bench) -> None:
    """At the first question already, whichever it is."""
    questions: tuple[Callable[[Rpc], int], ...] = (
        Rpc.survey,
        lambda rpc: rpc.ask(lambda web3: int(web3.eth.block_number)),
    )
    for question in questions:
        with pytest.raises(WrongChain, match="serves chain"):
            question(bench.rpc(bench.foreign))


def test_a_chain_that_changes_between_two_requests_is_detected(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest)
    rpc.survey()
    bench.endpoints[0].turn(Mode.FOREIGN)
    with pytest.raises(Exception, match="serves another chain now"):
        rpc.agree(lambda web3: web3.eth.get_transaction_count("0x" + "01" * 20))


@pytest.mark.parametrize(
    ("before", "during", "after"),
    [(Mode.FOREIGN, Mode.FOREIGN, Mode.GOOD), (Mode.GOOD, Mode.FOREIGN, Mode.FOREIGN)],
)
def test_another_chain_is_detected_before_and_after_a_request(
    bench: Bench, before: Mode, during: Mode, after: Mode
) -> None:
    rpc, [endpoint] = bench.rpc(bench.honest), bench.endpoints
    rpc.survey()
    endpoint.turn(before)

    def ask(web3: Web3) -> int:
        endpoint.turn(during)
        count = web3.eth.get_transaction_count("0x" + "01" * 20)
        endpoint.turn(after)
        return count

    with pytest.raises(Exception, match="serves another chain now"):
        rpc.agree(ask)


def test_pauses_of_a_silent_endpoint_double(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.honest)
    silent = bench.endpoints[0]
    silent.turn(Mode.SILENT)
    asked = []
    for _ in range(16):
        before = silent.requests
        rpc.survey()
        asked.append(silent.requests - before)
        bench.seconds += 1.0
    assert asked == [1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert bench.told == ["http://0: no answer (ConnectTimeout)"]
    silent.turn(Mode.GOOD)
    bench.seconds += 300.0
    rpc.survey()
    assert bench.told[1:] == ["http://0: works again"]


def test_a_suspended_endpoint_is_queried_if_there_is_no_other(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest)
    bench.endpoints[0].turn(Mode.SILENT)
    with pytest.raises(LedgerUnavailable, match="no answer from the chain at http://0: no answer"):
        rpc.survey()
    bench.endpoints[0].turn(Mode.GOOD)
    assert rpc.survey() == 5


def test_a_stale_endpoint_is_skipped(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.honest)
    bench.endpoints[0].turn(Mode.STALE)
    bench.now += 100
    bench.honest.fill(4)
    assert rpc.survey() == 9
    assert rpc.endpoints[0] == EndpointStatus("http://0", 5, "it is 4 blocks behind", 0)
    bench.honest.fill(1)
    rpc.survey()
    assert rpc.endpoints[0] == EndpointStatus("http://0", 5, "it is 5 blocks behind", 0)
    assert bench.told == ["http://0: it is 4 blocks behind"], "once"
    assert rpc.agree(lambda web3: int(web3.eth.block_number)) == 10
    bench.endpoints[0].turn(Mode.GOOD)
    rpc.survey()
    assert rpc.endpoints[0].trouble is None
    assert bench.told[1:] == ["http://0: works again"]


def test_an_endpoint_ahead_of_the_others_makes_none_of_them_stale(bench: Bench) -> None:
    bench.fork.fill(1000)
    rpc = bench.rpc(bench.honest, bench.fork)
    bench.now += 30
    assert rpc.survey() == 5
    assert [endpoint.trouble for endpoint in rpc.endpoints] == [None, None]
    with pytest.raises(Disagreement):
        bench.beacon(rpc)


def test_a_broadcast_reaches_all_that_answer(bench: Bench) -> None:
    rpc = bench.rpc(bench.honest, bench.fork, bench.honest)
    bench.endpoints[1].turn(Mode.SILENT)
    outcomes = rpc.broadcast(lambda web3: web3.eth.get_block("latest"))
    assert outcomes == [None, None]
