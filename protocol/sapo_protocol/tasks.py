"""Derivation of the task of a slot.

The beacon enters every task's seed together with the account and the slot: answers cannot be
prepared before the epoch begins, items cannot be chosen, and a copied answer fits no other slot.
"""

from dataclasses import dataclass

from sapo_protocol.constants import SEED_BITS
from sapo_protocol.epochs import tagged_digest
from sapo_protocol.identifiers import Account, Digest, SwarmId


@dataclass(frozen=True, slots=True)
class Task:
    """One item of a family: a family's index in the suite and its generator's seed (item index 0)."""

    family: int
    seed: int


def assigned_task(swarm_id: SwarmId, beacon: Digest, account: Account, family: int, slot: int) -> Task:
    """Return the task that an account's slot holds in a family, the same for all keys of the account."""
    place = family.to_bytes(2, "big") + slot.to_bytes(4, "big")
    digest = tagged_digest("seed", swarm_id, beacon, account, place)
    return Task(family, int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS))


def lot_of(swarm_id: SwarmId, beacon: Digest, account: Account, slot: int) -> int:
    """Return a slot's lot, a number of 32 bits: which level of every ladder its task may be of."""
    digest = tagged_digest("lot", swarm_id, beacon, account, slot.to_bytes(4, "big"))
    return int.from_bytes(digest[:4], "big")
