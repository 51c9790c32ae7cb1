"""Transactions that wait on a congested network, and endpoints that contradict each other."""

import random
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from fuzz.schedules import CONFIRMATIONS, LATER, Ground
from support.faulty import Faults, FaultyEndpoint, Mode, connected
from support.ledger import ALICE, BOB, CHALLENGE_SECONDS, address, keys, make_root, node_key, sign
from support.network import ForkingChain, Network

from sapo_client.ledger import transactions as tx
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.contract import Distributor, EpochLedgerContract, Registry
from sapo_client.ledger.fees import DEFAULT_LIMIT_WEI, GWEI, STUCK_BLOCKS, URGENT_BLOCKS
from sapo_client.ledger.outbox import EntryState, Outbox, OutboxEntry
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.sender import Sender
from sapo_client.ledger.transactions import Call
from sapo_protocol.eip712 import Domain, EpochApproval

NO_FAULTS = Faults(random.Random(0), fault_rate=0.0, kill_rate=0.0, off=True)
ROOT = make_root(3)
DOUBLINGS = 3
ANSWERS = 6
"""Fewer than a node has under way at a time."""

ALICE_ACCOUNT = address(ALICE)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("ground"))
    yield ground
    ground.close()


@pytest.fixture
def ground(opened: Ground) -> Ground:
    opened.reset()
    return opened


@pytest.fixture
def fork(ground: Ground, tmp_path: Path) -> Iterator[Network]:
    """A branch of the same chain on which another auditor has posted the epoch and made it final."""
    shutil.copy(ground.folder / "chain.sqlite", tmp_path / "fork.sqlite")
    engine = ForkingChain(tmp_path / "fork.sqlite", ground.network.engine.genesis, now=lambda: ground.seconds)
    network = Network(engine)
    network.reset(ground.network.engine.head.block_number)
    rpc = Rpc(("fork",), connect=lambda _: connected(FaultyEndpoint(network, network, NO_FAULTS)))
    ledger = EpochLedgerContract(Rpc(()), ground.deployment.ledger)
    for call in (_posting(ground), Call(ledger.address, ledger.finalise())):
        network.send(tx.sign(rpc, BOB, call, tx.next_nonce(rpc, address(BOB))).raw)
        assert network.mine() == 1
        ground.seconds += CHALLENGE_SECONDS
        network.fill(CONFIRMATIONS)
    yield network
    engine.close()


class Desk:
    """A sender before some endpoints."""

    def __init__(self, ground: Ground, folder: Path, *networks: Network, limit_wei: int = DEFAULT_LIMIT_WEI):
        self.ground, self.network, self.seconds = ground, ground.network, 0.0
        served = networks or (ground.network,)
        self.endpoints = [FaultyEndpoint(network, ground.foreign, NO_FAULTS) for network in served]
        names = {str(number): endpoint for number, endpoint in enumerate(self.endpoints)}
        self.rpc = Rpc(
            tuple(names),
            chain_id=DEFAULT_CHAIN_ID,
            connect=lambda name: connected(names[name]),
            clock=lambda: self.seconds,
            now=lambda: ground.seconds,
        )
        self.outbox = Outbox(folder / "outbox.sqlite", owner="test")
        self.sender = Sender(
            self.rpc,
            ALICE,
            self.outbox,
            confirmations=CONFIRMATIONS,
            limit_wei=limit_wei,
            clock=lambda: self.seconds,
        )

    def register(self, number: int, kind: str = "register") -> None:
        registry = Registry(self.rpc, self.ground.deployment.registry)
        call = Call(registry.address, registry.register(node_key(number), LATER))
        self.outbox.add(kind, str(number), call)

    def entry(self) -> OutboxEntry:
        return self.outbox.entries()[0]

    def step(self, blocks: int = 0) -> OutboxEntry:
        self.network.fill(blocks)
        self.seconds += 100.0
        self.sender.step()
        return self.entry()


