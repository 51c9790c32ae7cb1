"""Which address records have the places of an island. Pure.

Keys, accounts without a bond and the addresses in a record cost nothing; bonds, earned weight, networks to
connect from and being chosen by a node do. So the places are shared by these:

* Half are kept for accounts that are vouched for, a quarter for records told by peers that the node chose,
  and a quarter for all others, so that newcomers are found.
* Among those that are vouched for each account has a record before one has a second. Among the others each
  network that records came from has one before any has a second, however many records it told.
* What one kind leaves free goes to those of which the owner has fewest, and then in the order of the kinds.
* Ties are decided by a secret of this node: whoever tells more often, earlier or later gains nothing, and
  what one node forgets another one keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from sapo_protocol.identifiers import Account, NodeId

MOST_ON_ISLAND: Final = 16


class Grounds(IntEnum):
    """Why a record is kept, the best grounds first."""

    VOUCHED = 0
    CHOSEN = 1
    CAME = 2


KEPT_PLACES: Final = {Grounds.VOUCHED: 8, Grounds.CHOSEN: 4, Grounds.CAME: 4}
"""Of an island, for records on each of the grounds; they add up to all."""


@dataclass(frozen=True, slots=True)
class PlaceClaim:
    """A record as its place is decided by it.

    Attributes:
        group: the group of networks of the peer that told it.
    """

    node: NodeId
    account: Account
    group: str
    grounds: Grounds


@dataclass(frozen=True, slots=True, order=True)
class _Seated:
    """A record in the order in which records are kept.

    Attributes:
        seat: how many records of the same owner come before it.
        owner: the lot of what costs its owner something.
    """

    seat: int
    grounds: Grounds
    owner: bytes
    node: NodeId


class RecordPlaces:
    """Order of the records of an island, which depends on a secret.

    Args:
        secret: at least 16 bytes that nobody else knows.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def last(self, claims: Iterable[PlaceClaim]) -> NodeId:
        """Return the node whose record is the first to be forgotten.

        Raises:
            ValueError: there are none.
        """
        lines: dict[Grounds, list[PlaceClaim]] = {grounds: [] for grounds in Grounds}
        for claim in claims:
            lines[claim.grounds].append(claim)
        seated = {grounds: self._in_order(line) for grounds, line in lines.items()}
        beyond = [each for grounds, line in seated.items() for each in line[KEPT_PLACES[grounds] :]]
        return max(beyond or [each for line in seated.values() for each in line]).node

    def _in_order(self, line: Iterable[PlaceClaim]) -> list[_Seated]:
        """Return records on the same grounds, those that are kept longest first."""
        seats: Counter[bytes] = Counter()
        ordered: list[_Seated] = []
        for claim in sorted(line, key=lambda each: self._lot(each.node)):
            owner = self._owner(claim)
            ordered.append(_Seated(seats[owner], claim.grounds, owner, claim.node))
            seats[owner] += 1
        return sorted(ordered)

    def _owner(self, claim: PlaceClaim) -> bytes:
        """Return the lot of what costs its owner something: his account if vouched for, else his network."""
        if claim.grounds is Grounds.VOUCHED:
            return self._lot(b"account" + claim.account)
        return self._lot(b"network" + claim.group.encode())

    def _lot(self, what: bytes) -> bytes:
        return blake2b(what, key=self._secret, digest_size=16).digest()
