"""Which peers are dialled, and when."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.address_book import STRANGERS_AT_ONE_HOST, AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.sought import SoughtFor
from sapo_client.swarm.vouched import VouchedPeers

LIMITS = DialLimits(target_peers=4, vouched_peers=2)
TELLER = "198.51.100.1"


def _address(number: int, port: int = 4001) -> PeerAddress:
    return PeerAddress("ip4", f"192.0.2.{number}", port, peer_id_from_key(bytes([number]) * 32))


OWN = _address(0)


def on(islands: set[int], source: str = "198.51.0.0/16") -> SoughtFor:
    return SoughtFor(frozenset(islands), source)


def _book(limits: DialLimits = LIMITS, vouched: VouchedPeers | None = None) -> AddressBook:
    return AddressBook(OWN.peer_id, limits, random.Random(7), vouched)


def test_bootstrap_peers_are_dialled_without_end_with_growing_pauses() -> None:
    book, boot = _book(), _address(1)
    book.add_bootstrap(boot)
    now, pauses = 0.0, []
    for _ in range(20):
        assert book.due((), (), now) == (boot,)
        book.dialling(boot.peer_id, now)
        assert book.due((), (), now) == ()
        book.failed(boot.peer_id, now)
        started = now
        while not book.due((), (), now):
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
    assert book.due((), (), 12.0 + LIMITS.max_backoff_seconds / 4) == ()
    assert book.due((), (), 12.0 + LIMITS.max_backoff_seconds) == (boot,)


def test_a_lost_peer_with_a_stable_connection_is_dialled_soon() -> None:
    book, boot = _book(), _address(1)
    book.add_bootstrap(boot)
    book.failed(boot.peer_id, 0.0)
    book.reached(boot.peer_id, 1.0)
    book.lost(boot.peer_id, 100.0)
    assert book.due((), (), 100.0 + LIMITS.first_backoff_seconds) == (boot,)


def test_a_learned_peer_is_dropped_after_some_failures() -> None:
    book = _book()
    book.learn([_address(2)], TELLER)
    for _ in range(LIMITS.max_failures):
        book.failed(_address(2).peer_id, 0.0)
    assert (len(book), book.due((), (), 1e9)) == (0, ())


def test_a_peer_that_is_forgotten_while_it_is_dialled_may_fail_or_leave() -> None:
    book = _book()
    book.failed(_address(2).peer_id, 0.0)
    book.lost(_address(2).peer_id, 0.0)
    book.reached(_address(2).peer_id, 0.0)
    assert (len(book), book.due((), (), 1e9)) == (0, ())


def test_only_as_many_are_dialled_as_are_wanted() -> None:
    book = _book()
    book.learn([_address(number) for number in range(1, 10)], TELLER)
    connected = [_address(number).peer_id for number in (1, 2)]
    due = book.due(connected, connected, 0.0)
    assert len(due) == LIMITS.target_peers - 2
    assert not {address.peer_id for address in due} & set(connected)


def test_unverified_addresses_cannot_make_a_node_dial_one_host_repeatedly() -> None:
    """Thousands of invented peers at one victim's hosts; each is announced again after its failures."""
    book = _book()
    hosts = ("/ip4/198.51.100.7", "/ip6/2001:db8:1:2::{0}", "/dns/n{0}.victim.example.org")
    dials: Counter[str] = Counter()
    now = 0.0
    for number in range(600):
        kind, host = hosts[number % 3][1:].split("/")
        peer_id = peer_id_from_key(number.to_bytes(32, "big"))
        book.learn([PeerAddress(kind, host.format(number + 1), 1 + number, peer_id)], TELLER)
        for address in book.due((), (), now):
            dials[address.kind] += 1
            book.dialling(address.peer_id, now)
            book.failed(address.peer_id, now)
        now += 0.5
    rate = STRANGERS_AT_ONE_HOST
    assert 0 < max(dials.values()) <= rate.burst + now * rate.per_second


def test_a_lost_bootstrap_peer_is_dialled_even_with_enough_peers() -> None:
    book = _book()
    book.add_bootstrap(_address(1))
    book.learn([_address(number) for number in range(2, 10)], TELLER)
    connected = [_address(number).peer_id for number in range(2, 8)]
    assert book.due(connected, connected, 0.0) == (_address(1),)


def test_peers_that_connect_by_themselves_leave_all_places_to_be_chosen() -> None:
    book = _book()
    book.learn([_address(number) for number in range(1, 20)], TELLER)
    crowd = [_address(number).peer_id for number in range(1, 10)]
    due = book.due(crowd, (), 0.0)
    assert len(due) == LIMITS.target_peers
    assert not {address.peer_id for address in due} & set(crowd)


