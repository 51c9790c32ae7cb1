"""Relays deliver rollouts of others; an island without a relay is short if somebody publishes on it."""

from __future__ import annotations

from sapo_client.swarm.relays import (
    PATIENCE_SECONDS,
    PROVING_MESSAGES,
    PUBLISHED_SECONDS,
    WINDOW_SECONDS,
    Relays,
    Shortage,
)

ISLAND = 7
SILENT = ("silent-1", "silent-2")
LATER = PATIENCE_SECONDS + 1.0


def connected_since_zero(*peers: str) -> Relays:
    """Return relays of a node that has been connected with some peers from the beginning."""
    relays = Relays()
    assert relays.shortages([ISLAND], peers, 0.0) == {}
    return relays


def test_without_published_messages_no_shortage_is_reported() -> None:
    relays = connected_since_zero(*SILENT)
    assert [relays.shortages([ISLAND], SILENT, now) for now in (LATER, 1e3, 1e6)] == [{}, {}, {}]


def test_an_author_whose_peers_deliver_nothing_receives_too_little() -> None:
    relays = connected_since_zero(*SILENT)
    relays.published(ISLAND, 1.0)
    assert relays.shortages([ISLAND], SILENT, 2.0) == {ISLAND: Shortage(frozenset(), may_replace=False)}
    assert relays.shortages([ISLAND], SILENT, LATER) == {
        ISLAND: Shortage(frozenset(SILENT), may_replace=False)
    }
    for number in range(1, PROVING_MESSAGES):
        relays.published(ISLAND, 1.0 + number)
    assert relays.shortages([ISLAND], SILENT, LATER) == {
        ISLAND: Shortage(frozenset(SILENT), may_replace=True)
    }


def test_own_rollouts_do_not_make_a_silent_peer_a_relay() -> None:
    relays = connected_since_zero(*SILENT)
    for number in range(PROVING_MESSAGES):
        relays.came(ISLAND, SILENT[0], SILENT[0], 1.0 + number)
    assert relays.shortages([ISLAND], SILENT, LATER) == {
        ISLAND: Shortage(frozenset(SILENT), may_replace=True)
    }


def test_with_two_relays_there_is_no_shortage_and_with_one_there_is() -> None:
    peers = ("one", "other", *SILENT)
    relays = connected_since_zero(*peers)
    for relay in peers[:2]:
        relays.came(ISLAND, "author", relay, 3.0)
    relays.published(ISLAND, 4.0)
    assert relays.shortages([ISLAND], peers, LATER) == {}
    assert relays.shortages([ISLAND], peers[1:], LATER) == {
        ISLAND: Shortage(frozenset(SILENT), may_replace=False)
    }


def test_an_attacker_faster_than_all_honest_neighbours_replaces_none_of_them() -> None:
    """He brings every message first, so that the others look idle; then he falls silent."""
    honest = ("honest-1", "honest-2")
    relays = connected_since_zero("fast", *honest)
    for second in range(60):
        relays.came(ISLAND, "author", "fast", float(second))
        relays.published(ISLAND, float(second))
        found = relays.shortages([ISLAND], ("fast", *honest), float(second))
        assert not any(shortage.may_replace for shortage in found.values())
    for second in range(60, 180):
        relays.came(ISLAND, "author", honest[second % 2], float(second))
        relays.published(ISLAND, float(second))
        found = relays.shortages([ISLAND], ("fast", *honest), float(second))
        assert not any(shortage.may_replace for shortage in found.values())


def test_a_relay_that_falls_silent_is_none_after_a_while() -> None:
    relays = connected_since_zero("one", "other")
    for relay in ("one", "other"):
        relays.came(ISLAND, "author", relay, 1.0)
    relays.published(ISLAND, WINDOW_SECONDS)
    assert relays.shortages([ISLAND], ("one", "other"), WINDOW_SECONDS) == {}
    assert relays.shortages([ISLAND], ("one", "other"), WINDOW_SECONDS + 2.0).keys() == {ISLAND}


def test_a_peer_that_has_just_connected_or_had_nothing_to_pass_on_is_not_idle() -> None:
    relays = connected_since_zero("old")
    relays.published(ISLAND, LATER)
    found = relays.shortages([ISLAND], ("old", "new"), LATER)
    assert found == {ISLAND: Shortage(frozenset({"old"}), may_replace=False)}
    assert relays.shortages([ISLAND], ("old", "new"), 2 * LATER) == found


def test_data_of_an_island_is_removed_with_it() -> None:
    relays = connected_since_zero(*SILENT)
    relays.published(ISLAND, 1.0)
    assert relays.shortages([], SILENT, LATER) == {}
    assert relays.shortages([ISLAND], SILENT, LATER) == {}


def test_an_island_is_published_on_for_an_hour_after_the_last_own_message() -> None:
    relays = Relays()
    relays.published(1, 0.0)
    relays.published(2, 100.0)
    relays.came(3, "author", "author", 100.0)
    assert relays.published_on({1, 2, 3}, 101.0) == {1, 2}
    assert relays.published_on({2, 3}, 101.0) == {2}
    assert relays.published_on({1, 2, 3}, PUBLISHED_SECONDS) == {2}
    relays.shortages({2}, [], PUBLISHED_SECONDS)
    assert relays.published_on({1, 2, 3}, 101.0) == {2}, "what a left island had is forgotten"
