"""The terms that a rollout must obey: those of its epoch, whenever it arrives.

A swarm's ledger announces successors of its terms. Which of them a node knows is a fact of that node: where
it cannot know what is in force, nothing is refused at the forwarder's cost.
"""

from typing import Final

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.rules import Rule


class TermsInForce:
    """The limits and families of a swarm by epoch.

    Attributes:
        known_until: the last epoch whose terms this node knows for certain; None where no ledger can change
            them.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest: Final = manifest
        self.known_until: int | None = None

    def require_known(self, epoch: int) -> None:
        """Raise unless this node knows for certain what is in force in an epoch.

        Raises:
            RemoteProtocolError: ``TERMS_KNOWN``.
        """
        if self.known_until is not None and epoch > self.known_until:
            detail = f"the ledger's announcements were not read for epoch {epoch} yet"
            raise RemoteProtocolError(Rule.TERMS_KNOWN, detail)

    def require_slot(self, epoch: int, slot: int) -> None:
        """Raise unless an epoch has a slot.

        Raises:
            RemoteProtocolError: ``TERMS_KNOWN`` or ``SLOT_QUOTA``.
        """
        self.require_known(epoch)
        if slot >= self._manifest.limits_at(epoch).slots_per_epoch:
            raise RemoteProtocolError(Rule.SLOT_QUOTA, f"slot {slot}")

    def require_assignable(self, rollout: Rollout) -> None:
        """Raise unless a rollout's slot, group and family are allowed in its epoch.

        Raises:
            RemoteProtocolError: ``TERMS_KNOWN``, ``SLOT_QUOTA``, ``MANIFEST_COMPLETIONS`` or
                ``KNOWN_FAMILY``.
        """
        self.require_slot(rollout.epoch, rollout.slot)
        if len(rollout.completions) > self._manifest.limits_at(rollout.epoch).max_completions:
            raise RemoteProtocolError(Rule.MANIFEST_COMPLETIONS, f"{len(rollout.completions)} completions")
        if rollout.family not in self._manifest.families_at(rollout.epoch):
            raise RemoteProtocolError(Rule.KNOWN_FAMILY, f"family {rollout.family}")