def test_vouched_peers_are_dialled_first_and_beyond_the_target() -> None:
    vouched = VouchedPeers()
    book = _book(vouched=vouched)
    book.learn([_address(number) for number in range(1, 20)], TELLER)
    vouched.replace(_address(number).peer_id for number in (17, 18, 19))
    strangers = [_address(number).peer_id for number in range(1, 5)]
    assert set(book.due(strangers, strangers, 0.0)) <= {_address(number) for number in (17, 18, 19)}
    assert len(book.due(strangers, strangers, 0.0)) == LIMITS.vouched_peers
    came = [_address(17).peer_id, _address(18).peer_id]
    assert set(book.due([*strangers, *came], strangers, 0.0)) == {_address(19)}, "who came counts for nothing"
    assert book.due([*strangers, *came], [*strangers, *came], 0.0) == ()


def test_a_full_book_drops_an_unknown_peer_for_a_vouched_one() -> None:
    vouched = VouchedPeers()
    book = _book(DialLimits(max_known_peers=3), vouched)
    vouched.replace(_address(number).peer_id for number in (2, 8, 9))
    book.learn([_address(number) for number in (1, 2, 3, 7, 8)], TELLER)
    assert set(book.addresses()) == {_address(2), _address(7), _address(8)}
    book.learn([_address(9), _address(4)], TELLER)
    assert set(book.addresses()) == {_address(2), _address(8), _address(9)}


def test_unverified_addresses_take_at_most_half_of_the_book() -> None:
    book = _book(DialLimits(max_known_peers=8))
    book.learn([_address(number) for number in range(100, 200)], TELLER)
    assert len(book) == 4
    met = [_address(number) for number in range(1, 5)]
    book.learn_first_hand(met)
    heard = {_address(number) for number in range(196, 200)}
    assert set(book.addresses()) == {*met, *heard}
    book.learn([_address(number) for number in range(100, 200)], TELLER)
    assert set(book.addresses()) == {*met, *heard}
    book.learn_first_hand([_address(199)])
    assert set(book.addresses()) == {*met[1:], *heard}, "met by now, in the place of another one met"


def test_the_most_frequent_sender_displaces_no_others_entries() -> None:
    """Keys are free, networks are not: a crowd at one host counts as one."""
    book = _book(DialLimits(max_known_peers=8))
    book.learn([_address(1), _address(2)], "203.0.113.7")
    book.learn([_address(number) for number in range(100, 200)], TELLER)
    assert set(book.addresses()) == {_address(1), _address(2), _address(198), _address(199)}
    book.learn_first_hand([_address(3), _address(4)])
    for number in range(50, 100):
        book.learn_first_hand([_address(number)], TELLER)  # whatever addresses the keys at one host claim
    assert set(book.addresses()) >= {_address(number) for number in range(1, 5)}


def test_unverified_addresses_do_not_displace_connected_peers() -> None:
    vouched = VouchedPeers()
    vouched.replace(_address(number).peer_id for number in range(10, 16))
    book = _book(DialLimits(max_known_peers=8), vouched)
    book.learn_first_hand([_address(number) for number in (1, 2, *range(10, 16))])
    book.learn([_address(3)], TELLER)
    assert set(book.addresses()) == {_address(number) for number in (1, 2, *range(10, 16))}
    book.learn_first_hand([_address(3)])
    assert set(book.addresses()) == {_address(number) for number in (2, 3, *range(10, 16))}


def test_next_address_is_tried_after_a_failure() -> None:
    book = _book()
    book.learn([_address(1, 1), _address(1, 2)], TELLER)
    peer_id = _address(1).peer_id
    assert book.addresses_of(peer_id) == (_address(1, 2), _address(1, 1))
    book.failed(peer_id, 0.0)
    assert book.addresses_of(peer_id) == (_address(1, 1), _address(1, 2))


def test_unverified_addresses_never_replace_first_hand_ones() -> None:
    book = _book()
    true, moved = _address(1, 1), _address(1, 2)
    book.learn([_address(1, port) for port in range(100, 110)], TELLER)
    book.learn_first_hand([true])
    book.learn([_address(1, port) for port in range(200, 210)], TELLER)
    assert book.addresses_of(true.peer_id)[0] == true
    assert len(book.addresses_of(true.peer_id)) == LIMITS.max_addresses_per_peer
    book.learn([moved], TELLER)
    book.failed(true.peer_id, 0.0)
    assert book.addresses_of(true.peer_id)[0] == moved, "the peer may have moved"
    book.learn_first_hand([moved])
    book.lost(true.peer_id, 1000.0)
    assert book.addresses_of(true.peer_id)[:2] == (moved, true)