def _posting(ground: Ground) -> Call:
    ledger = EpochLedgerContract(Rpc(()), ground.deployment.ledger)
    return Call(
        ledger.address,
        ledger.post(EpochApproval(0, ROOT), sign(ROOT, Domain(DEFAULT_CHAIN_ID, ledger.address))),
    )


def test_a_stuck_transaction_is_replaced_for_more_and_mined_once(ground: Ground, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path)
    desk.network.floor_wei = 2 * GWEI
    desk.register(1)
    (first,) = desk.step().transactions
    assert desk.network.mine() == 0
    assert desk.step(STUCK_BLOCKS - 1).transactions == (first,)
    paying = desk.step(1).transactions
    assert [one.nonce for one in paying] == [first.nonce] * 2
    assert 10 * paying[1].fees.max_fee >= 11 * first.fees.max_fee
    while desk.network.mine() == 0:
        desk.step(STUCK_BLOCKS)
    mined = desk.entry().transactions
    assert mined[-1].fees.max_fee >= 2 * GWEI > mined[-2].fees.max_fee
    assert desk.step(CONFIRMATIONS - 2).state is EntryState.SIGNED
    assert desk.step(1).state is EntryState.CONFIRMED


def test_a_challenge_pays_twice_as_much_after_two_blocks(ground: Ground, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path)
    desk.network.floor_wei = 7 * GWEI
    desk.register(1, "challenge")
    (first,) = desk.step().transactions
    assert desk.network.mine() == 0
    assert desk.step(URGENT_BLOCKS - 1).transactions == (first,)
    desk.step(1)
    while desk.network.mine() == 0:
        desk.step(URGENT_BLOCKS)
    paid = [one.fees.max_fee for one in desk.entry().transactions]
    assert all(after >= 2 * before for before, after in pairwise(paid))
    assert paid[-1] >= 7 * GWEI > paid[-2]
    assert desk.step(CONFIRMATIONS).state is EntryState.CONFIRMED


def test_a_challenge_is_not_held_up_by_cheap_transactions_in_front_of_it(
    ground: Ground, tmp_path: Path
) -> None:
    """Its nonce is behind those of requests that were sent before fees rose, and it waits for all of them."""
    desk = Desk(ground, tmp_path)
    for number in range(1, 4):
        desk.register(number)
    desk.step()
    desk.network.floor_wei = 7 * GWEI  # they offer a little more than one
    desk.register(4, "challenge")
    desk.step()
    blocks = 0
    while desk.outbox.entries()[-1].state is not EntryState.CONFIRMED:
        desk.network.mine()
        desk.step(1)
        blocks += 1
        assert blocks <= DOUBLINGS * URGENT_BLOCKS + CONFIRMATIONS, "all of them are raised at the same time"


@pytest.mark.parametrize("needless", [0, 1])
def test_needless_requests_hold_up_no_others_of_their_kind(
    ground: Ground, tmp_path: Path, needless: int
) -> None:
    """Whoever asks for an account's leaves can answer, too: what others have queued as answers is needless.

    Each of these waited for its refusal to be settled, and until then all later answers waited for it. So a
    few questions kept the auditors from answering the last one within the window.
    """
    desk = Desk(ground, tmp_path)
    distributor = Distributor(desk.rpc, ground.deployment.distributor)
    nothing_live = Call(ground.deployment.ledger, EpochLedgerContract(Rpc(()), ALICE_ACCOUNT).finalise())
    for number in range(ANSWERS):
        enrolment = Call(distributor.address, distributor.enrol(address(keys(100 + number))))
        desk.outbox.add("answer", f"{number}", enrolment)
        if needless:
            desk.outbox.add("answer", f"{number} is answered", nothing_live)
    blocks = 0
    while desk.outbox.entries()[2 * ANSWERS - 2 if needless else -1].state is not EntryState.CONFIRMED:
        desk.step(1)
        desk.network.mine()
        blocks += 1
        assert blocks <= 2 + CONFIRMATIONS, "all of them are sent at once"


