"""The event file: order, incomplete lines, rotation, unusual values."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.file_limit import largest_file

from sapo_client.observe.events import EventLog, last_events, read_events
from sapo_client.observe.plain import to_json
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import NodeId


def at_noon() -> float:
    return 1_800_000_000.25


def test_an_event_is_one_line_with_time_and_sequence(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path, clock=at_noon) as log:
        log.write("step", node=NodeId(bytes(32)), loss=math.nan, verdict=Verdict.REJECT, groups=(1, 2))
    assert path.read_bytes().count(b"\n") == 1
    assert list(read_events(path)) == [
        {
            "time": "2027-01-15T08:00:00.250+00:00",
            "seq": 1,
            "event": "step",
            "node": "00" * 32,
            "loss": "nan",
            "verdict": Verdict.REJECT.value,
            "groups": [1, 2],
        }
    ]
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@given(torn=st.binary(min_size=1, max_size=60).filter(lambda tail: b"\n" not in tail))
def test_an_incomplete_last_line_is_skipped_and_the_sequence_continues(
    tmp_path_factory: pytest.TempPathFactory, torn: bytes
) -> None:
    path = tmp_path_factory.mktemp("torn") / "events.jsonl"
    with EventLog(path) as log:
        log.write("a")
        log.write("b")
    with path.open("ab") as stream:
        stream.write(torn)
    assert [event["event"] for event in read_events(path)] == ["a", "b"]
    with EventLog(path) as log:
        log.write("c")
    assert [(event["event"], event["seq"]) for event in read_events(path)] == [("a", 1), ("b", 2), ("c", 3)]


def test_rotation_keeps_the_order_and_drops_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path, max_bytes=300, keep=2) as log:
        for index in range(20):
            log.write("tick", index=index)
    parts = sorted(part.name for part in tmp_path.iterdir())
    assert parts == ["events.jsonl", "events.jsonl.1", "events.jsonl.2"]
    assert all(part.stat().st_size <= 300 for part in tmp_path.iterdir())
    kept = [event["index"] for event in read_events(path)]
    assert kept == list(range(20 - len(kept), 20))
    assert [event["index"] for event in last_events(path, "tick", 5)] == [15, 16, 17, 18, 19]
    with EventLog(path, max_bytes=300, keep=2) as log:
        log.write("tick", index=20)
    assert [event["seq"] for event in read_events(path)][-2:] == [20, 21]


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path, max_bytes=20_000, keep=100) as log:

        def write() -> None:
            for _ in range(200):
                log.write("x", text="y" * 100)

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert [event["seq"] for event in read_events(path)] == list(range(1, 801))


def test_events_of_a_time_without_space_are_written_later_and_those_of_messages_counted(
    tmp_path: Path,
) -> None:
    """The system writes a part of a line that does not fit; none is left of it."""
    path, now = tmp_path / "events.jsonl", [at_noon()]
    with EventLog(path, clock=lambda: now[0]) as log:
        log.write("a")
        with largest_file(path.stat().st_size + 20):
            log.write("health", findings=[{"code": "disk_full"}])
            log.write("admitted", slot=1)
            log.write("verified", slot=1)
        now[0] += 60
        log.write("health", findings=[])
        log.write("b")
    noon, later = "2027-01-15T08:00:00.250+00:00", "2027-01-15T08:01:00.250+00:00"
    no_space = os.strerror(errno.ENOSPC)
    assert list(read_events(path)) == [
        {"time": noon, "seq": 1, "event": "a"},
        {"time": noon, "seq": 2, "event": "health", "findings": [{"code": "disk_full"}]},
        {"time": later, "seq": 3, "event": "events_unwritten", "count": 2, "why": no_space},
        {"time": later, "seq": 4, "event": "health", "findings": []},
        {"time": later, "seq": 5, "event": "b"},
    ]
    assert path.read_bytes().count(b"\n") == 5, "no line was left in part"


def test_a_thousand_events_are_kept_without_space_and_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log, largest_file(20):
        for index in range(1100):
            log.write("tick", index=index)
    *kept, last = read_events(path)
    assert [event["index"] for event in kept] == list(range(1000))
    assert (last["event"], last["count"]) == ("events_unwritten", 100)


def test_a_rotation_that_fails_writes_to_no_other_file(tmp_path: Path) -> None:
    """The number of a closed descriptor is given to the next file that is opened."""
    path = tmp_path / "events.jsonl"
    in_the_way = tmp_path / "events.jsonl.1"
    with EventLog(path, max_bytes=320, keep=1) as log:
        log.write("first", text="x" * 200)
        in_the_way.mkdir()
        log.write("second", text="x" * 80)
        with (tmp_path / "other").open("w+b") as other:
            log.write("third", text="x" * 10)
            assert other.read() == b""
        in_the_way.rmdir()
        log.write("fourth")
    assert [event["event"] for event in read_events(path)] == ["first", "second", "third", "fourth"]


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.close()
    with pytest.raises(ValueError, match="late was written after the event file was closed"):
        log.write("late")


def test_last_events_of_a_missing_file_or_name(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert (list(read_events(path)), last_events(path, "step", 3)) == ([], [])
    with EventLog(path) as log:
        log.write("step")
    assert (last_events(path, "round", 3), last_events(path, "step", 0)) == ([], [])


def test_values_without_a_json_form_are_refused() -> None:
    assert json.dumps(to_json({b"\x01": {3, 1}, "path": Path("/a")})) == '{"01": [1, 3], "path": "/a"}'
    with pytest.raises(TypeError):
        to_json(object())


@pytest.mark.parametrize("taken", ["deleted", "moved", "replaced"])
def test_events_after_the_file_was_moved_are_in_a_new_file(tmp_path: Path, taken: str) -> None:
    """As by who frees space on a full disk, or by another program that rotates logs."""
    path, elsewhere = tmp_path / "events.jsonl", tmp_path / "elsewhere"
    with EventLog(path, clock=at_noon) as log:
        log.write("before")
        before = len(list(Path("/dev/fd").iterdir()))
        if taken == "deleted":
            path.unlink()
        else:
            path.replace(elsewhere)
        if taken == "replaced":
            path.touch()
        log.write("after")
        log.write("later")
        assert len(list(Path("/dev/fd").iterdir())) == before, "the file that was taken away is closed"
    assert [(event["seq"], event["event"]) for event in read_events(path)] == [(2, "after"), (3, "later")]
    assert elsewhere.exists() == (taken != "deleted")


def test_the_log_counts_the_values_of_a_long_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A canary event has 64 rewards, twice: they are in the event file, and not in `sapo logs`."""
    caplog.set_level(logging.INFO, logger=EventLog.__module__)
    with EventLog(tmp_path / "events.jsonl") as events:
        events.write("canary", step=10, rewards=[1.0] * 64, lost=[1, 2])
    assert caplog.messages == ['canary {"step": 10, "rewards": "64 values", "lost": [1, 2]}']
    [event] = read_events(tmp_path / "events.jsonl")
    assert event["rewards"] == [1.0] * 64