def test_unverified_addresses_are_not_kept_for_the_next_start() -> None:
    """What is read back is first-hand, so what was only said must not be written."""
    book = _book()
    book.add_bootstrap(_address(1))
    book.learn([_address(2), _address(3, port=9)], TELLER)
    book.learn_first_hand([_address(3)])
    assert book.addresses(first_hand=True) == (_address(1), _address(3))


def test_a_vouched_peer_is_not_forgotten_while_it_is_away() -> None:
    vouched = VouchedPeers()
    book = _book(vouched=vouched)
    book.learn([_address(2)], TELLER)
    vouched.replace([_address(2).peer_id])
    for _ in range(5 * LIMITS.max_failures):
        book.failed(_address(2).peer_id, 0.0)
    assert book.due((), (), LIMITS.max_backoff_seconds) == (_address(2),)


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 65535)), max_size=300))
def test_the_book_is_bounded_and_never_holds_the_own_peer(learned: list[tuple[int, int]]) -> None:
    limits = DialLimits(max_known_peers=16, target_peers=1000)
    book = _book(limits)
    book.learn((_address(number, port) for number, port in learned), TELLER)
    assert len(book) <= 16
    due = book.due((), (), 0.0)
    assert OWN.peer_id not in {address.peer_id for address in due}
    assert all(len(book.addresses_of(address.peer_id)) <= limits.max_addresses_per_peer for address in due)


def test_sought_peers_are_dialled_beyond_the_usual_number_until_some_are_connected() -> None:
    book = _book()
    book.learn([_address(number) for number in range(1, 20)], TELLER)
    usual = [_address(number).peer_id for number in range(1, 5)]
    sought = {_address(number) for number in range(10, 20)}
    assert book.due(usual, usual, 0.0) == ()
    book.seek({address.peer_id: on({1}) for address in sought})
    due = book.due(usual, usual, 0.0)
    assert len(due) == LIMITS.sought_on_island
    assert set(due) <= sought
    connected = [*usual, *(address.peer_id for address in due[1:])]
    assert len(book.due(connected, connected, 0.0)) == 1
    others = connected[1:]
    assert len(book.due(others, others, 0.0)) == 2, "the sought ones take no place of the usual number"
    everybody = [*usual[1:], *(address.peer_id for address in sought)]
    assert book.due(everybody, everybody, 0.0) == (), "more of them than are wanted count as usual ones"
    book.seek({})
    assert book.due(usual, usual, 0.0) == ()


def test_with_sought_members_fewer_usual_peers_are_dialled() -> None:
    book = _book(replace(LIMITS, target_peers=8, vouched_peers=0))
    book.learn([_address(number) for number in range(1, 40)], TELLER)
    sought = {_address(number).peer_id for number in range(1, 20)}
    assert len(book.due((), (), 0.0)) == 8
    book.seek({peer_id: on({1}) for peer_id in sought})
    due = [address.peer_id for address in book.due((), (), 0.0)]
    assert len(due) == LIMITS.sought_on_island + LIMITS.usual_beside_sought
    assert len(sought.intersection(due)) >= LIMITS.sought_on_island
    book.seek({})
    assert len(book.due((), (), 0.0)) == 8


def test_sought_peers_do_not_make_a_node_dial_a_victim_more_often_than_others() -> None:
    """Reflection: any number of keys may say that they are at one host."""
    book, victim = _book(replace(LIMITS, sought_peers=1000, sought_on_island=1000)), "203.0.113.9"
    told = [
        PeerAddress("ip4", victim, 1000 + number, peer_id_from_key(number.to_bytes(32, "big")))
        for number in range(1, 200)
    ]
    book.learn(told, TELLER)
    book.seek({address.peer_id: on({1}) for address in told})
    assert len(book.due((), (), 0.0)) == STRANGERS_AT_ONE_HOST.burst
    assert book.due((), (), 1.0) == ()


def _sought_on(book: AddressBook, *islands: int) -> dict[int, list[str]]:
    """Make the book know and seek nine members of each island; return their peer ids."""
    members = {island: [_address(10 * island + one) for one in range(1, 10)] for island in islands}
    for addresses in members.values():
        book.learn(addresses, TELLER)
    book.seek({one.peer_id: on({island}) for island, them in members.items() for one in them})
    return {island: [one.peer_id for one in them] for island, them in members.items()}


def _dialled_on(members: dict[int, list[str]], due: tuple[PeerAddress, ...]) -> list[int]:
    ids = {address.peer_id for address in due}
    return [len(ids.intersection(them)) for them in members.values()]


