"""Bandwidth and processor time of one auditor, from measured costs.

Three designs: every auditor receives all groups (today); a committee of auditors, drawn by the beacon,
receives each account's groups; every account commits to its groups and auditors pull a sample of them. Pure
arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class AuditCosts:
    """Costs of one group, message or account.

    Attributes:
        group_bytes: size of a group of eight answers in its envelope (docs/scale.md).
        copies: number of received copies of each gossip message (docs/scale-history.md: 2.6 to 3.8).
        delivery_ms: processor time of one delivery by gossip, duplicates and forwarding included
            (docs/adr/swarm-libp2p.md: 1.5 among five nodes, 2.0 among eight).
        admission_ms: decoding and verifying the signature of one message (docs/results.md).
        check_ms: deriving the task and scoring eight answers in the jail (docs/results.md).
        proof_bytes: Merkle proof of a drawn group: at most ten digests, for 1,024 slots, and its frame.
        commitment_bytes: envelope, node, account, epoch, a bit for each of 1,024 slots, and the root.
        entry_bytes: size of one account's entry in a tally.
        tree_ms: time for one account in one points tree (docs/adr/ledger-tree-of-points.md: 1 s for 100,000).
    """

    group_bytes: int = 4_200
    copies: float = 3.5
    delivery_ms: float = 1.75
    admission_ms: float = 0.07
    check_ms: float = 0.68
    proof_bytes: int = 340
    commitment_bytes: int = 350
    entry_bytes: int = 27
    tree_ms: float = 0.01

    @property
    def received_ms(self) -> float:
        """Return the processor time of a group that is received over gossip and checked."""
        return self.delivery_ms + self.admission_ms + self.check_ms

    @property
    def pulled_ms(self) -> float:
        """Return the processor time of a requested group; its transfer costs as much as one delivered copy.

        The transfer cost is an estimate: a pull sends each group once, and many groups in one response.
        """
        return self.delivery_ms / self.copies + self.admission_ms + self.check_ms


@dataclass(frozen=True, slots=True)
class AuditWorld:
    """A swarm with the epochs and rates of docs/scale.md, and the maximum number of auditors.

    Attributes:
        groups_per_second: rate at which an account makes groups.
        max_groups: maximum number of groups that an auditor samples in an epoch, for any size of the swarm.
    """

    epoch_seconds: int = 600
    groups_per_second: float = 0.4
    auditors: int = 64
    max_groups: int = 16_384


@dataclass(frozen=True, slots=True)
class AuditorLoad:
    """Cost of one auditor.

    Attributes:
        bits: received per second.
        processor: share of a core.
    """

    bits: float
    processor: float

    @property
    def is_met(self) -> bool:
        """Return whether it is within 5 Mbit/s and 5 % of a core."""
        return self.bits <= MAX_BITS and self.processor <= MAX_PROCESSOR


MAX_BITS: Final = 5e6
MAX_PROCESSOR: Final = 0.05


def receiving(accounts: float, world: AuditWorld, costs: AuditCosts) -> AuditorLoad:
    """Return the load of an auditor that receives and checks all groups of a number of accounts."""
    groups = accounts * world.groups_per_second
    return AuditorLoad(8 * groups * costs.group_bytes * costs.copies, groups * costs.received_ms / 1e3)


def settling(accounts: float, named: float, world: AuditWorld, costs: AuditCosts) -> AuditorLoad:
    """Return the load of an epoch's settlement, which every design has.

    Args:
        accounts: number of accounts that were ever paid, each in three trees.
        named: number of accounts in each tally.
    """
    bits = 8 * named * costs.entry_bytes * world.auditors / world.epoch_seconds
    return AuditorLoad(bits, 3 * accounts * costs.tree_ms / 1e3 / world.epoch_seconds)


def receiving_all(accounts: int, world: AuditWorld, costs: AuditCosts) -> AuditorLoad:
    """Return the load if every auditor receives everything."""
    return _together(receiving(accounts, world, costs), settling(accounts, accounts, world, costs))


def committee(accounts: int, members: int, world: AuditWorld, costs: AuditCosts) -> AuditorLoad:
    """Return the load if a number of the auditors receive each account's groups."""
    received = accounts * min(members, world.auditors) / world.auditors
    return _together(receiving(received, world, costs), settling(accounts, received, world, costs))


def sampling(accounts: int, samples: int, world: AuditWorld, costs: AuditCosts) -> AuditorLoad:
    """Return the load if auditors pull a number of groups of each drawn account.

    Every commitment is received before the draw, and its signature verified.
    """
    drawn = accounts / lot_size(accounts, samples, world)
    groups = drawn * samples / world.epoch_seconds
    commitments = accounts / world.epoch_seconds
    pulled = AuditorLoad(
        8 * (groups * (costs.group_bytes + costs.proof_bytes) + commitments * costs.commitment_bytes),
        (groups * costs.pulled_ms + commitments * costs.admission_ms) / 1e3,
    )
    return _together(pulled, settling(accounts, drawn, world, costs))


def lot_size(accounts: int, samples: int, world: AuditWorld) -> int:
    """Return D, a power of two: one account in D is drawn, so that samples do not exceed ``max_groups``."""
    return 1 << max(0, math.ceil(math.log2(accounts * samples / world.max_groups)))


def _together(*loads: AuditorLoad) -> AuditorLoad:
    return AuditorLoad(sum(load.bits for load in loads), sum(load.processor for load in loads))
