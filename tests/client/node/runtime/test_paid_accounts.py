"""How a node finds the number of islands: from the chain's final roots and the proposals behind them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from support.contributions import sealed_by
from support.gossip_harness import GossipHarness
from support.swarm import Identity, make_chain_manifest
from trio.testing import MockClock

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.runtime.paid_accounts import PaidAccounts
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.constants import MAX_PAGE_ROWS, PAID_EPOCHS
from sapo_protocol.contributions import Proposal, Share, page_digest, parse_proposal, to_pages
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.islands.count import first_counted
from sapo_protocol.settlement import grace_seconds
from sapo_protocol.terms.islands import IslandTerms

TERMS = IslandTerms(most_accounts=4, least_accounts=2, period_epochs=4, most_islands=16)
MANIFEST = make_chain_manifest(version=2, islands=TERMS, finality_seconds=7)
AUDITOR = Identity(70)
EPOCH = 30


@dataclass
class Final:
    """What a chain shows: final roots with the times of their blocks; and whether it answers."""

    roots: list[tuple[int, EpochRoot]] = field(default_factory=list)
    is_away: bool = False

    async def roots_before(self, timestamp_seconds: int, first_epoch: int) -> Sequence[EpochRoot]:
        """Return those of ``History.roots_by`` in the last block before a time."""
        if self.is_away:
            raise LedgerError("no endpoint answers", hint="ask again later")
        shown = [root for at, root in self.roots if at < timestamp_seconds]
        early = [root for root in shown if root.epoch < first_epoch]
        return early[-1:] + [root for root in shown if root.epoch >= first_epoch]


class Node:
    """A node's engine, and what it learns of who was paid."""

    def __init__(self, root: Path) -> None:
        self.final = Final()
        self.asked = 0
        self.harness = GossipHarness(MemoryHub(), Identity(1), MANIFEST, root)
        self.islands = self.harness.engine.islands
        self.paid = PaidAccounts(
            self.harness.engine,
            self.final.roots_before,
            ask=self.ask,
            events=self.harness.log,
        )

    def ask(self) -> None:
        """Count the questions to peers."""
        self.asked += 1

    def settle(self, epoch: int, paid: int, *, at_seconds: int | None = None) -> Callable[[], None]:
        """Make an epoch final in which so many accounts were paid; return what brings its proposal."""
        accounts = [Account(number.to_bytes(20, "big")) for number in range(1, paid + 4)]
        shares = tuple(Share(one, int(place < paid), 9) for place, one in enumerate(accounts))
        pages = to_pages(shares)
        proposal = Proposal(
            node=AUDITOR.node,
            account=AUDITOR.account,
            epoch=epoch,
            tallies=(ContentId(bytes(32)),),
            shares=shares,
            pages=tuple(map(page_digest, pages)),
        )
        message = sealed_by(AUDITOR, MANIFEST, proposal)
        envelope = parse_envelope(message, MANIFEST.swarm_id)
        name, payload = envelope.content_id, envelope.payload
        block_seconds = epoch_start_seconds(MANIFEST, epoch + 2) - 10 if at_seconds is None else at_seconds
        self.final.roots.append((block_seconds, proposal.root(name)))

        def arrive() -> None:
            self.harness.engine.contributions.add(name, Kind.PROPOSAL, parse_proposal(payload), message)
            self.harness.engine.contributions.add_pages(pages)

        return arrive

    async def calls_to_learn(self, epoch: int) -> int:
        """Learn of an epoch; return how many calls the event loop's thread makes for it."""
        calls = 0

        def count(_: object, event: str, __: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            await self.paid.learn([epoch])
        finally:
            sys.setprofile(None)
        return calls


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_without_final_epochs_there_is_one_island(node: Node) -> None:
    await node.paid.learn(range(EPOCH, EPOCH + 2))
    assert [node.islands.count(epoch) for epoch in (EPOCH - 1, EPOCH, EPOCH + 1)] == [None, 1, 1]


async def test_islands_follow_the_accounts_with_points_in_final_epochs(node: Node) -> None:
    for epoch, paid in ((EPOCH - 5, 9), (EPOCH - 4, 5), (EPOCH - 3, 3)):
        node.settle(epoch, paid)()
    await node.paid.learn([EPOCH])  # four islands for nine: two epochs of few accounts merge none
    assert node.islands.count(EPOCH) == 4
    assert node.harness.events("islands")[0]["paid"] == [9, 5, 3]


async def test_a_missing_proposal_is_asked_for_and_no_number_is_guessed(
    node: Node, autojump_clock: MockClock
) -> None:
    node.settle(EPOCH - 4, 5)()
    await node.paid.learn([EPOCH - 1])
    arrive = node.settle(EPOCH - 3, 9)
    for _ in range(3):
        await node.paid.learn([EPOCH])
    assert (node.islands.knows(EPOCH), node.islands.count(EPOCH), node.asked) == (False, 2, 1)
    await trio.sleep(grace_seconds(MANIFEST))
    await node.paid.learn([EPOCH])
    assert node.asked == 2
    arrive()
    await node.paid.learn([EPOCH])
    assert (node.islands.knows(EPOCH), node.islands.count(EPOCH), node.asked) == (True, 4, 2)
    assert len(node.harness.events("ledger_error")) == 1


async def test_the_block_of_the_beacon_decides(node: Node) -> None:
    """An epoch that becomes final in the very block counts, one that does a second later does not."""
    before = epoch_start_seconds(MANIFEST, EPOCH) - MANIFEST.finality_seconds
    node.settle(EPOCH - 3, 5, at_seconds=before - 1)()
    node.settle(EPOCH - 2, 9, at_seconds=before)()
    await node.paid.learn([EPOCH, EPOCH + 1])
    assert node.islands.count(EPOCH + 1) == 2
    await node.paid.learn([EPOCH + 2])
    assert node.islands.count(EPOCH + 2) == 4


async def test_epochs_out_of_the_window_count_only_if_there_is_no_other(node: Node) -> None:
    oldest = first_counted(EPOCH)
    assert oldest == EPOCH - 1 - PAID_EPOCHS
    node.settle(oldest - 1, 9)()
    await node.paid.learn([EPOCH])
    assert node.islands.count(EPOCH) == 4
    node.settle(oldest, 1, at_seconds=epoch_start_seconds(MANIFEST, EPOCH))()
    await node.paid.learn([EPOCH + 1, EPOCH + 2])
    assert node.islands.count(EPOCH + 2) == 1


async def test_recalled_epochs_change_nothing_that_is_known(node: Node) -> None:
    node.settle(EPOCH - 3, 9)()
    await node.paid.learn([EPOCH])
    node.final.roots.clear()
    await node.paid.learn([EPOCH, EPOCH + 1])
    assert [node.islands.count(epoch) for epoch in (EPOCH, EPOCH + 1)] == [4, 1]


async def test_without_the_chain_the_last_number_is_kept_even_after_a_restart(
    node: Node, tmp_path: Path
) -> None:
    node.settle(EPOCH - 3, 9)()
    await node.paid.learn([EPOCH])
    again = Node(tmp_path)
    again.final.is_away = True
    for _ in range(2):
        await again.paid.learn(range(EPOCH, EPOCH + 3))
    assert [again.islands.count(epoch) for epoch in (EPOCH, EPOCH + 1, EPOCH + 2)] == [4, 4, 4]
    assert [again.islands.knows(epoch) for epoch in (EPOCH, EPOCH + 1)] == [True, False]
    assert len(again.harness.events("ledger_error")) == 1


async def test_an_endpoint_that_hides_known_epochs_is_not_trusted(node: Node, tmp_path: Path) -> None:
    """It can mislead a node about later epochs, as it can about beacons: other nodes then ignore this one."""
    node.settle(EPOCH - 3, 9)()
    await node.paid.learn([EPOCH, EPOCH + 1])
    misled = Node(tmp_path)
    await misled.paid.learn([EPOCH, EPOCH + 1, EPOCH + 2])
    counts = [misled.islands.count(epoch) for epoch in (EPOCH, EPOCH + 1, EPOCH + 2)]
    assert counts == [4, 4, 1]


async def test_uninterrupted_sections_do_not_grow_with_the_number_of_accounts(tmp_path: Path) -> None:
    """A proposal of 100,000 accounts was read and counted in the event loop."""
    calls = dict[int, int]()
    for paid in (MAX_PAGE_ROWS, 5 * MAX_PAGE_ROWS):
        node = Node(tmp_path / f"{paid}")
        node.settle(EPOCH - 3, paid)()
        calls[paid] = await node.calls_to_learn(EPOCH)
        assert node.harness.events("islands")[0]["paid"] == [paid]
    few, many = calls.values()
    assert many - few < MAX_PAGE_ROWS
