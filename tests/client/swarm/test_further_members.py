"""A node dials further members of an island that delivers too little, within limits of number and rate."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from itertools import pairwise

from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.relays import Shortage
from sapo_client.swarm.sought import SoughtFor
from sapo_client.swarm.vouched import VouchedPeers

LIMITS = DialLimits()
ISLAND, ELSEWHERE = 1, 2
TELLER = "198.51.100.1"


def address(number: int) -> PeerAddress:
    """Return the address of a peer by its number."""
    return PeerAddress("ip4", f"192.0.2.{number}", 4001, peer_id_from_key(bytes([number]) * 32))


USUAL = [address(number).peer_id for number in range(200, 200 + LIMITS.target_peers)]
HERE = [address(number).peer_id for number in range(1, 61)]
THERE = [address(number).peer_id for number in range(101, 109)]


class Seeker:
    """An address book that knows 60 members of an island and eight of another, and who is connected."""

    def __init__(
        self, usual: Collection[str] = (), *, vouched: VouchedPeers | None = None, seed: int = 0
    ) -> None:
        self.book = AddressBook(address(255).peer_id, LIMITS, random.Random(seed), vouched)
        self.book.learn_signed(map(address, (*range(1, 61), *range(101, 109))), TELLER)
        self.sought = {
            **{peer: SoughtFor(frozenset({ISLAND}), "198.51.0.0/16") for peer in HERE},
            **{peer: SoughtFor(frozenset({ELSEWHERE}), "198.51.0.0/16") for peer in THERE},
        }
        self.chosen = list(usual)
        self.book.seek(self.sought)
        self.now_seconds = 0.0

    def suffer(self, *, may_replace: bool, idle: Collection[str] | None = None) -> None:
        """Receive too little from the island; the members connected now are idle unless others are given."""
        idle = self.here() if idle is None else idle
        self.book.seek(self.sought, {ISLAND: Shortage(frozenset(idle), may_replace)})

    def tick(self, seconds: float = 0.5) -> str | None:
        """Let the dialler look once, and every dial succeed; return who gave way."""
        leaving = self.book.giving_way(self.chosen, self.chosen, self.now_seconds)
        if leaving is not None:
            self.chosen.remove(leaving)
            self.book.lost(leaving, self.now_seconds)
        for found in self.book.due(self.chosen, self.chosen, self.now_seconds):
            self.chosen.append(found.peer_id)
            self.book.chose(found, self.now_seconds)
        self.now_seconds += seconds
        return leaving

    def here(self) -> list[str]:
        """Return the members of the island that are connected."""
        return [peer for peer in self.chosen if peer in HERE]


def settled(seeker: Seeker) -> Seeker:
    """Return a seeker that has dialled its number of members."""
    for _ in range(4):
        assert seeker.tick() is None
    return seeker


def test_one_further_member_after_the_other_is_dialled_while_usual_peers_are_missing() -> None:
    limits = LIMITS.target_peers - 4
    seeker = settled(Seeker(USUAL[:limits]))
    before = set(seeker.here())
    seeker.suffer(may_replace=False)
    counts = []
    for _ in range(5):
        assert seeker.tick(LIMITS.further_seconds) is None
        counts.append(len(set(seeker.here()) - before))
        seeker.suffer(may_replace=False)
    assert counts == sorted(counts)
    assert counts[-1] <= LIMITS.further_peers
    assert before <= set(seeker.here())
    assert len(seeker.chosen) <= LIMITS.target_peers + LIMITS.sought_peers


def test_with_all_places_in_use_only_idle_members_are_replaced() -> None:
    seeker = settled(Seeker(USUAL))
    useful, *idle = seeker.here()
    assert len(idle) == LIMITS.sought_on_island - 1
    there = [peer for peer in seeker.chosen if peer in THERE]
    left = []
    for _ in range(400):
        seeker.suffer(may_replace=True, idle=idle)
        left.append(seeker.tick(1.0))
    gone = [peer for peer in left if peer is not None]
    assert set(gone) == set(idle)
    assert {useful, *USUAL, *there} <= set(seeker.chosen)
    assert len(seeker.chosen) == LIMITS.target_peers + LIMITS.sought_peers
    assert not set(gone) & set(seeker.chosen), "who gave way is not dialled again so soon"


def test_no_member_is_replaced_while_one_peer_forwards_messages() -> None:
    seeker = settled(Seeker(USUAL))
    before = list(seeker.chosen)
    for _ in range(60):
        seeker.suffer(may_replace=False)
        assert seeker.tick(1.0) is None
    assert seeker.chosen == before


def test_replacements_without_success_become_rarer() -> None:
    """The only publishing node of an island has no relays either."""
    seeker = settled(Seeker(USUAL))
    times = []
    for _ in range(2000):
        seeker.suffer(may_replace=True)
        if seeker.tick(1.0) is not None:
            times.append(seeker.now_seconds)
    pauses = [after - before for before, after in pairwise(times)]
    doubled = [min(LIMITS.further_seconds * 2**number, LIMITS.max_further_seconds) for number in range(20)]
    in_turn = [1.0] * (LIMITS.giving_way - 1)
    assert pauses == [each for pause in doubled for each in (*in_turn, pause)][: len(pauses)]
    assert len(times) >= 12


def test_replaced_and_new_members_are_drawn_at_random() -> None:
    courses = set()
    for seed in range(6):
        seeker = Seeker(USUAL, seed=seed)
        for _ in range(4):
            seeker.tick()
        seeker.suffer(may_replace=True)
        courses.add((seeker.tick(), seeker.here()[-1]))
    assert len(courses) == 6


def test_a_trusted_peer_keeps_its_place_but_a_bond_does_not() -> None:
    vouched = VouchedPeers()
    seeker = settled(Seeker(USUAL, vouched=vouched))
    earned, bonded, *_ = seeker.here()
    vouched.replace([earned], [bonded])
    left = set()
    for _ in range(600):
        seeker.suffer(may_replace=True)
        left.add(seeker.tick(1.0))
    assert earned not in left
    assert earned in seeker.chosen
    assert bonded in left


def test_without_another_member_to_dial_no_member_is_replaced() -> None:
    seeker = settled(Seeker(USUAL))
    seeker.sought = {
        peer: sought for peer, sought in seeker.sought.items() if peer in seeker.chosen or peer in THERE
    }
    for _ in range(60):
        seeker.suffer(may_replace=True)
        assert seeker.tick(1.0) is None


def test_a_replaced_member_is_not_a_lost_peer() -> None:
    seeker = settled(Seeker(USUAL))
    seeker.now_seconds = 2 * LIMITS.lost_after_seconds
    seeker.suffer(may_replace=True)
    leaving = seeker.tick()
    assert leaving is not None
    assert leaving not in seeker.book._lost


def taking_turns(seeker: Seeker, minutes: int) -> list[tuple[float, str]]:
    """Publish on the island for some minutes; return who was replaced, and when."""
    found = []
    for _ in range(minutes * 6):
        seeker.book.seek(seeker.sought, own={ISLAND})
        if (leaving := seeker.tick(10.0)) is not None:
            found.append((seeker.now_seconds, leaving))
    return found


def test_of_an_island_that_the_node_publishes_on_one_place_is_taken_in_turns() -> None:
    """It is one of the other island's, and the eight members stay, of whatever kind the newcomers are."""
    seeker = settled(Seeker(USUAL))
    before = list(seeker.chosen)
    turns = taking_turns(seeker, 210)
    assert [after - before for (before, _), (after, _) in pairwise(turns)] == [LIMITS.turn_seconds] * 9
    first, *left = [peer for _, peer in turns]
    assert first in THERE
    assert len({*left, *HERE}) == len(HERE)
    assert len(set(left)) == 9, "who had a turn comes after those who had none"
    assert [peer for peer in before if peer not in seeker.chosen] == [first]
    assert len(seeker.here()) == LIMITS.sought_on_island + 1
    assert len(seeker.chosen) == len(before)


