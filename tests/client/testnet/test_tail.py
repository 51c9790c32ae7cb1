"""Following a file that a real event log writes, rotates and leaves incomplete."""

from pathlib import Path

from sapo_client.observe.events import EventLog
from sapo_client.testnet.tail import EventTail


def numbers(tail: EventTail) -> list[object]:
    return [event["n"] for event in tail.new_events()]


def test_each_event_is_read_once(tmp_path: Path) -> None:
    tail = EventTail(tmp_path / "events.jsonl")
    assert numbers(tail) == []
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write("x", n=1)
        assert numbers(tail) == [1]
        assert numbers(tail) == []
        log.write("x", n=2)
        log.write("x", n=3)
    assert numbers(tail) == [2, 3]


def test_a_rotation_loses_nothing(tmp_path: Path) -> None:
    tail = EventTail(tmp_path / "events.jsonl")
    with EventLog(tmp_path / "events.jsonl", max_bytes=300) as log:
        seen: list[object] = []
        for n in range(20):
            log.write("x", n=n)
            seen += numbers(tail)
    assert seen == list(range(20))


def test_half_a_line_waits_and_an_incomplete_one_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    with path.open("ab", buffering=0) as stream:
        stream.write(b'{"event":"x","n":1')
        assert numbers(tail) == []
        stream.write(b'}\n{"event":"x",\n[1]\n{"event":"x","n":2}\n')
    assert numbers(tail) == [1, 2]
