"""Attackers that forward all rollouts but one author's, and never leave: how long nobody hears that author.

The author has a real address book and is behind a router, so only peers that it dials hear it. It knows the
address records of sixteen members of its island, as a real node does, and peers of other islands. It begins
with attackers alone, since no honest member is up in the first minutes. Then these leave and return as in
`sapo lab simulate`; attackers stay, so they keep each place that they get.
With one honest member everything is heard (`tests/client/swarm/simulated/test_selective_relays.py`), and what
it missed of this epoch and the last one it fetches (`node/gossip/catch_up.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import sha256

from sapo_client.node.gossip.record_places import MAX_ON_ISLAND
from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.sought import SoughtFor

HOME = 3
EPOCH_SECONDS = 7200
EPOCHS = 6
TICK_SECONDS = 60
LEAVING_SHARE = 0.2
AWAY_SECONDS = EPOCH_SECONDS // 4
FIRST_MINUTES = 300
OF_OTHER_ISLANDS = 40


def address(name: str) -> PeerAddress:
    digest = sha256(name.encode()).digest()
    host = f"{digest[0] | 1}.{digest[1]}.{digest[2]}.{digest[3]}"
    return PeerAddress("ip4", host, 4001, peer_id_from_key(digest))


@dataclass
class Heard:
    """What came of an author's rollouts in one stay on an island.

    Attributes:
        alone_seconds: time without an honest member.
        longest_seconds: the longest such time.
        lost_seconds: time of which no honest member could fetch the rollouts in this epoch or the next one.
    """

    alone_seconds: int = 0
    longest_seconds: int = 0
    lost_seconds: int = 0


class WithheldAuthor:
    """One author for one stay on an island.

    Args:
        attackers: number of them among the sixteen members whose records it has, at least eight.
        publishes: whether the book knows that the author publishes there.
    """

    def __init__(self, seed: int, attackers: int, *, publishes: bool) -> None:
        self.rng = random.Random(f"{seed}/{attackers}")
        names = [address(f"{seed} member {number}") for number in range(MAX_ON_ISLAND)]
        others = [address(f"{seed} other {number}") for number in range(OF_OTHER_ISLANDS)]
        self.addresses = {each.peer_id: each for each in (*names, *others)}
        self.honest = {each.peer_id for each in names[attackers:]}
        self.book = AddressBook("author", DialLimits(), self.rng)
        self.book.learn_signed(names, "192.0.2.1")
        self.book.learn_first_hand(others)
        self.sought = {each.peer_id: SoughtFor(frozenset({HOME}), each.network) for each in names}
        self.own = frozenset({HOME} if publishes else ())
        self.away = self._absences()
        self.chosen: set[str] = set()
        self.last_heard = -TICK_SECONDS
        self.unheard: list[int] = []

    def _absences(self) -> dict[str, list[int]]:
        """Return when each honest member leaves."""
        starts: dict[str, list[int]] = {each: [FIRST_MINUTES - AWAY_SECONDS] for each in sorted(self.honest)}
        for epoch in range(EPOCHS):
            for begins in starts.values():
                if self.rng.random() < LEAVING_SHARE:
                    begins.append(epoch * EPOCH_SECONDS + self.rng.randrange(EPOCH_SECONDS))
        return starts

    def _is_up(self, peer_id: str, now: int) -> bool:
        return not any(begin <= now < begin + AWAY_SECONDS for begin in self.away.get(peer_id, ()))

    def run(self) -> Heard:
        heard = Heard()
        for now in range(0, EPOCHS * EPOCH_SECONDS, TICK_SECONDS):
            self._tick(now)
            if self.chosen & self.honest:
                self.last_heard = now
                self.unheard.clear()
                continue
            heard.alone_seconds += TICK_SECONDS
            heard.longest_seconds = max(heard.longest_seconds, now - self.last_heard)
            self.unheard.append(now)
            while self.unheard and now // EPOCH_SECONDS - self.unheard[0] // EPOCH_SECONDS > 1:
                self.unheard.pop(0)
                heard.lost_seconds += TICK_SECONDS
        return heard

    def _tick(self, now: int) -> None:
        for peer_id in [each for each in sorted(self.chosen) if not self._is_up(each, now)]:
            self.chosen.remove(peer_id)
            self.book.lost(peer_id, now)
        self.book.seek(self.sought, own=self.own)
        leaving = self.book.giving_way(self.chosen, sorted(self.chosen), now)
        if leaving is not None:
            self.chosen.remove(leaving)
            self.book.lost(leaving, now)
        for to in self.book.due(self.chosen, sorted(self.chosen), now):
            self.book.dialling(to.peer_id, now)
            if self._is_up(to.peer_id, now):
                self.chosen.add(to.peer_id)
                self.book.reached(to.peer_id, now)
                self.book.chose(to, now)
            else:
                self.book.failed(to.peer_id, now)


def stays(attackers: int, number: int, *, publishes: bool) -> list[Heard]:
    """Return what was heard of some authors in one stay each."""
    return [WithheldAuthor(seed, attackers, publishes=publishes).run() for seed in range(number)]


def test_an_author_among_attackers_is_heard_within_two_epochs() -> None:
    found = stays(12, 6, publishes=True)
    assert [one.lost_seconds for one in found] == [0] * 6
    assert max(one.longest_seconds for one in found) < 2 * EPOCH_SECONDS


def main() -> None:
    """Print the figures of the decision's page."""
    for attackers in (8, 12, 15):
        for publishes in (False, True):
            found = stays(attackers, 30, publishes=publishes)
            total = EPOCHS * EPOCH_SECONDS * len(found)
            first = sorted(one.longest_seconds / 3600 for one in found)
            print(
                f"{attackers} of {MAX_ON_ISLAND}, turns {publishes}:"
                f" alone {sum(one.alone_seconds for one in found) / total:.1%} of the time,"
                f" longest: half {first[len(first) // 2]:.2f} h, all {first[-1]:.2f} h,"
                f" lost {sum(one.lost_seconds for one in found) / total:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
