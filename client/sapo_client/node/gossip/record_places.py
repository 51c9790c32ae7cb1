"""Selection of the address records that are kept of an island (eclipse resistance). No I/O.

Keys, accounts without a bond and the addresses in a record cost an attacker nothing; bonds, earned weight,
addresses in many networks and being dialled by a node are costly. So the places are shared by these:

* Half are reserved for accounts that are vouched for, a quarter for records from peers that the node chose,
and a quarter for all others, so that newcomers are found. * Among vouched accounts, each account gets one
record before any gets a second. Among the others, each network that sent records gets one before any gets a
second, however many it sent. * Places that one kind leaves free go to records whose owner has fewest, then in
the order of the kinds. * Ties are decided by a keyed hash with a secret of this node: sending more often,
earlier or later gains nothing, and different nodes keep different records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from sapo_protocol.identifiers import Account, NodeId

MAX_ON_ISLAND: Final = 16


class Grounds(IntEnum):
    """The reason for keeping a record, the best first: vouched account, chosen peer, or any other peer."""

    VOUCHED = 0
    CHOSEN = 1
    CAME = 2


KEPT_PLACES: Final = {Grounds.VOUCHED: 8, Grounds.CHOSEN: 4, Grounds.CAME: 4}
"""Reserved places of an island by grounds; they add up to ``MAX_ON_ISLAND``."""


@dataclass(frozen=True, slots=True)
class PlaceClaim:
    """The properties of a record that decide whether it is kept.

    Attributes:
        group: the group of networks of the peer to which it is attributed.
    """

    node: NodeId
    account: Account
    group: str
    grounds: Grounds


@dataclass(frozen=True, slots=True, order=True)
class _Seated:
    """Sort key of a record: smaller ones are kept.

    Attributes:
        seat: number of records of the same owner before it.
        owner: keyed hash of the owner, see ``_owner``.
    """

    seat: int
    grounds: Grounds
    owner: bytes
    node: NodeId


class RecordPlaces:
    """The order in which the records of an island are dropped, which depends on a secret.

    Args:
        secret: at least 16 random bytes that no other node knows.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def last(self, claims: Iterable[PlaceClaim]) -> NodeId:
        """Return the node whose record is dropped first.

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
        """Return records with the same grounds, in the order in which they are kept."""
        seats: Counter[bytes] = Counter()
        ordered: list[_Seated] = []
        for claim in sorted(line, key=lambda each: self._lot(each.node)):
            owner = self._owner(claim)
            ordered.append(_Seated(seats[owner], claim.grounds, owner, claim.node))
            seats[owner] += 1
        return sorted(ordered)

    def _owner(self, claim: PlaceClaim) -> bytes:
        """Return the keyed hash of a record's owner: the account if vouched for, else the sender's
        network."""
        if claim.grounds is Grounds.VOUCHED:
            return self._lot(b"account" + claim.account)
        return self._lot(b"network" + claim.group.encode())

    def _lot(self, what: bytes) -> bytes:
        return blake2b(what, key=self._secret, digest_size=16).digest()