def test_an_island_without_members_is_sought_while_another_has_enough() -> None:
    book = _book()
    members = _sought_on(book, 1, 2)
    full = members[1][: LIMITS.sought_on_island + LIMITS.target_peers]
    assert _dialled_on(members, book.due(full, full, 0.0)) == [0, LIMITS.sought_on_island]


def test_the_places_for_members_are_split_between_the_islands_that_lack_them() -> None:
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=0))
    members = _sought_on(book, 1, 2, 3, 4)
    each = LIMITS.sought_peers // 4
    assert _dialled_on(members, book.due((), (), 0.0)) == [each, each, each, each]
    one = members[1][:1]
    assert _dialled_on(members, book.due(one, one, 0.0)) == [each - 1, each, each, each]


def test_islands_that_a_node_leaves_keep_no_places_from_those_that_it_joins() -> None:
    """When homes move a node carries the old and the new islands for some epochs."""
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=0))
    _sought_on(book, 1, 2)
    old = [address.peer_id for address in book.due((), (), 0.0)]
    assert len(old) == LIMITS.sought_peers
    members = _sought_on(book, 1, 2, 3, 4)
    each = LIMITS.sought_peers // 4
    assert _dialled_on(members, book.due(old, old, 0.0)) == [0, 0, each, each]


def test_a_member_of_two_islands_counts_on_both() -> None:
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=0))
    both = [_address(number) for number in range(1, 10)]
    book.learn(both, TELLER)
    book.seek({address.peer_id: on({1, 2}) for address in both})
    assert len(book.due((), (), 0.0)) == LIMITS.sought_on_island


def test_a_node_with_many_islands_dials_those_without_members_within_its_places() -> None:
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=0))
    members = _sought_on(book, *range(1, 25))
    connected = [members[island][0] for island in range(1, 9)]
    due = book.due(connected, connected, 0.0)
    assert _dialled_on(members, due)[:8] == [0] * 8
    assert len(due) == LIMITS.sought_peers


def test_inbound_members_do_not_prevent_a_node_from_choosing_some() -> None:
    book = _book()
    members = _sought_on(book, 1)
    assert _dialled_on(members, book.due(members[1][:1], (), 0.0))[0] >= LIMITS.sought_on_island


def test_half_of_the_places_for_members_wait_for_vouched_ones() -> None:
    """The first peer that answers could otherwise fill all places with its own members."""
    vouched = VouchedPeers()
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=0), vouched)
    members = _sought_on(book, 1)
    late = [_address(number) for number in range(100, 104)]
    vouched.replace(address.peer_id for address in late)
    first = [address.peer_id for address in book.due((), (), 0.0)]
    assert len(first) == LIMITS.sought_on_island // 2
    book.learn(late, TELLER)
    told = [*members[1], *(address.peer_id for address in late)]
    book.seek({peer_id: on({1}) for peer_id in told})
    due = book.due(first, first, 0.0)
    assert len(due) == LIMITS.sought_on_island // 2
    assert set(due) <= set(late)


def test_members_reported_by_different_peers_are_dialled() -> None:
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=0))
    members = [_address(number) for number in range(1, 40)]
    book.learn(members, TELLER)
    sources = {one.peer_id: "a" if number < 36 else f"{number}" for number, one in enumerate(members)}
    book.seek({peer_id: on({1}, source) for peer_id, source in sources.items()})
    assert {sources[one.peer_id] for one in book.due((), (), 0.0)} == {"a", "36", "37", "38"}


def test_unverified_addresses_do_not_displace_signed_ones() -> None:
    """An attacker announces any number of peers by the peer exchange, from many networks."""
    book = _book(DialLimits(max_known_peers=16))
    signed = [_address(number) for number in range(1, 5)]
    book.learn_signed(signed, TELLER)
    for number in range(10, 60):
        book.learn([_address(number)], f"203.0.113.{number}")
    assert set(signed) <= set(book.addresses())
    for number in range(60, 110):
        book.learn_signed([_address(number)], f"203.0.113.{number}")
    met = [_address(number) for number in range(110, 118)]
    book.learn_first_hand(met)
    for number in range(120, 170):
        book.learn_signed([_address(number)], f"203.0.113.{number}")
        book.learn([_address(number + 60)], f"203.0.113.{number}")
    kinds = Counter(address in met for address in book.addresses())
    assert kinds == {True: 8, False: 8}, "half of the book is for those who were met"


