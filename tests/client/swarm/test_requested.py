"""One announcing peer is asked at a time, and peers that do not answer cause only a short delay."""

from __future__ import annotations

import random
from collections.abc import Collection

from sapo_client.swarm.requested import (
    ASKED_OF_PEER,
    MAX_OTHERS,
    MAX_REQUESTS,
    MEMORY_SECONDS,
    PATIENCE_SECONDS,
    Requested,
)

TOPIC, OTHER_TOPIC = "rollouts/1", "rollouts/2"
IDS = [bytes([number]) * 32 for number in range(40)]


class Asker:
    """A node that notes what it knows and whom it counted as asked."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self.counted: list[tuple[str, list[bytes]]] = []
        self.requested: Requested[str] = Requested(
            random.Random(1), asked=self._count, knows=lambda identity, _: identity in self.known
        )

    def _count(self, peer: str, identities: Collection[bytes]) -> None:
        self.counted.append((peer, list(identities)))


def test_a_message_is_requested_from_one_of_its_announcing_peers() -> None:
    asker = Asker()
    asker.known.update(IDS[:2])
    found = [asker.requested.offered(peer, TOPIC, IDS, 1.0) for peer in "abcdefgh"]
    assert found == [IDS[2:], *([[]] * 7)]


def test_a_missing_message_is_requested_from_another_peer_at_the_next_heartbeat() -> None:
    asker = Asker()
    for peer in ("silent", "a", "b"):
        asker.requested.offered(peer, TOPIC, IDS[:2], 1.0)
    asker.known.add(IDS[0])
    assert asker.requested.overdue(1.0 + PATIENCE_SECONDS / 2) == {}
    (peer, asked), *rest = asker.requested.overdue(1.0 + PATIENCE_SECONDS).items()
    assert (peer in "ab", asked, rest) == (True, [IDS[1]], [])


def test_after_a_lapsed_request_a_peer_delays_no_further_messages() -> None:
    asker = Asker()
    assert asker.requested.offered("silent", TOPIC, IDS[:1], 1.0) == IDS[:1]
    assert asker.requested.offered("honest", TOPIC, IDS[:1], 1.0) == []
    assert asker.requested.overdue(2.0) == {"honest": IDS[:1]}
    for number in range(1, 9):
        now_seconds = 2.0 + number
        asker.requested.offered("silent", TOPIC, [IDS[number]], now_seconds)
        assert asker.requested.offered("honest", TOPIC, [IDS[number]], now_seconds + 0.01) == [IDS[number]]


def test_silent_peers_delay_a_message_by_at_most_two_heartbeats() -> None:
    asker = Asker()
    crowd = [f"silent-{number}" for number in range(30)]
    waited = []
    for number in range(35):
        now_seconds = float(number)
        for peer in crowd:
            asker.requested.offered(peer, TOPIC, [IDS[number]], now_seconds)
        for _ in range(10):  # the honest peer announces it at each heartbeat too
            if asker.requested.offered("honest", TOPIC, [IDS[number]], now_seconds):
                break
            now_seconds += 1.0
            if "honest" in asker.requested.overdue(now_seconds):
                break
        asker.known.add(IDS[number])
        waited.append(now_seconds - number)
    assert max(waited) <= 2.0
    assert sum(waited) <= len(crowd)  # each of them delays one message once


def test_announcing_peers_are_known_until_the_message_is_forwarded() -> None:
    asker = Asker()
    for peer in "abc":
        asker.requested.offered(peer, TOPIC, IDS[:1], 1.0)
    asker.requested.left("c")
    assert asker.requested.announced_by(IDS[0]) == {"a", "b"}
    assert asker.requested.announced_by(IDS[1]) == frozenset()


def test_requests_to_a_peer_that_leaves_are_sent_to_the_next_at_once() -> None:
    asker = Asker()
    asker.requested.offered("gone", TOPIC, IDS[:1], 1.0)
    asker.requested.left("gone")
    assert asker.requested.offered("a", TOPIC, IDS[:1], 1.01) == IDS[:1]


def test_requests_after_a_first_announcement_are_not_counted_against_the_mesh() -> None:
    asker = Asker()
    asker.requested.offered("a", TOPIC, IDS[:2], 1.0)
    asker.requested.offered("a", OTHER_TOPIC, IDS[2:4], 1.0)
    assert asker.counted == []
    asker.requested.offered("a", TOPIC, IDS[4:6], 2.0)
    assert asker.counted == [("a", IDS[4:6])]
    asker.requested.left("a")
    asker.requested.offered("a", TOPIC, IDS[6:8], 3.0)
    assert asker.counted == [("a", IDS[4:6])]


def invented(begin: int, count: int) -> list[bytes]:
    return [number.to_bytes(32, "big") for number in range(begin, begin + count)]


def test_invented_ids_are_requested_at_a_rate() -> None:
    """Ten announcements a second and topic would have this node upload a megabyte of requests a second."""
    asker = Asker()
    requested = 0
    for tenth in range(100):
        for topic in range(16):
            ids = invented(256 * (16 * tenth + topic), 256)
            requested += len(asker.requested.offered("attacker", f"topic {topic}", ids, tenth / 10))
    assert requested <= ASKED_OF_PEER.burst + 10 * ASKED_OF_PEER.per_second
    assert asker.requested.offered("honest", TOPIC, IDS[:1], 10.0) == IDS[:1]


def test_invented_ids_of_three_peers_displace_no_request_to_others() -> None:
    asker = Asker()
    asker.requested.offered("silent", TOPIC, IDS[:2], 1.0)
    asker.requested.offered("honest", TOPIC, IDS[:2], 1.0)
    for number in range(3):
        for topic in range(16):
            ids = invented(256 * (16 * number + topic) + 1000, 256)
            asker.requested.offered(f"attacker-{number}", f"topic {topic}", ids, 1.1)
    assert len(asker.requested._requests) == MAX_REQUESTS
    assert asker.requested.overdue(1.0 + PATIENCE_SECONDS) == {"honest": IDS[:2]}


def test_stored_announcements_are_bounded() -> None:
    asker = Asker()
    for number in range(2 * MAX_OTHERS):
        asker.requested.offered(f"peer-{number}", TOPIC, IDS[:1], 1.0)
    (request,) = asker.requested._requests.values()
    assert len(request.others) == MAX_OTHERS
    for number in range(MAX_REQUESTS + 10):
        asker.requested.offered(f"peer-{number % 8}", TOPIC, [number.to_bytes(32, "big")], 1.0)
    assert len(asker.requested._requests) == MAX_REQUESTS
    asker.requested.overdue(1.0 + MEMORY_SECONDS)
    assert (len(asker.requested._requests), asker.requested._lapsed_seconds) == (0, {})


def test_the_only_announcing_peer_is_asked_once_more_unless_it_left() -> None:
    """A request is lost where no way to the peer is open yet; nobody else may ever announce the message."""
    asker = Asker()
    asker.requested.offered("only", TOPIC, IDS[:2], 1.0)
    assert asker.requested.overdue(2.0) == {"only": IDS[:2]}
    asker.known.add(IDS[0])
    assert [asker.requested.overdue(3.0 + number) for number in range(5)] == [{}] * 5, "two lapses are enough"
    asker.requested.offered("gone", TOPIC, [IDS[2]], 9.0)
    asker.requested.left("gone")
    assert asker.requested.overdue(10.0) == {}
