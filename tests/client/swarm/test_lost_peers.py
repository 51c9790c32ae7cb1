"""Which lost peers are remembered, and dialled beyond the usual number."""

from __future__ import annotations

import random
from dataclasses import replace

from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits, TransportLimits
from sapo_client.swarm.lost import LostPeers
from sapo_client.swarm.peer_id import peer_id_from_key

LIMITS = replace(DialLimits(), max_lost=3, lost_peers=2, target_peers=2)
LONG = LIMITS.lost_after_seconds


def lost(*peers: tuple[str, str, float]) -> LostPeers:
    """Return what is remembered of peers, each with its network and how long it was connected."""
    found = LostPeers(LIMITS)
    for name, network, seconds in peers:
        found.chose(name, network, 0.0)
        found.left(name, seconds)
    return found


def remembered(found: LostPeers, names: str) -> str:
    return "".join(name for name in names if name in found)


def test_short_or_inbound_connections_are_not_lost_peers() -> None:
    found = lost(("a", "one", LONG - 1), ("b", "two", LONG))
    found.left("a stranger", LONG)
    assert remembered(found, "ab") == "b"


def test_the_peers_connected_longest_are_remembered() -> None:
    found = lost(*((name, name, LONG * times) for name, times in (("a", 2), ("b", 5), ("c", 3), ("d", 4))))
    assert remembered(found, "abcd") == "bcd"


def test_one_lost_peer_per_network_is_kept_before_a_second_of_any() -> None:
    """An attacker stays long, in one network, and leaves with all his peers at once."""
    attackers = [(f"{number}", "attacker", LONG * 100) for number in range(9)]
    found = lost(("a", "one", LONG), *attackers, ("b", "two", LONG))
    assert remembered(found, "ab") == "ab"
    assert sum(name in found for name, _, _ in attackers) == 1


def test_times_of_several_connections_add_up() -> None:
    found = lost(("a", "one", LONG))
    found.chose("a", "one", 1000.0)
    assert "a" not in found
    found.left("a", 1000.0 + 4 * LONG)
    for name in "bcd":
        found.chose(name, name, 0.0)
        found.left(name, 4.5 * LONG)
    assert "a" in found
    assert sum(name in found for name in "bcd") == LIMITS.max_lost - 1


def test_peers_found_again_have_places_of_their_own() -> None:
    found = lost(*((name, name, LONG) for name in "abc"))
    assert (found.places("xy"), found.beyond("xy")) == (2, 0)
    for name in "abc":
        found.chose(name, name, 500.0)
    assert (found.places("xya"), found.beyond("xya")) == (1, 1)
    assert (found.places("xyabc"), found.beyond("xyabc")) == (0, 2)
    found.left("a", 501.0)
    assert found.beyond("xybc") == 2


def test_a_peer_forgotten_after_its_return_has_no_place_of_its_own() -> None:
    found = lost(("a", "one", LONG))
    found.chose("a", "one", 500.0)
    found.left("a", 501.0)
    found.forget_old(502.0 + LIMITS.lost_for_seconds)
    found.chose("a", "one", 503.0 + LIMITS.lost_for_seconds)
    assert found.beyond("a") == 0


def test_lost_peers_take_no_connection_reserved_for_inbound_peers() -> None:
    """With members of islands and the usual peers beside them all that a node dials is dialled."""
    transport = TransportLimits()
    dialled = transport.max_connections - int(transport.max_connections * transport.inbound_share)
    chosen = [f"chosen {number}" for number in range(dialled)]
    found = lost(("a", "one", LONG), ("b", "two", LONG))
    assert [found.places(chosen[:count]) for count in (dialled, dialled - 1, dialled - 2)] == [0, 1, 2]


def test_after_a_week_a_lost_peer_is_forgotten() -> None:
    found = lost(("a", "one", LONG), ("b", "two", LONG * 10))
    found.forget_old(LONG + LIMITS.lost_for_seconds)
    assert remembered(found, "ab") == "b"


def test_a_lost_peer_is_dialled_for_a_week_even_with_enough_peers() -> None:
    limits = DialLimits()
    names = [peer_id_from_key(bytes([number]) * 32) for number in range(12)]
    [own, gone, *others] = [
        PeerAddress("ip4", f"198.{n}.0.1", 4001, peer_id) for n, peer_id in enumerate(names)
    ]
    book = AddressBook(own.peer_id, limits, random.Random(1))
    book.learn_first_hand([gone, *others])
    book.reached(gone.peer_id, 0.0)
    book.chose(gone, 0.0)
    book.lost(gone.peer_id, LONG)
    connected = [address.peer_id for address in others]
    now, dialled = LONG, 0
    while book.addresses_of(gone.peer_id):
        now += limits.max_backoff_seconds
        for address in book.due(connected, connected, now):
            assert address == gone
            book.dialling(gone.peer_id, now)
            book.failed(gone.peer_id, now)
            dialled += 1
    assert LONG + limits.lost_for_seconds <= now <= LONG + limits.lost_for_seconds + 120
    assert dialled >= (now - LONG) / limits.max_backoff_seconds - 2


def test_others_are_dialled_beside_a_bootstrap_peer_and_a_lost_one_that_are_due() -> None:
    """Each once: whoever keeps these two unreachable does not keep the node from dialling others."""
    book = AddressBook("own", replace(LIMITS, target_peers=4), random.Random(7))
    boot, gone, *others = (
        PeerAddress("ip4", f"192.0.2.{number}", 4001, peer_id_from_key(bytes([number]) * 32))
        for number in range(1, 6)
    )
    book.add_bootstrap(boot)
    book.learn([gone, *others], "198.51.100.1")
    book.chose(gone, 0.0)
    book.reached(gone.peer_id, 0.0)
    book.lost(gone.peer_id, LONG)
    due = book.due((), (), 2 * LONG)
    assert due[:2] == (boot, gone)
    assert len(due) == len(set(due)) == 4
    assert set(due[2:]) < set(others)
