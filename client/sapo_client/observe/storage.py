"""Health findings about the disk, the room for others' rollouts, and the installed package."""

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
        dropped: rollouts of this epoch and the one before that were dropped because the space was used up.
        room_mib: the limit for all rollouts kept, MiB.
    """

    dropped: int
    room_mib: int


def assess_disk(disk: DiskFacts) -> Iterator[HealthFinding]:
    """Yield a finding if too little space is left."""
    if disk.free_bytes < disk.reserve_bytes:
        text = (
            f"the disk of {disk.folder} is nearly full: {disk.free_bytes // MIB} MiB are free,"
            f" less than {disk.reserve_bytes // MIB} MiB"
        )
        hint = "free some space: without it no checkpoint can be written"
        yield HealthFinding(FindingCode.DISK_LOW, FindingLevel.ERROR, text, hint)


def assess_storage(storage: StorageFacts) -> Iterator[HealthFinding]:
    """Yield a finding if rollouts were dropped."""
    if storage.dropped:
        text = (
            f"{storage.dropped} rollouts of this epoch and the one before were dropped, because"
            f" {storage.room_mib} MiB is the limit for them"
        )
        hint = (
            "raise verification.kept_rollouts_mib if honest accounts send that much; in a flood the rollouts"
            " of newcomers are dropped first, and nothing needs to be done"
        )
        yield HealthFinding(FindingCode.ROLLOUTS_DROPPED, FindingLevel.WARNING, text, hint)


def assess_package(replaced: str) -> Iterator[HealthFinding]:
    """Yield the finding that another release was installed while the node runs."""
    hint = "restart the node soon: until then a learner that dies is not started again"
    yield HealthFinding(FindingCode.PACKAGE_REPLACED, FindingLevel.WARNING, replaced, hint)
