"""What a node remembers about texts to judge new ones by (stages 11 and 13); lost at its end, on purpose.

A memory that outlived its key would be worth nothing, and one whose key was kept could be aimed at.
"""

from collections.abc import Sequence

from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Family
from sapo_verification.screens.near_duplicates import NearDuplicates
from sapo_verification.screens.phrases import Phrases
from sapo_verification.tasks.text_policy import group_fault
from sapo_verification.types import AdmittedRollout, VerifiedRollout


class Screens:
    """The text of rollouts: its policy, its repetitions, its phrases.

    Args:
        key: 32 random bytes of this node and this start.
        own: this node's account, which it does not screen.
    """

    def __init__(self, families: Sequence[Family], key: bytes, own: Account | None = None) -> None:
        self._families = families
        self._own = own
        self._phrases = Phrases(families, key)
        self._duplicates = NearDuplicates(families, key, own)

    def heard(self, admitted: AdmittedRollout, now_seconds: float, *, live: bool) -> None:
        """Notes when a rollout came; ``live`` if it came by gossip, about when it was sent."""
        self._duplicates.heard(admitted.content_id, now_seconds, live=live)

    def text_fault(self, admitted: AdmittedRollout) -> str | None:
        """Why a group's text goes no further (stage 9), or nothing."""
        rollout = admitted.rollout
        return group_fault(self._families[rollout.family], rollout.completions)

    def duplicate_fault(self, rollout: VerifiedRollout) -> str | None:
        """Why a group is no work of its own (stage 11), or nothing; an uninformative one is not looked at."""
        return self._duplicates.examine(rollout) if rollout.is_informative else None

    def learn(self, rollout: VerifiedRollout) -> None:
        """Counts a verified group's phrases, once."""
        self._phrases.learn(rollout)

    def holds_planted_phrase(self, rollout: VerifiedRollout) -> bool:
        """Whether a verified group is kept out of batches (stage 13)."""
        return rollout.account != self._own and self._phrases.planted(rollout)
