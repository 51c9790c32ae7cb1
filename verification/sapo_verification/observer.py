"""The seam through which this package is watched; it does nothing unless a node listens."""

from typing import Protocol

from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rules import Rule
from sapo_verification.types import VerifiedRollout


class Observer(Protocol):
    """What verification tells whoever watches."""

    def refused(self, rule: Rule, content_id: ContentId, account: Account, detail: str) -> None:
        """An admitted rollout went no further."""

    def verified(self, rollout: VerifiedRollout) -> None:
        """A rollout was re-derived and re-scored, for the first time."""


class NullObserver:
    """Nobody watches."""

    def refused(self, rule: Rule, content_id: ContentId, account: Account, detail: str) -> None:
        """Nothing."""

    def verified(self, rollout: VerifiedRollout) -> None:
        """Nothing."""
