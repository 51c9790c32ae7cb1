"""A successor: the terms of a swarm that follow from an epoch on, announced on its ledger by digest.

It holds what may change and nothing else. Everything that keeps a swarm's past valid (chain, contracts,
clock, pay) has no place in it, so that a successor which changes it cannot be written. See section 2.1 of
``protocol/README.md``.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sapo_protocol.constants import MAX_COMPLETIONS, PROTOCOL_VERSION
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest, SwarmId
from sapo_protocol.suite import Suite

SUCCESSOR_VERSION: Final = 1

NOTICE_EPOCHS: Final = 8
"""Between an announcement and its activation, at least; the ledger's contract has the same."""

SETTLED_NOTICE_EPOCHS: Final = 4
"""Epochs before its activation from which on an announcement cannot be withdrawn."""

MAX_SUCCESSOR_BYTES: Final = 256 * 1024
"""A document with 256 families has some 150 KiB."""


def successor_digest(document: bytes) -> Digest:
    """Return the name under which a document is announced and asked for, whatever it holds.

    It covers the raw bytes, so that a release which cannot parse a document can still verify it.
    """
    return Digest(sha256(f"sapo/{PROTOCOL_VERSION}/successor".encode() + b"\x00" + document).digest())


@dataclass(frozen=True, slots=True)
class Successor:
    """The changed terms of a swarm.

    Attributes:
        lineage: the swarm id, which is the digest of the swarm's first manifest.
        suite: all earlier families at the same indices, then new ones.
        slots_per_epoch: as in ``Limits``.
        max_completions: as in ``Limits``.
        retired: indices of families that are no longer assigned to slots, ascending.
    """

    lineage: SwarmId
    suite: Suite
    slots_per_epoch: int
    max_completions: int
    retired: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.slots_per_epoch < 1 << 64 or not 1 <= self.max_completions <= MAX_COMPLETIONS:
            raise LocalProtocolError("a swarm allows 1 to 2^64 - 1 slots and 1 to 16 completions")
        if tuple(sorted(set(self.retired))) != self.retired:
            raise LocalProtocolError("retired families are named once each, ascending")
        families = len(self.suite.families)
        if any(not 0 <= family < families for family in self.retired):
            raise LocalProtocolError("a retired family is an index into the suite")
        if len(self.retired) == families:
            raise LocalProtocolError("all families are retired: nothing is left to train on")


@dataclass(frozen=True, slots=True)
class Succession:
    """A successor and the first epoch in which it is in force."""

    activation_epoch: int
    successor: Successor
