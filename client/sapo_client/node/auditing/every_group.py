"""The auditor's count in a swarm without audits by sample, in which every group is audited."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from sapo_protocol.identifiers import Account, Digest
from sapo_verification.engine import Engine


class EveryGroup:
    """Points of ended epochs, from all groups that the service ``Audit`` has verified."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> None:
        """Return at once: ``Audit``, which runs in every node, verifies the queued rollouts."""

    def is_known(self, epoch: int) -> bool:
        """Whether the levels by which groups of an epoch are paid are known."""
        return self._engine.levels.is_known(epoch)

    def is_done(self, epoch: int) -> bool:
        """Whether all admitted rollouts of an epoch are verified."""
        return not self._engine.audits.unaudited(epoch)

    def points(
        self, epoch: int, live: Collection[Account], units: Mapping[Account, Fraction] | None, /
    ) -> tuple[tuple[Account, int], ...]:
        """Return the points of every registered account that has any, ascending by account."""
        count, record = self._engine.count, self._engine.levels.record(epoch)
        cap = self._engine.manifest.limits.points_per_epoch
        if record is None:
            return count.points(epoch, live, cap, units)
        return count.points_by_level(epoch, live, cap, record, units)

    def evidence_root(self, epoch: int) -> Digest:
        """Return the Merkle root over the ascending content ids of the paid groups."""
        return self._engine.count.evidence_root(epoch)