def test_a_node_that_publishes_nothing_keeps_its_members() -> None:
    seeker = settled(Seeker(USUAL))
    before = list(seeker.chosen)
    for _ in range(2000):
        assert seeker.tick(10.0) is None
    assert seeker.chosen == before


def test_earned_trust_keeps_no_place_that_is_taken_in_turns() -> None:
    """Who forwards everything but one author's messages earns it, too."""
    vouched = VouchedPeers()
    vouched.replace(HERE, ())
    seeker = settled(Seeker(USUAL, vouched=vouched))
    assert len({peer for _, peer in taking_turns(seeker, 110)} & set(HERE)) == 5


def test_nobody_is_replaced_where_nobody_else_is_known() -> None:
    seeker = Seeker(USUAL)
    seeker.sought = {peer: seeker.sought[peer] for peer in HERE[: LIMITS.sought_on_island]}
    seeker.book.seek(seeker.sought)
    settled(seeker)
    assert taking_turns(seeker, 100) == []


def test_an_attacker_with_all_records_gets_the_place_that_is_taken_in_turns_alone() -> None:
    seeker = settled(Seeker(USUAL))
    honest = seeker.here()
    rest = [peer for peer in HERE if peer not in honest]
    seeker.sought = {peer: seeker.sought[peer] for peer in [*rest, *THERE]}
    for _ in range(4):
        taking_turns(seeker, 60)
    assert set(honest) <= set(seeker.here())


def test_a_node_that_carries_many_islands_keeps_a_member_of_each() -> None:
    """Auditors do."""
    seeker = Seeker(USUAL)
    seeker.sought = {
        peer: SoughtFor(frozenset({number % 16}), "198.51.0.0/16") for number, peer in enumerate(HERE)
    }
    seeker.book.seek(seeker.sought, own={0})
    for _ in range(20):
        seeker.tick()
    islands = Counter(HERE.index(peer) % 16 for peer in seeker.here())
    assert len(islands) == 16
