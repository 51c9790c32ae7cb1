"""An endless flood of rollouts: stored data is bounded, and data for pay is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.memory_peak import other_process, restart
from support.swarm import EPOCH, Identity, make_manifest, moment
from support.verification_harness import VerificationHarness

from sapo_client.config import VerificationConfig
from sapo_protocol.errors import Verdict
from sapo_protocol.manifest import Limits
from sapo_protocol.rules import Rule
from sapo_protocol.topics import rollouts_topic
from sapo_verification.admission import envelope_store
from sapo_verification.admission.arrivals import Received
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.storage_budget import MAX_LOOKED_AT, stored_size
from sapo_verification.observer import Observer
from sapo_verification.sampling.pool import PoolLimits
from sapo_verification.store import KEPT_BYTES, StoreSchema, open_database
from sapo_verification.types import AdmittedRollout

MIB = 2**20
KEPT = 4 * MIB
OF_EPOCH = KEPT // 4
MANIFEST = make_manifest(limits=Limits(slots_per_epoch=64, max_completions=8, points_per_epoch=64))
ALICE, BOB, CAROL, OWN = (Identity(number) for number in range(1, 5))
STRANGERS = tuple(Identity(100 + number) for number in range(8))
FULL = ("\u00e9" * 4096).encode()
"""An answer of 8 KiB that earns nothing; a group of eight is as large as a message may be."""

LARGEST = 64 * 1024 + 4096 + 512
"""Bytes of such a group on disk."""


def open_node(database: Path | str = ":memory:", **options: Any) -> VerificationHarness:
    """Return a node with little space that knows all certificates."""
    return VerificationHarness(**node_arguments(database, **options))


def node_arguments(database: Path | str, **options: Any) -> dict[str, Any]:
    """Return what such a node is opened with."""
    settings = {"kept_bytes": KEPT, "limits": PoolLimits(rollouts=8), "audits_waiting": 8, **options}
    identities = (ALICE, BOB, CAROL, OWN, *STRANGERS)
    return {
        "identities": identities,
        "manifest": MANIFEST,
        "own": OWN.account,
        "database": database,
        **settings,
    }


def full_group(author: Identity, slot: int, epoch: int = EPOCH) -> bytes:
    """Return a message of full size."""
    return author.message(MANIFEST, slot=slot, epoch=epoch, completions=(FULL,) * 8)


def flood(
    node: VerificationHarness, authors: Iterable[Identity], slots: range, epoch: int = EPOCH
) -> list[AdmittedRollout]:
    """Let the node receive a group of full size for each slot of each author, the authors in turns."""
    topic, now = rollouts_topic(MANIFEST.swarm_id), moment(MANIFEST, epoch)
    found = []
    for slot, author in [(slot, author) for slot in slots for author in authors]:
        received = node.engine.receive(topic, full_group(author, slot, epoch), now)
        assert isinstance(received.admitted, AdmittedRollout)
        found.append(received.admitted)
    return found


def stored(node: VerificationHarness, *authors: Identity, epoch: int = EPOCH) -> list[int]:
    """Return how many groups of some authors are stored."""
    return [len(node.engine.envelopes.of(author.account, epoch)) for author in authors]


def bytes_on_disk(database: Path) -> int:
    """Return the bytes of a database that hold anything."""
    with closing(sqlite3.connect(database)) as connection:
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    return int((pages - free) * size)


def recorded_sizes(node: VerificationHarness) -> tuple[int, int]:
    """Return the bytes on disk by the sums, and by the messages themselves."""
    envelopes = node.engine.envelopes
    return envelopes.budget.size(), sum(stored_size(len(message)) for message in envelopes.since(0))


def test_a_flood_of_many_accounts_takes_no_more_than_its_room(tmp_path: Path) -> None:
    empty, database = tmp_path / "empty.sqlite", tmp_path / "node.sqlite"
    open_node(empty)
    node = open_node(database)
    flood(node, STRANGERS, range(8))
    assert bytes_on_disk(database) - bytes_on_disk(empty) <= OF_EPOCH
    for epoch in range(EPOCH + 1, EPOCH + 8):
        flood(node, STRANGERS, range(4), epoch)
        node.engine.forget(epoch)
    assert KEPT // 2 < bytes_on_disk(database) - bytes_on_disk(empty) <= KEPT
    assert recorded_sizes(node) == (node.engine.envelopes.budget.size(),) * 2


def test_small_rollouts_take_no_more_than_their_room(tmp_path: Path) -> None:
    """Rows and indexes count, and so do the pages that hold little."""
    empty, database = tmp_path / "empty.sqlite", tmp_path / "node.sqlite"
    open_node(empty)
    node = open_node(database, kept_bytes=4 * 64 * 1024)
    topic, now = rollouts_topic(MANIFEST.swarm_id), moment(MANIFEST)
    for length in (1, 700, 800, 4200):
        for slot in range(64):
            message = STRANGERS[length % 8].message(MANIFEST, slot=slot, completions=(b"1" * length,))
            node.engine.receive(topic, message, now)
        outcomes = 256 * 256  # bytes: what is decided is remembered, for its author is paid by it
        assert bytes_on_disk(database) - bytes_on_disk(empty) <= 64 * 1024 + outcomes


async def test_counted_rollouts_are_kept_during_a_flood_of_newcomers() -> None:
    """Also that of a newcomer who holds more than each of them."""
    node = open_node()
    node.trust(ALICE)
    for slot in range(24):
        node.receive(ALICE, slot)
    counted = flood(node, (BOB,), range(1, 4))
    right = node.message(CAROL, 0)
    await node.engine.verify(node.admit(CAROL, 0))
    node.admit(OWN, 0)
    flood(node, (OWN,), range(1, 4))
    shown = {author: node.engine.envelopes.of(author.account, EPOCH) for author in (ALICE, OWN)}
    points = node.engine.count.points(EPOCH, [CAROL.account], 64)
    flood(node, STRANGERS, range(8))
    assert {author: node.engine.envelopes.of(author.account, EPOCH) for author in (ALICE, OWN)} == shown
    assert node.engine.envelopes.of(CAROL.account, EPOCH) == (right,)
    assert node.engine.count.points(EPOCH, [CAROL.account], 64) == points == ((CAROL.account, 1),)
    assert len(counted) > stored(node, BOB)[0], "what is not counted goes as the strangers' does"


async def test_counted_rollouts_go_last_and_their_points_stay(tmp_path: Path) -> None:
    """Where nothing else is left, of newcomers before known accounts, and the pay count forgets nothing."""
    before = open_node(tmp_path / "node.sqlite")
    for author in (ALICE, BOB):
        for slot in range(6):
            await before.engine.verify(before.admit(author, slot))
    before.trust(ALICE)
    before.receive(CAROL, 0)
    points = before.engine.count.points(EPOCH, [ALICE.account, BOB.account], 64)
    size = before.engine.envelopes.budget.size() // 13
    after = open_node(tmp_path / "node.sqlite", kept_bytes=4 * 9 * (size + 10))
    after.receive(CAROL, 1)
    assert stored(after, ALICE, BOB, CAROL) == [6, 3, 0]
    assert after.engine.count.points(EPOCH, [ALICE.account, BOB.account], 64) == points
    assert points == tuple(sorted(((ALICE.account, 6), (BOB.account, 6))))


def test_the_account_that_holds_most_loses_first() -> None:
    node = open_node()
    node.trust(ALICE, BOB, *STRANGERS[:4])
    flood(node, (ALICE,), range(2))
    flood(node, (BOB,), range(10))
    flood(node, STRANGERS[:2], range(3))
    assert stored(node, ALICE, BOB, *STRANGERS[:2]) == [2, 6, 3, 3]
    flood(node, STRANGERS[2:4], range(3))
    held = stored(node, ALICE, BOB, *STRANGERS[:4])
    assert (held[0], max(held), sum(held)) == (2, 3, OF_EPOCH // LARGEST)


def test_an_account_that_became_known_is_kept_as_a_known_account() -> None:
    node = open_node()
    flood(node, (ALICE,), range(8))
    node.trust(ALICE)
    flood(node, STRANGERS[:4], range(4))
    assert stored(node, ALICE) == [8]


async def test_decided_rollouts_are_evicted_before_unaudited_ones() -> None:
    node = open_node(limits=PoolLimits(rollouts=64))  # else some of them are refused by the pool
    decided = flood(node, STRANGERS[:1], range(7))
    waiting = flood(node, STRANGERS[:1], range(7, 14))
    for each in decided:
        await node.engine.verify(each)
    flood(node, STRANGERS[1:4], range(2))
    kept = [each for each in (*decided, *waiting) if node.engine.envelopes.has(each.content_id)]
    assert len(set(kept) & set(decided)) == 1
    assert set(waiting) < set(kept)
    assert node.engine.envelopes.budget.dropped(EPOCH) == 6


def test_when_all_epochs_are_full_known_accounts_lose_their_oldest() -> None:
    """Strangers lose theirs first, whatever their epochs."""
    node = open_node(kept_bytes=4 * 3 * LARGEST)
    node.trust(ALICE)
    flood(node, STRANGERS[:1], range(3), EPOCH - 1)
    for epoch in range(EPOCH, EPOCH + 3):
        flood(node, (ALICE,), range(3), epoch)
    flood(node, STRANGERS[:1], range(3), EPOCH + 3)
    epochs = range(EPOCH - 1, EPOCH + 5)
    assert [stored(node, ALICE, STRANGERS[0], epoch=epoch) for epoch in epochs] == [
        [0, 0], [3, 0], [3, 0], [3, 0], [0, 3], [0, 0]
    ]  # fmt: skip
    flood(node, (ALICE,), range(3), EPOCH + 3)
    flood(node, (ALICE,), range(2), EPOCH + 4)
    assert [stored(node, ALICE, STRANGERS[0], epoch=epoch) for epoch in epochs] == [
        [0, 0], [1, 0], [3, 0], [3, 0], [3, 0], [2, 0]
    ]  # fmt: skip
    dropped = [node.engine.envelopes.budget.dropped(epoch) for epoch in epochs]
    assert dropped == [8, 5, 3, 3, 3, 0]


async def test_a_rollout_dropped_after_its_decision_is_not_admitted_again(tmp_path: Path) -> None:
    """Neither from a peer after a restart, nor by catch-up; what was not decided is, to be audited."""
    before = open_node(tmp_path / "node.sqlite")
    [decided, waiting] = flood(before, STRANGERS[:2], range(1))
    await before.engine.verify(decided)
    before.trust(ALICE)
    flood(before, (ALICE,), range(14))
    assert stored(before, *STRANGERS[:2]) == [0, 0]
    after = open_node(tmp_path / "node.sqlite", kept_bytes=64 * MIB)
    after.engine.restore(moment(MANIFEST))
    assert after.engine.envelopes.lacking([decided.content_id, waiting.content_id]) == (waiting.content_id,)
    topic, now = rollouts_topic(MANIFEST.swarm_id), moment(MANIFEST)
    received = [
        after.engine.receive(topic, full_group(author, 0), now, live=False) for author in STRANGERS[:2]
    ]
    assert received == [Received(Verdict.IGNORE, Rule.ROLLOUT_NEW), Received(Verdict.ACCEPT, None, waiting)]


def test_a_rolled_back_transaction_does_not_change_the_sums() -> None:
    class Faulty(Observer):
        """Observer that fails."""

        def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
            """Fail."""
            raise OSError("the disk is full")

    node = open_node()
    flood(node, STRANGERS, range(2))
    before = (*recorded_sizes(node), node.engine.envelopes.budget.dropped(EPOCH))
    node.engine.observe(Faulty())
    with pytest.raises(OSError, match="the disk is full"):
        flood(node, STRANGERS, range(2, 3))
    assert (*recorded_sizes(node), node.engine.envelopes.budget.dropped(EPOCH)) == before
    assert before[0] == before[1]


def test_an_overfull_database_of_an_older_version_opens_and_shrinks_step_by_step(tmp_path: Path) -> None:
    database = tmp_path / "node.sqlite"
    before = open_node(kept_bytes=1024 * MIB)
    admitted = flood(before, STRANGERS, range(8))
    schema = StoreSchema("envelopes", *envelope_store._SCHEMA.steps[:2])
    connection = open_database(database, schema)
    for each in admitted:
        message = before.engine.envelopes.envelope(each.content_id)
        row = (each.content_id, each.rollout.epoch, each.account, message)
        connection.execute("INSERT INTO heard VALUES (?, ?, ?, ?)", row)
    connection.close()
    assert list(EnvelopeStore(database).latest(100)) == list(before.engine.envelopes.latest(100))
    after = open_node(database)
    assert recorded_sizes(after) == recorded_sizes(before)
    held = [after.engine.envelopes.budget.size()]
    while held[-1] > OF_EPOCH:
        after.receive(ALICE, len(held))
        held.append(after.engine.envelopes.budget.size())
        assert held[-2] - held[-1] <= MAX_LOOKED_AT * LARGEST
    assert recorded_sizes(after) == (held[-1],) * 2


def test_a_restart_holds_no_more_than_pool_and_queue(tmp_path: Path) -> None:
    before = open_node(tmp_path / "node.sqlite", kept_bytes=1024 * MIB)
    flood(before, STRANGERS, range(24))
    with other_process() as alone:
        arguments = node_arguments(tmp_path / "node.sqlite", kept_bytes=1024 * MIB)
        held, peak_bytes = alone.submit(restart, arguments).result()
    assert held == (len(before.pool), 8)
    assert peak_bytes < (8 + 8 + 8) * 8 * len(FULL), "192 groups are stored"


def test_rollouts_are_read_in_the_order_of_an_index(tmp_path: Path) -> None:
    """To sort them SQLite would hold them all."""
    node = open_node(tmp_path / "node.sqlite")
    statements: list[str] = []
    with closing(sqlite3.connect(tmp_path / "node.sqlite")) as connection:
        node.engine.envelopes._connection.set_trace_callback(statements.append)
        list(node.engine.envelopes.since(0))
        [plan] = connection.execute(f"EXPLAIN QUERY PLAN {statements[0]}").fetchall()
    assert plan[-1] == "SEARCH heard USING INDEX heard_epoch (epoch>?)"


def test_default_sizes_are_as_stated() -> None:
    assert VerificationConfig().kept_rollouts_mib * MIB == KEPT_BYTES
