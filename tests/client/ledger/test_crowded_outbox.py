"""Challenges of a node whose other transactions take all its places in the mempools, or are refused."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.schedules import CONFIRMATIONS, LATER, Ground
from support.faulty import Faults, FaultyEndpoint, connected
from support.ledger import ALICE, address, keys

from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.contract import Distributor, Registry
from sapo_client.ledger.fees import GWEI, URGENT_BLOCKS
from sapo_client.ledger.outbox import EntryState, Outbox
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.sender import Sender
from sapo_client.ledger.transactions import Call
from sapo_protocol.identifiers import NodeId

RISEN_WEI = 7 * GWEI
DOUBLINGS = 3
"""What the first transactions offer reaches the risen price after so many doublings."""

BLOCKS = DOUBLINGS * URGENT_BLOCKS + CONFIRMATIONS


@pytest.fixture(scope="module")
def crowded_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("ground"))
    yield ground
    ground.close()


class CrowdedDesk:
    """A sender whose account has many requests, before one endpoint of a public network."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        ground.reset()
        self.network, self.seconds = ground.network, 0.0
        faults = Faults(random.Random(0), fault_rate=0.0, kill_rate=0.0, off=True)
        endpoint = FaultyEndpoint(ground.network, ground.foreign, faults)
        self.rpc = Rpc(
            ("0",),
            chain_id=DEFAULT_CHAIN_ID,
            connect=lambda _: connected(endpoint),
            clock=lambda: self.seconds,
            now=lambda: ground.seconds,
        )
        self.outbox = Outbox(folder / "outbox.sqlite", owner="crowded")
        self.sender = Sender(
            self.rpc, ALICE, self.outbox, confirmations=CONFIRMATIONS, clock=lambda: self.seconds
        )
        self._distributor = Distributor(self.rpc, ground.deployment.distributor)
        self._registry = Registry(self.rpc, ground.deployment.registry)

    def want(self, kind: str, number: int) -> None:
        """Queue a request that the contracts accept."""
        enrolment = self._distributor.enrol(address(keys(1000 + number)))
        self.outbox.add(kind, str(number), Call(self._distributor.address, enrolment))

    def want_refused(self, kind: str) -> None:
        """Queue a request that a contract will always refuse."""
        registration = self._registry.register(NodeId(bytes(NodeId.SIZE)), LATER)
        self.outbox.add(kind, "refused", Call(self._registry.address, registration))

    def step(self) -> None:
        self.seconds += 100.0
        self.sender.step()

    def blocks_to_confirm_the_last(self, most: int) -> int:
        """Return how many blocks it takes until the newest request is confirmed; ``most`` if longer."""
        for blocks in range(most):
            if self.outbox.entries()[-1].state is EntryState.CONFIRMED:
                return blocks
            self.network.mine()
            self.network.fill(1)
            self.step()
        return most


@pytest.mark.parametrize("answers", [8, 100])
@pytest.mark.parametrize(("price_wei", "expected"), [(0, CONFIRMATIONS), (RISEN_WEI, BLOCKS)])
def test_a_challenge_waits_for_no_place_behind_other_transactions(
    crowded_ground: Ground, tmp_path: Path, answers: int, price_wei: int, expected: int
) -> None:
    """Whoever asks for many leaves makes others queue answers; before, a challenge came after all of them.

    After a rise of the fees the eight in front were raised one by one, and the challenge not at all: it took
    100 blocks behind 8 answers, and more than 400 behind 24.
    """
    desk = CrowdedDesk(crowded_ground, tmp_path)
    for number in range(answers):
        desk.want("answer", number)
    desk.step()
    desk.network.floor_wei = price_wei
    desk.want("challenge", answers)
    desk.step()
    assert desk.blocks_to_confirm_the_last(expected + 1) <= expected


def test_a_refused_challenge_holds_up_no_other_while_a_transaction_is_stuck(
    crowded_ground: Ground, tmp_path: Path
) -> None:
    """A refusal is final only once nothing else of this node is pending, and that may be stuck for long."""
    desk = CrowdedDesk(crowded_ground, tmp_path)
    desk.want("answer", 0)
    desk.step()
    desk.network.floor_wei = RISEN_WEI
    desk.want_refused("challenge")
    desk.want("challenge", 1)
    desk.step()
    assert desk.blocks_to_confirm_the_last(BLOCKS + 1) <= BLOCKS


def test_other_requests_wait_for_places_behind_challenges(crowded_ground: Ground, tmp_path: Path) -> None:
    """Mempools keep sixteen transactions of one account at least: no more are sent at a time."""
    desk = CrowdedDesk(crowded_ground, tmp_path)
    for number in range(10):
        desk.want("answer", number)
    desk.step()
    for number in range(10, 30):
        desk.want("challenge", number)
    desk.step()
    sent = [entry.kind for entry in desk.outbox.entries(EntryState.SIGNED)]
    assert {kind: sent.count(kind) for kind in sent} == {"answer": 8, "challenge": 8}
