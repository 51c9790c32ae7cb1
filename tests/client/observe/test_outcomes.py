"""Outcomes of rollouts: kept longer than the event file, bounded, and summed by epoch when removed."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest

from sapo_client.observe.events import EventLog
from sapo_client.observe.outcomes import OutcomeStore, StepRecord
from sapo_protocol.identifiers import ContentId


def id_of(number: int) -> ContentId:
    return ContentId(sha256(b"%d" % number).digest())


def write_round(events: EventLog, number: int) -> None:
    """Write the events of a step with an own rollout and one of another account, as a node does."""
    own, other = id_of(2 * number), id_of(2 * number + 1)
    reward = (0.0, 0.5, 1.0)[number % 3]
    events.write("published", content_id=own, epoch=number // 10, slot=number, family="f", peers=1)
    events.write("verified", content_id=own, account=b"", mean_reward=reward)
    events.write("verified", content_id=other, account=b"", mean_reward=0.25)
    uses = [{"content_id": other, "use": "imitated"}]
    events.write(
        "step", step=number, epoch=number // 10, reward=reward, local=[own], external=uses, private=0
    )


def test_outcomes_outlive_the_event_file(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path / "outcomes.sqlite", max_rows=100, max_steps=30, clock=lambda: 7.5)
    with EventLog(tmp_path / "events.jsonl") as events:
        events.listen(store.note)
        for number in range(100):
            write_round(events, number)
    (tmp_path / "events.jsonl").unlink()
    store.close()

    store = OutcomeStore(tmp_path / "outcomes.sqlite", max_rows=100)
    rewards = (0.0, 0.5, 1.0)
    assert list(store.own(9)) == [(id_of(2 * n).hex(), rewards[n % 3]) for n in range(90, 100)]
    assert list(store.own(4)) == []
    shared = range(40, 50)
    payable = sum(n % 3 == 1 for n in shared)
    assert store.totals(4) == (10, payable, 10 - payable)
    assert store.totals(9) is None
    assert store.rewards([id_of(199), id_of(198), id_of(1)]) == {id_of(199): 0.25, id_of(198): 0.0}
    expected = [StepRecord(n, 7, n // 10, rewards[n % 3], 1, 0, 0, 1) for n in range(70, 100)]
    assert list(store.steps()) == expected
    store.close()


def test_outcomes_refused_by_a_full_disk_are_written_later(tmp_path: Path) -> None:
    """A node's events come from the middle of its rounds, which go on."""
    store = OutcomeStore(tmp_path / "outcomes.sqlite", clock=lambda: 7.5)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    with EventLog(tmp_path / "events.jsonl") as events:
        events.listen(store.note)
        write_round(events, 1)
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(2, 300):
            write_round(events, number)
        with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
            store.flush()
        store._connection.execute("PRAGMA max_page_count = 100000")
        write_round(events, 300)
    assert [step.step for step in store.steps()] == list(range(1, 301))
    store.close()


def test_a_crash_loses_the_outcomes_of_one_step(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path / "outcomes.sqlite")
    with EventLog(tmp_path / "events.jsonl") as events:
        events.listen(store.note)
        write_round(events, 1)
        events.write("published", content_id=id_of(50), epoch=0, slot=3, family="f", peers=0)
    after = OutcomeStore(tmp_path / "outcomes.sqlite")
    assert list(after.own(0)) == [(id_of(2).hex(), 0.5)]


def test_an_epoch_split_by_the_row_limit_is_summed_once(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path / "outcomes.sqlite", max_rows=10)
    with EventLog(tmp_path / "events.jsonl") as events:
        events.listen(store.note)
        for number in range(30):
            write_round(events, number)
    assert store.totals(0) == (10, 3, 7)
    assert store.totals(1) == (10, 4, 6)
    assert store.totals(2) == (5, 1, 4)
    assert len(list(store.own(2))) == 5
