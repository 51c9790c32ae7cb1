"""Ratings of thousands of accounts, which cost an attacker nothing: one pass neither stops the node nor reads
much."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.swarm import EPOCH, Identity, make_manifest
from trio.testing import MockClock

from sapo_client.node.gossip.ratings import ACCOUNTS_AT_ONCE, Ratings, Vouched
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, NodeId
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, Reputation

MANIFEST = make_manifest()
ACCOUNTS = 8 * ACCOUNTS_AT_ONCE
KNOWN, FAILED = 6, 3
FAMILIES = 3

Pairs = list[tuple[NodeId, Account]]


@pytest.fixture
def alice(tmp_path: Path) -> GossipHarness:
    return GossipHarness(MemoryHub(), Identity(1), MANIFEST, tmp_path / "alice")


@pytest.fixture
def pairs(alice: GossipHarness) -> Pairs:
    """Nodes of many accounts: the first few are known, one of them is banned, the next ones failed audits."""
    draw = random.Random(7)
    made = [(NodeId(draw.randbytes(32)), Account(draw.randbytes(20))) for _ in range(ACCOUNTS)]
    for _, account in made[:KNOWN]:
        for number in range(2 * AUDITS_BEFORE_WEIGHT):
            alice.reputation.record_good(account, number % FAMILIES, EPOCH)
    for _, account in made[KNOWN : KNOWN + FAILED]:
        for _ in range(AUDITS_BEFORE_WEIGHT):
            alice.reputation.record_fault(account, 0, EPOCH, Reason.NO_SIGNAL)
    alice.reputation.record_fault(made[0][1], 0, EPOCH, Reason.EQUIVOCATION)
    return made


def statements(reputation: Reputation) -> list[str]:
    """Return a list that every statement to the database is added to from now on."""
    found: list[str] = []
    reputation._connection.set_trace_callback(found.append)
    return found


async def test_other_tasks_run_during_a_pass_over_thousands_of_accounts(
    alice: GossipHarness, pairs: Pairs, autojump_clock: MockClock
) -> None:
    ratings, turns = Ratings(alice.certificates, alice.reputation), 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        vouched = await ratings.vouched(EPOCH, pairs)
        nursery.cancel_scope.cancel()
    earned = frozenset(peer_id_from_key(node) for node, _ in pairs[1:KNOWN])
    # The first turn of the other task starts it, and its last may come after the pass: the order is random.
    assert (vouched, turns >= ACCOUNTS // ACCOUNTS_AT_ONCE - 2) == (Vouched(earned, frozenset()), True)


async def test_the_database_is_read_for_known_accounts_alone_and_once(
    alice: GossipHarness, pairs: Pairs, autojump_clock: MockClock
) -> None:
    ratings = Ratings(alice.certificates, alice.reputation)
    read = statements(alice.reputation)
    first = await ratings.vouched(EPOCH, pairs)
    assert len(read) <= KNOWN
    read.clear()
    assert (await ratings.vouched(EPOCH + 1, pairs), read) == (first, [])


def test_the_cached_rating_of_an_account_changes_with_its_audits(alice: GossipHarness, pairs: Pairs) -> None:
    """Also after a restart, and nothing is read for an account that is weighed again."""
    reputation, accounts = alice.reputation, [account for _, account in pairs]
    before = reputation.weigh(accounts, EPOCH)
    reputation.record_fault(pairs[1][1], 1, EPOCH, Reason.CHECKER_TIMEOUT)
    reputation.record_fault(pairs[2][1], 1, EPOCH, Reason.EQUIVOCATION)
    after = reputation.weigh(accounts, EPOCH)
    assert after.weights[pairs[1][1]] < before.weights[pairs[1][1]]
    assert {*before.weights} - {*after.weights} == {pairs[2][1]}
    assert Reputation(reputation._connection).weigh(accounts, EPOCH) == after
    read = statements(reputation)
    assert (reputation.weigh(accounts, EPOCH), read) == (after, [])
