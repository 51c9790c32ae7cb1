"""Which peers are dialled, and when."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import peer_id_from_key

LIMITS = DialLimits(target_peers=4)


def _address(number: int, port: int = 4001) -> PeerAddress:
    return PeerAddress("ip4", f"192.0.2.{number}", port, peer_id_from_key(bytes([number]) * 32))


OWN = _address(0)


def _book(limits: DialLimits = LIMITS) -> AddressBook:
    return AddressBook(OWN.peer_id, limits, random.Random(7))


def test_bootstrap_is_dialled_for_ever_with_growing_pauses() -> None:
    book, boot = _book(), _address(1)
    book.add_bootstrap(boot)
    now, pauses = 0.0, []
    for _ in range(20):
        assert book.due((), now) == (boot,)
        book.dialling(boot.peer_id, now)
        assert book.due((), now) == ()
        book.failed(boot.peer_id, now)
        started = now
        while not book.due((), now):
            now += 0.25
        pauses.append(now - started)
    assert pauses[-1] <= LIMITS.max_backoff_seconds + 0.25
    assert max(pauses[:3]) < LIMITS.max_backoff_seconds / 4 < min(pauses[-5:])


def test_a_peer_that_disconnects_at_once_is_dialled_more_and_more_rarely() -> None:
    book, boot = _book(), _address(1)
    book.add_bootstrap(boot)
    for number in range(12):
        book.reached(boot.peer_id, float(number))
        book.lost(boot.peer_id, float(number))
    assert book.due((), 12.0 + LIMITS.max_backoff_seconds / 4) == ()
    assert book.due((), 12.0 + LIMITS.max_backoff_seconds) == (boot,)


def test_a_settled_peer_that_is_lost_is_dialled_soon() -> None:
    book, boot = _book(), _address(1)
    book.add_bootstrap(boot)
    book.failed(boot.peer_id, 0.0)
    book.reached(boot.peer_id, 1.0)
    book.lost(boot.peer_id, 100.0)
    assert book.due((), 100.0 + LIMITS.first_backoff_seconds) == (boot,)


def test_a_learned_peer_is_dropped_after_some_failures() -> None:
    book = _book()
    book.learn([_address(2)])
    for _ in range(LIMITS.max_failures):
        book.failed(_address(2).peer_id, 0.0)
    assert (len(book), book.due((), 1e9)) == (0, ())


def test_only_as_many_are_dialled_as_are_wanted() -> None:
    book = _book()
    book.learn([_address(number) for number in range(1, 10)])
    connected = [_address(number).peer_id for number in (1, 2)]
    due = book.due(connected, 0.0)
    assert len(due) == LIMITS.target_peers - 2
    assert not {address.peer_id for address in due} & set(connected)


def test_a_lost_bootstrap_peer_is_dialled_even_with_enough_peers() -> None:
    book = _book()
    book.add_bootstrap(_address(1))
    book.learn([_address(number) for number in range(2, 10)])
    assert book.due([_address(number).peer_id for number in range(2, 8)], 0.0) == (_address(1),)


def test_next_address_is_tried_after_a_failure() -> None:
    book = _book()
    book.learn([_address(1, 1), _address(1, 2)])
    peer_id = _address(1).peer_id
    assert book.addresses_of(peer_id) == (_address(1, 2), _address(1, 1))
    book.failed(peer_id, 0.0)
    assert book.addresses_of(peer_id) == (_address(1, 1), _address(1, 2))


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 65535)), max_size=300))
def test_the_book_is_bounded_and_never_holds_the_own_peer(learned: list[tuple[int, int]]) -> None:
    limits = DialLimits(max_known_peers=16, target_peers=1000)
    book = _book(limits)
    book.learn(_address(number, port) for number, port in learned)
    assert len(book) <= 16
    due = book.due((), 0.0)
    assert OWN.peer_id not in {address.peer_id for address in due}
    assert all(len(book.addresses_of(address.peer_id)) <= limits.max_addresses_per_peer for address in due)
