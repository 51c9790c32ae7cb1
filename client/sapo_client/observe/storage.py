"""What a node's health says of its disk, and of others' rollouts there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding

MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """Free space of the data directory's disk."""

    folder: str
    free_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """Others' rollouts on the disk.

    Attributes:
        dropped: rollouts of this epoch and the one before that were dropped for want of room.
        room_mib: MiB for all that are kept.
    """

    dropped: int
    room_mib: int


def assess_disk(disk: DiskFacts) -> Iterator[HealthFinding]:
    """Yield what is wrong with it."""
    if disk.free_bytes < disk.reserve_bytes:
        text = (
            f"the disk of {disk.folder} is nearly full: {disk.free_bytes // MIB} MiB are free,"
            f" less than {disk.reserve_bytes // MIB} MiB"
        )
        hint = "free some space: without it no checkpoint can be written"
        yield HealthFinding(FindingCode.DISK_LOW, FindingLevel.ERROR, text, hint)


def assess_storage(storage: StorageFacts) -> Iterator[HealthFinding]:
    """Yield what is wrong with it."""
    if storage.dropped:
        text = (
            f"{storage.dropped} rollouts of this epoch and the one before were dropped, because"
            f" {storage.room_mib} MiB are all the room for them"
        )
        hint = (
            "raise verification.kept_rollouts_mib if honest accounts send that much; of a flood the rollouts"
            " of newcomers go first, and nothing is to be done"
        )
        yield HealthFinding(FindingCode.ROLLOUTS_DROPPED, FindingLevel.WARNING, text, hint)
