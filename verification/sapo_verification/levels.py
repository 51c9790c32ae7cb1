"""Levels: the families that a slot may have, by the record in force and the slot's random number (lot)."""

from collections.abc import Callable, Sequence
from typing import Final

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.rules import Rule
from sapo_protocol.settlement import first_record
from sapo_protocol.tasks import lot_of
from sapo_protocol.terms.difficulty import Record

BeaconOf = Callable[[int], Digest | None]
"""The beacon of an epoch, or none while it is unknown."""

RecordOf = Callable[[int], Record | None]
"""The record in force in an epoch, or none while it is unknown; asked for only where there are ladders."""


class Levels:
    """The levels of a swarm's slots; without ladders every slot may have every family.

    Args:
        record_of: None in a swarm in which no epoch is ever final.
    """

    def __init__(self, manifest: Manifest, beacon_of: BeaconOf, record_of: RecordOf | None = None) -> None:
        first = first_record(manifest)
        self.swarm_id: Final = manifest.swarm_id
        self._manifest = manifest
        self._beacon_of = beacon_of
        self._record_of: RecordOf = record_of or (lambda _: first)

    def beacon(self, epoch: int) -> Digest:
        """Return the beacon of an epoch.

        Raises:
            RemoteProtocolError: ``BEACON_UNKNOWN``.
        """
        if (beacon := self._beacon_of(epoch)) is None:
            raise RemoteProtocolError(Rule.BEACON_KNOWN, f"the beacon of epoch {epoch} is not known yet")
        return beacon

    def record(self, epoch: int) -> Record | None:
        """Return the record in force in an epoch, or None where there are no ladders.

        Raises:
            RemoteProtocolError: ``BEACON_UNKNOWN``.
        """
        if self._manifest.difficulty is None:
            return None
        if (record := self._record_of(epoch)) is None:
            raise RemoteProtocolError(Rule.BEACON_KNOWN, f"the record before epoch {epoch} is not known yet")
        return record

    def is_known(self, epoch: int) -> bool:
        """Whether the record in force in an epoch is known, or none is needed."""
        return self._manifest.difficulty is None or self._record_of(epoch) is not None

    def families_of(self, epoch: int, account: Account, slot: int) -> Sequence[int]:
        """Return the families that a slot may have, ascending.

        Raises:
            RemoteProtocolError: ``BEACON_UNKNOWN``.
        """
        difficulty, record = self._manifest.difficulty, self.record(epoch)
        if difficulty is None or record is None:
            return self._manifest.families_at(epoch)
        lot = lot_of(self._manifest.swarm_id, self.beacon(epoch), account, slot)
        return difficulty.families_of(record, lot)

    def require_assigned(self, rollout: Rollout) -> None:
        """Raise unless a rollout's family is one that its slot may have.

        Raises:
            RemoteProtocolError: ``BEACON_UNKNOWN`` or ``OFF_LEVEL``; neither is evidence, for nodes may see
                the chain's newest blocks at different times.
        """
        if rollout.family not in self.families_of(rollout.epoch, rollout.account, rollout.slot):
            detail = f"slot {rollout.slot} has another level than family {rollout.family}"
            raise RemoteProtocolError(Rule.ASSIGNED_LEVEL, detail)