def test_first_hand_addresses_of_unknown_peers_do_not_displace_signed_ones() -> None:
    """Trusted peers fill half of the book: any number of unknown peers connect and send their addresses."""
    vouched = VouchedPeers()
    book = _book(DialLimits(max_known_peers=16), vouched)
    vouched.replace(_address(number).peer_id for number in range(1, 9))
    book.learn([_address(number) for number in range(1, 9)], TELLER)
    book.learn_signed([_address(number) for number in range(9, 13)], TELLER)
    for number in range(20, 60):
        book.learn_first_hand([_address(number)], f"203.0.113.{number}")
    assert {_address(number) for number in range(1, 13)} <= set(book.addresses())
    assert len(book) == 16


def test_signed_addresses_take_at_most_half_of_the_places_of_unproven_ones() -> None:
    """Keys are free, so an attacker can sign for as many peers as it likes, in as many networks."""
    book = _book(replace(LIMITS, max_known_peers=64))
    heard = [_address(number) for number in range(1, 17)]
    book.learn(heard, TELLER)
    for number in range(100, 200):
        book.learn_signed([_address(number)], f"203.0.{number}.1")
    known = {address.peer_id for address in book.addresses()}
    assert {address.peer_id for address in heard} <= known
    assert len(book) == 16 + 16


def test_signed_addresses_of_sought_peers_are_forgotten_last() -> None:
    """Records of islands that the node left give way to those of its islands."""
    book = _book(DialLimits(max_known_peers=16))
    sought = [_address(number) for number in range(1, 3)]
    book.learn_signed(sought, TELLER)
    book.seek({address.peer_id: on({1}) for address in sought})
    for number in range(10, 60):
        book.learn_signed([_address(number)], TELLER)
    assert set(sought) <= set(book.addresses())


def test_signed_addresses_rank_after_first_hand_ones_and_before_unverified_ones() -> None:
    book, kinds = _book(), [_address(1, port) for port in (4001, 4002, 4003)]
    book.learn(kinds, TELLER)
    book.learn_signed(kinds[1:2], TELLER)
    book.learn_first_hand(kinds[:1])
    book.learn_signed(kinds[:1], TELLER)
    for port in range(5000, 5010):
        book.learn([_address(1, port)], TELLER)
    assert book.addresses_of(kinds[0].peer_id)[:2] == (kinds[0], kinds[1])
    assert len(book.addresses_of(kinds[0].peer_id)) == LIMITS.max_addresses_per_peer


def test_bonded_peers_fill_vouched_places_left_by_trusted_ones() -> None:
    vouched = VouchedPeers()
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=4), vouched)
    earned, bonded = ([_address(number) for number in numbers] for numbers in ((1, 2), range(10, 20)))
    book.learn([*earned, *bonded], TELLER)
    ids = [[address.peer_id for address in them] for them in (earned, bonded)]
    vouched.replace(*ids)
    due = book.due((), (), 0.0)
    assert (len(due), set(earned) <= set(due)) == (4, True)
    assert set(book.due(ids[1][:6], (), 0.0)) >= set(earned), "bonded ones that came count for nothing"
    assert len(book.due(ids[1][:6], (), 0.0)) == 4
    assert set(book.due(ids[1][:4], ids[1][:4], 0.0)) == set(earned)
    both = [*ids[0], *ids[1][:2]]
    assert book.due(both, both, 0.0) == ()


def test_bonded_peers_are_dropped_after_unknown_ones() -> None:
    """Bonds can be bought: addresses of bonded peers must not fill the book for ever."""
    vouched = VouchedPeers()
    book = _book(DialLimits(max_known_peers=16), vouched)
    bonded = [_address(number) for number in range(1, 60)]
    vouched.replace((), [address.peer_id for address in bonded])
    book.learn(bonded, TELLER)
    assert len(book) == 8
    for number in range(100, 150):
        book.learn([_address(number)], TELLER)
    assert sum(address in bonded for address in book.addresses()) == 7
    met = [_address(number) for number in range(200, 208)]
    book.learn_first_hand(met)
    assert set(met) <= set(book.addresses())


def test_changing_records_do_not_increase_the_number_of_dialled_members() -> None:
    book = _book(replace(LIMITS, target_peers=0, vouched_peers=0))
    chosen: list[str] = []
    for start in range(1, 200, 10):
        told = [_address(number) for number in range(start, start + 10)]
        book.learn_signed(told, TELLER)
        book.seek({address.peer_id: on({1}) for address in told})
        chosen += [address.peer_id for address in book.due(chosen, chosen, 0.0)]
    assert len(chosen) == LIMITS.sought_on_island
    book.seek({address.peer_id: on({2}) for address in told})
    assert len(book.due(chosen, chosen, 0.0)) == LIMITS.sought_on_island, "they are members of another island"
