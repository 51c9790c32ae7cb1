"""Peers that are being dialled count as chosen: a dial takes longer than the interval of the dialler."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.sought import SoughtFor

LIMITS = DialLimits()
ISLAND, ELSEWHERE = 1, 2
TELLER = "203.0.113.1"


def address(number: int) -> PeerAddress:
    return PeerAddress("ip4", f"192.0.2.{number}", 4001, peer_id_from_key(bytes([number]) * 32))


class Dialler:
    """The dialler's loop over a real book: every dial takes as long, and ends as `fails` says.

    Attributes:
        chosen: the peers to which a connection is open.
    """

    def __init__(self, *, members: bool, dial_seconds: float, fails: Collection[int] = ()) -> None:
        self.book = AddressBook(address(255).peer_id, LIMITS, random.Random(3))
        numbers = {address(number).peer_id: number for number in range(1, 121)}
        self.book.learn_signed(map(address, numbers.values()), TELLER)
        if members:
            islands = {peer: ISLAND if number <= 60 else ELSEWHERE for peer, number in numbers.items()}
            self.book.seek({peer: SoughtFor(frozenset({one}), TELLER) for peer, one in islands.items()})
        self._fails = {address(number).peer_id for number in fails}
        self._dial_seconds = dial_seconds
        self._ends: list[tuple[float, PeerAddress]] = []
        self.chosen: list[str] = []
        self.now_seconds = 0.0
        self.dials = 0

    def run(self, seconds: float) -> None:
        """Look in the dialler's interval, as `Discovery` does."""
        until_seconds = self.now_seconds + seconds
        while self.now_seconds < until_seconds:
            for end in [end for end in self._ends if end[0] <= self.now_seconds]:
                self._ends.remove(end)
                self._end(end[1])
            for found in self.book.due(self.chosen, self.chosen, self.now_seconds):
                self.book.dialling(found.peer_id, self.now_seconds)
                self._ends.append((self.now_seconds + self._dial_seconds, found))
                self.dials += 1
            self.now_seconds += LIMITS.tick_seconds

    def _end(self, found: PeerAddress) -> None:
        if found.peer_id in self._fails:
            self.book.failed(found.peer_id, self.now_seconds)
            return
        self.chosen.append(found.peer_id)
        self.book.reached(found.peer_id, self.now_seconds)
        self.book.chose(found, self.now_seconds)


@pytest.mark.parametrize("dial_seconds", [0.1, 0.6, 1.1, 1.9])
@pytest.mark.parametrize("members", [False, True])
def test_no_more_peers_are_chosen_than_wanted_however_long_a_dial_takes(
    dial_seconds: float, members: bool
) -> None:
    dialler = Dialler(members=members, dial_seconds=dial_seconds)
    dialler.run(30.0)
    wanted = LIMITS.usual_beside_sought + LIMITS.sought_peers if members else LIMITS.target_peers
    assert (len(dialler.chosen), dialler.dials) == (wanted, wanted)


def test_addresses_that_never_answer_hold_a_place_for_two_seconds_alone() -> None:
    """All but one address in eight is an attacker's, and a dial to it ends after ten seconds."""
    fails = [number for number in range(1, 121) if number % 8]
    dialler = Dialler(members=True, dial_seconds=LIMITS.dial_timeout_seconds, fails=fails)
    dialler.run(LIMITS.opening_seconds)
    at_once = LIMITS.usual_beside_sought + LIMITS.sought_peers
    assert dialler.dials == at_once
    dialler.run(LIMITS.dial_timeout_seconds - LIMITS.opening_seconds)
    assert dialler.dials == at_once * LIMITS.dial_timeout_seconds / LIMITS.opening_seconds


def test_a_dial_that_failed_frees_its_place_at_once() -> None:
    dialler = Dialler(members=False, dial_seconds=0.1, fails=range(1, 100))
    dialler.run(3 * LIMITS.tick_seconds)
    assert dialler.dials > LIMITS.target_peers


def test_a_lost_peer_that_is_being_dialled_takes_a_place_of_the_lost() -> None:
    """Otherwise as many again would be dialled at the next look."""
    dialler = Dialler(members=False, dial_seconds=0.1)
    dialler.run(2 * LIMITS.lost_after_seconds)
    gone = list(dialler.chosen)
    for peer_id in gone:
        dialler.chosen.remove(peer_id)
        dialler.book.lost(peer_id, dialler.now_seconds)
    others = [address(number).peer_id for number in range(130, 130 + LIMITS.target_peers)]
    later_seconds = dialler.now_seconds + LIMITS.max_backoff_seconds
    due = dialler.book.due(others, others, later_seconds)
    assert len(due) == LIMITS.lost_peers
    assert {each.peer_id for each in due} <= set(gone)
    for each in due:
        dialler.book.dialling(each.peer_id, later_seconds)
    assert dialler.book.due(others, others, later_seconds + LIMITS.tick_seconds) == ()
