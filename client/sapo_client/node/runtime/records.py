"""The records in force, which determine an epoch's mix of levels in a swarm with ladders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.settlement import first_record
from sapo_protocol.terms.difficulty import Record

FinalRootBefore = Callable[[int], Awaitable[EpochRoot | None]]
"""Returns the root of the last epoch that is final in the last block older than a Unix time, if any."""

Archive = Callable[[ContentId], Record | None]
"""Returns the record in a proposal; None while this node does not hold the proposal."""

_KEPT_EPOCHS: Final = 8
"""Epochs whose records are kept; rollouts of older epochs are no longer admitted."""


class Records:
    """Records by epoch; empty without ladders.

    Args:
        archive: may be set later, before the first call of ``known``.
    """

    def __init__(self, manifest: Manifest, final_root_before: FinalRootBefore, archive: Archive) -> None:
        self._has_ladders = manifest.difficulty is not None
        self._first = first_record(manifest)
        self._final_root_before = final_root_before
        self.archive = archive
        self._roots: dict[int, EpochRoot | None] = {}

    def known(self, epoch: int) -> Record | None:
        """Return the record in force in an epoch, or None if it was not obtained yet."""
        if not self._has_ladders:
            return self._first
        if epoch not in self._roots:
            return None
        root = self._roots[epoch]
        return self._first if root is None else self.archive(ContentId(root.archive_digest))

    async def learn(self, epoch: int, before_seconds: int) -> None:
        """Read from the chain which proposal's record is in force in an epoch.

        Args:
            before_seconds: Unix time; the last block before it is the one of the epoch's beacon.
        """
        if not self._has_ladders or epoch in self._roots:
            return
        self._roots[epoch] = await self._final_root_before(before_seconds)
        for old in [known for known in self._roots if known <= epoch - _KEPT_EPOCHS]:
            del self._roots[old]


async def no_final_root(_timestamp_seconds: int) -> EpochRoot | None:
    """Return None: in a swarm without a chain no epoch is ever final."""
    return None


def no_archive(_proposal: ContentId) -> Record | None:
    """Return None: no proposal is held."""
    return None
