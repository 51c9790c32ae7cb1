"""Neighbours that forward nothing are replaced where this does harm, and all peers get announcements."""

from __future__ import annotations

import random

from sapo_client.swarm.supply import (
    MAX_ASKED,
    MIN_ANNOUNCED,
    MIN_NEW,
    SETTLED_HEARTBEATS,
    WINDOW_HEARTBEATS,
    Exchange,
    Supply,
)

TOPIC = "rollouts"
WANTED = 3
SILENT = ("silent-1", "silent-2", "silent-3")


class OneMesh:
    """A mesh of one topic under a supply, a heartbeat at a time."""

    def __init__(self, *neighbours: str, beside: tuple[str, ...]) -> None:
        self.supply: Supply[str] = Supply(random.Random(0))
        self.neighbours = set(neighbours)
        self.beside = set(beside)
        self.number = 0

    def bring(self, peer: str, count: int, *, on_request: bool = False) -> None:
        """Let a peer bring new messages."""
        for _ in range(count):
            self.number += 1
            identity = self.number.to_bytes(32, "big")
            if on_request:
                self.supply.asked(peer, [identity])
            self.supply.came(TOPIC, identity, peer)

    def beat(self) -> Exchange[str] | None:
        """Let a heartbeat pass."""
        found = self.supply.exchange(TOPIC, self.neighbours, self.beside, WANTED)
        if found is not None:
            self.neighbours.add(found.graft)
            self.beside.discard(found.graft)
        if found is not None and found.prune is not None:
            self.neighbours.discard(found.prune)
            self.beside.add(found.prune)
        self.supply.shift()
        return found


def test_a_mesh_that_forwards_nothing_grafts_a_peer_that_answers_requests() -> None:
    mesh = OneMesh(*SILENT, beside=("useful", "idle"))
    found = []
    for _ in range(SETTLED_HEARTBEATS + 1):
        mesh.bring("useful", 3, on_request=True)
        found.append(mesh.beat())
    assert found[:-1] == [None] * SETTLED_HEARTBEATS
    assert found[-1] is not None
    assert found[-1].graft == "useful"
    assert found[-1].prune in SILENT


def test_a_mesh_with_room_grafts_it_at_once_without_pruning() -> None:
    mesh = OneMesh("silent-1", beside=("useful",))
    mesh.bring("useful", MIN_NEW, on_request=True)
    assert mesh.beat() == Exchange("useful", None)


def test_a_mesh_that_delivers_everything_keeps_its_silent_neighbours() -> None:
    mesh = OneMesh("useful", *SILENT, beside=("other",))
    for _ in range(3 * WINDOW_HEARTBEATS):
        mesh.bring("useful", 10)
        mesh.bring("other", 1, on_request=True)
        assert mesh.beat() is None


def test_a_few_messages_cause_no_replacement() -> None:
    mesh = OneMesh("silent-1", beside=("useful",))
    mesh.bring("useful", MIN_NEW - 1, on_request=True)
    assert mesh.beat() is None


def test_the_neighbour_with_most_deliveries_is_kept() -> None:
    mesh = OneMesh("useful", "silent-1", "silent-2", beside=("other",))
    left = set()
    for _ in range(4 * SETTLED_HEARTBEATS):
        mesh.bring("useful", 4)
        mesh.bring("other", 4, on_request="other" in mesh.beside)
        if (found := mesh.beat()) is not None:
            left.add(found.prune)
    assert len(left) == 1 < len(left | set(SILENT))
    assert {"useful", "other"} <= mesh.neighbours


def test_a_peer_that_is_grafted_and_falls_silent_is_replaced() -> None:
    mesh = OneMesh(*SILENT, beside=("actor", "honest"))
    joined = []
    for heartbeat in range(4 * WINDOW_HEARTBEATS):
        source = "actor" if heartbeat < WINDOW_HEARTBEATS else "honest"
        if source == "honest" or source in mesh.beside:
            mesh.bring(source, 5, on_request=source in mesh.beside)
        if (found := mesh.beat()) is not None:
            joined.append(found.graft)
    assert joined[0] == "actor"
    assert "honest" in mesh.neighbours
    mesh.supply.keep_topics([])
    for _ in range(SETTLED_HEARTBEATS + 1):
        mesh.bring("honest", 5)
        assert mesh.beat() is None


def test_own_messages_of_a_silent_neighbour_do_not_count_as_deliveries() -> None:
    """It sends its own messages to all peers, as every node does, and forwards nothing."""
    mesh = OneMesh(*SILENT, beside=("useful",))
    found = None
    for _ in range(2 * WINDOW_HEARTBEATS):
        for peer in SILENT:
            mesh.bring(peer, peer in mesh.neighbours)
        mesh.bring("useful", 5, on_request="useful" in mesh.beside)
        found = mesh.beat() or found
    assert found is not None
    assert found.graft == "useful"


def test_all_peers_outside_the_mesh_get_the_announcement_in_time() -> None:
    supply: Supply[str] = Supply(random.Random(0))
    others = [f"peer-{number}" for number in range(40)]
    told: list[str] = []
    for _ in range(3):
        told += supply.to_tell(TOPIC, others)
        supply.shift()
    assert sorted(set(told)) == sorted(others)
    assert len(told) == 42
    assert len(supply.to_tell(TOPIC, others[:4])) == 4 < MIN_ANNOUNCED


def test_requests_caused_by_announcements_are_bounded() -> None:
    supply: Supply[str] = Supply(random.Random(0))
    for number in range(MAX_ASKED):
        supply.asked("flooder", [number.to_bytes(32, "big"), b"\x01" + number.to_bytes(31, "big")])
    assert len(supply._asked) == MAX_ASKED


def test_many_new_neighbours_displace_only_those_that_forward_nothing() -> None:
    mesh = OneMesh("useful-1", "useful-2", "silent-1", "silent-2", beside=())
    for _ in range(SETTLED_HEARTBEATS + 1):
        mesh.bring("useful-1", 4)
        mesh.bring("useful-2", 6)
        mesh.beat()
    crowd = [f"new-{number}" for number in range(20)]
    order = mesh.supply.least(TOPIC, [*crowd, *mesh.neighbours])
    assert set(order[:2]) == {"silent-1", "silent-2"}
    assert set(order[2:22]) == set(crowd)
    assert order[22:] == ["useful-1", "useful-2"]
