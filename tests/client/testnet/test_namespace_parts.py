"""The parts of the network simulation that need no root: plan, relay, and the count of deliveries."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.namespaces.deliveries import Delivery, Record, Window, delivery, first_heard, read_record
from support.namespaces.plan import Site, delays, sites
from support.namespaces.relay import Relay
from support.namespaces.report import Result, markdown, write

ADDRESSES = ("198.18.1.1", "198.18.2.1")


def test_sites_have_two_sides_and_some_are_behind_routers() -> None:
    assert sites(5, 0.6, guests=1) == (
        Site("n00", "198.18.1.1", behind_router=False, side=0),
        Site("n01", "198.18.2.1", behind_router=False, side=1),
        Site("n02", "198.18.3.1", behind_router=True, side=0),
        Site("n03", "198.18.4.1", behind_router=True, side=1),
        Site("n04", "198.18.5.1", behind_router=True, side=0),
        Site("n05", "198.18.6.1", behind_router=False, side=1),
    )
    assert sum(site.behind_router for site in sites(32, 0.6)) == 19


def test_no_two_sites_share_an_address_before_or_after_a_move() -> None:
    found = sites(120, 0.6)
    addresses = {site.address for site in found} | {site.moved().address for site in found}
    assert len(addresses) == 240


@pytest.mark.parametrize("count", [1, 121])
def test_too_few_and_too_many_sites_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="2 to 120"):
        sites(count, 0.5)


def test_delays_are_symmetric_and_within_their_bounds() -> None:
    table = delays(3, 1, 50, 150)
    assert [table[a][b] for a in range(3) for b in range(a)] == [
        table[b][a] for a in range(3) for b in range(a)
    ]
    assert all(0.05 <= table[a][b] <= 0.15 for a in range(3) for b in range(a))
    assert [table[a][a] for a in range(3)] == [0, 0, 0]


def test_guests_have_the_least_delay_to_all_sites() -> None:
    table = delays(4, 1, 50, 150, guests=2)
    assert table[0][1] == table[1][0] >= 0.05
    assert {table[a][b] for a in range(4) for b in (2, 3) if a != b} == {0.001}


@pytest.fixture(name="lines")
def _lines() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Two datagram lines in place of two TUN devices: the sites' ends and the relay's."""
    lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in ADDRESSES]
    for line in lines:
        for end in line:
            end.setblocking(False)
    yield lines
    for line in lines:
        for end in line:
            end.close()


@pytest.fixture(name="relay")
def _relay(lines: list[tuple[socket.socket, socket.socket]]) -> Relay:
    relay = Relay([end.fileno() for _, end in lines], [[0, 0.1], [0.1, 0]], seed=0)
    for site, address in enumerate(ADDRESSES):
        relay.assign(site, address)
    return relay


def packet(source: str, destination: str, text: bytes = b"text") -> bytes:
    """Return an IPv4 packet of which only the version, the addresses and the contents are filled in."""
    return b"\x45" + bytes(11) + socket.inet_aton(source) + socket.inet_aton(destination) + text


def test_a_packet_arrives_after_its_delay(
    lines: list[tuple[socket.socket, socket.socket]], relay: Relay
) -> None:
    sent = packet(*ADDRESSES)
    lines[0][0].send(sent)
    relay.read(lines[0][1].fileno(), 10.0)
    assert relay.write_due(10.05) == pytest.approx(0.05)
    with pytest.raises(BlockingIOError):
        lines[1][0].recv(100)
    assert relay.write_due(10.1) is None
    assert lines[1][0].recv(100) == sent
    assert relay.counts == Counter(forwarded=1, bytes=len(sent))


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (packet(*ADDRESSES), "cut"),
        (packet(ADDRESSES[0], "198.18.9.1"), "astray"),
        (packet(ADDRESSES[1], ADDRESSES[1]), "astray"),  # not this site's address
        (b"\x60" + bytes(39), "astray"),  # IPv6
        (b"\x45", "astray"),
    ],
)
def test_blocked_packets_are_counted_and_dropped(
    lines: list[tuple[socket.socket, socket.socket]], relay: Relay, sent: bytes, count: str
) -> None:
    relay.sides = [0, 1]
    lines[0][0].send(sent)
    relay.read(lines[0][1].fileno(), 0.0)
    assert relay.write_due(1.0) is None
    assert relay.counts == {count: 1}