def test_a_claim_waits_patiently_behind_a_challenge(ground: Ground, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path)
    desk.register(1, "challenge")
    desk.step()
    assert desk.network.mine() == 1
    desk.network.floor_wei = 7 * GWEI
    desk.register(2)
    desk.step()
    desk.step(STUCK_BLOCKS - 1)
    assert [len(entry.transactions) for entry in desk.outbox.entries()] == [1, 1]


def test_replacements_stop_at_the_fee_limit(ground: Ground, tmp_path: Path) -> None:
    limit = 11 * GWEI // 10
    desk = Desk(ground, tmp_path, limit_wei=limit)
    desk.network.floor_wei = 2 * GWEI
    desk.register(1)
    desk.step()
    for _ in range(3):
        assert desk.step(STUCK_BLOCKS).transactions == desk.entry().transactions[:1]
    assert "ledger.max_fee_gwei allows no higher fee" in str(desk.sender.last_error)
    desk.network.floor_wei = 0
    assert desk.network.mine() == 1
    assert desk.step(CONFIRMATIONS).state is EntryState.CONFIRMED


def test_a_transaction_behind_an_earlier_nonce_is_not_replaced(ground: Ground, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path)
    desk.network.floor_wei = 2 * GWEI
    desk.register(1)
    desk.register(2)
    desk.step()
    desk.step(STUCK_BLOCKS)
    assert [len(entry.transactions) for entry in desk.outbox.entries()] == [2, 1]


def test_a_transaction_that_a_reorganisation_drops_is_sent_again(ground: Ground, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path)
    desk.register(1)
    (first,) = desk.step().transactions
    desk.network.mine()
    desk.step(1)
    desk.network.engine.rewind(desk.network.engine.head.block_number - 2)
    assert desk.step(2).transactions == (first,)
    assert desk.network.mine() == 1
    assert desk.step(CONFIRMATIONS).state is EntryState.CONFIRMED


def test_a_deeper_reorganisation_reopens_confirmed_transactions(ground: Ground, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path)
    desk.register(1)
    (first,) = desk.step().transactions
    desk.network.mine()
    assert desk.step(CONFIRMATIONS).state is EntryState.CONFIRMED
    desk.network.engine.rewind(desk.network.engine.head.block_number - CONFIRMATIONS - 1)
    entry = desk.step(CONFIRMATIONS)
    assert (entry.state, entry.transactions) == (EntryState.SIGNED, (first,))
    assert desk.network.mine() == 1


def test_one_endpoint_of_two_cannot_end_a_request(ground: Ground, fork: Network, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path, ground.network, fork)
    desk.outbox.add("post", "3", _posting(ground))
    entry = desk.step()
    assert (entry.state, entry.transactions) == (EntryState.QUEUED, ())
    assert "EpochNotIncreasing" in str(desk.sender.last_error)


def test_a_request_accepted_by_a_majority_is_sent(ground: Ground, fork: Network, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path, fork, ground.network, ground.network)
    desk.outbox.add("post", "3", _posting(ground))
    assert desk.step().state is EntryState.SIGNED
    assert ground.network.mine() == 1
    assert desk.step(CONFIRMATIONS).state is EntryState.CONFIRMED


def test_two_endpoints_that_know_different_blocks_confirm_nothing(ground: Ground, tmp_path: Path) -> None:
    desk = Desk(ground, tmp_path, ground.network, ground.network)
    desk.register(1)
    desk.step()
    desk.network.mine()
    desk.network.fill(1)
    desk.endpoints[1].turn(Mode.STALE)
    desk.network.fill(1)
    assert desk.step().state is EntryState.SIGNED
    desk.endpoints[1].turn(Mode.GOOD)
    assert desk.step().state is EntryState.CONFIRMED