def test_a_partition_does_not_affect_sites_on_no_side(
    lines: list[tuple[socket.socket, socket.socket]], relay: Relay
) -> None:
    relay.sides = [0, None]
    for sender, (source, target) in enumerate((ADDRESSES, ADDRESSES[::-1])):
        lines[sender][0].send(packet(source, target))
        relay.read(lines[sender][1].fileno(), 0.0)
    assert relay.counts == Counter(forwarded=2, bytes=48)


def test_a_share_of_all_packets_is_lost(
    lines: list[tuple[socket.socket, socket.socket]], relay: Relay
) -> None:
    relay.loss = 0.3
    for _ in range(1000):
        lines[0][0].send(packet(*ADDRESSES))
        relay.read(lines[0][1].fileno(), 0.0)
    assert relay.counts["lost"] + relay.counts["forwarded"] == 1000
    assert 250 < relay.counts["lost"] < 350


def test_a_site_with_a_new_address_does_not_keep_the_old_one(
    lines: list[tuple[socket.socket, socket.socket]], relay: Relay
) -> None:
    relay.assign(1, "198.18.122.1")
    for address in (ADDRESSES[1], "198.18.122.1"):
        lines[0][0].send(packet(ADDRESSES[0], address))
    relay.read(lines[0][1].fileno(), 0.0)
    assert (relay.counts["astray"], relay.counts["forwarded"]) == (1, 1)


RECORDS = {
    0: Record({"a": 100.0, "b": 110.0, "later": 300.0}, {"c": 105.5}, frozenset({0, 2}), Counter()),
    1: Record({"c": 105.0}, {"a": 101.0, "b": 112.0}, frozenset({0}), Counter(malformed=1)),
    2: Record({}, {"a": 103.0, "c": 105.25}, frozenset(), Counter()),
}


def test_each_group_is_due_at_each_other_node_once() -> None:
    found = delivery(Window("calm", 100.0, 200.0, (0, 1, 2)), RECORDS)
    assert found.p99_seconds == pytest.approx(3.0, abs=0.1)
    assert replace(found, p99_seconds=3.0) == Delivery(
        name="calm",
        groups=3,
        due=6,
        came=5,
        pairs=6,
        complete_pairs=5,
        deaf=0,
        p50_seconds=1.0,
        p99_seconds=3.0,
        max_seconds=3.0,
        missing={"00 to 02": 1},
    )


def test_a_node_that_receives_none_of_an_authors_groups_is_counted_as_deaf() -> None:
    found = delivery(Window("late", 300.0, 400.0, (0, 1)), RECORDS)
    assert (found.due, found.came, found.deaf, found.p50_seconds) == (1, 0, 1, None)


def test_first_heard_counts_groups_published_since_then_alone() -> None:
    assert first_heard(102.0, (0, 1), RECORDS) == {(0, 1): 10.0, (1, 0): 3.5}
    assert first_heard(200.0, (0, 1), RECORDS) == {(0, 1): None, (1, 0): None}


def test_a_record_equals_the_event_file(tmp_path: Path) -> None:
    events: list[dict[str, object]] = [
        {"event": "published", "content_id": "a", "epoch": 3},
        {"event": "admitted", "content_id": "b"},
        {"event": "refused", "reason": "malformed"},
        {"event": "refused", "reason": "no_signal"},
        {"event": "refusals_counted", "count": 9, "reasons": {"malformed": 4, "seen": 5}, "forwarders": 1},
    ]
    stamped = (
        {"time": f"1970-01-01T00:00:0{n}.000+00:00", "seq": n} | event for n, event in enumerate(events)
    )
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in stamped), encoding="utf-8")
    assert read_record(path) == Record({"a": 0.0}, {"b": 1.0}, frozenset({3}), Counter(malformed=5))


def test_results_are_written_as_text_and_as_json(tmp_path: Path) -> None:
    result = Result(
        ended=None,
        deliveries=(),
        healed={(0, 1): 2.5, (1, 0): None},
        lowest={"calm": -1.0},
        reachable=Counter(reachable=2),
        silent_epochs=0,
        refused=Counter(flood=1),
        relay={"cut": 3},
        cpu_share=0.5,
        node_bytes=2**20,
    )
    assert "1 of 2 pairs heard each other" in write(tmp_path, markdown(result), result.to_json())
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "ended": None,
        "deliveries": [],
        "healed": {"0 to 1": 2.5, "1 to 0": None},
        "lowest": {"calm": -1.0},
        "reachable": {"reachable": 2},
        "silent_epochs": 0,
        "refused": {"flood": 1},
        "relay": {"cut": 3},
        "cpu_share": 0.5,
        "node_bytes": 2**20,
    }
