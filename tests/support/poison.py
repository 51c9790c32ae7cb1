"""Poison that passes every check: the items that fall to an author, those with one certain answer alone.

The author is genuine, answers every chosen item rightly, and its groups have spread. But whoever learns from
them learns that the answer is always the same, for what it is asked about is never anything else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from support.swarm import EPOCH, Identity, moment
from support.verification_harness import VerificationHarness

from sapo_verification.types import AdmittedRollout


@dataclass
class OneAnswer:
    """An author who shows the items of one family whose answer is always the same.

    Attributes:
        answer: the only one that is ever right in its groups.
        wrong: what stands beside it.
    """

    harness: VerificationHarness
    author: Identity
    answer: bytes
    wrong: tuple[bytes, ...]
    family: int = 0
    _slots: Iterator[int] = field(default_factory=count)

    def rollouts(self, number: int) -> list[AdmittedRollout]:
        """Return the next groups, signed, sent and admitted as anybody's."""
        return [self._rollout(self._next_slot()) for _ in range(number)]

    def _next_slot(self) -> int:
        return next(
            slot
            for slot in self._slots
            if self.harness.solution(self.author.account, slot, self.family) == self.answer
        )

    def _rollout(self, slot: int) -> AdmittedRollout:
        completions = (self.answer, *self.wrong)
        message = self.author.message(
            self.harness.manifest, epoch=EPOCH, slot=slot, family=self.family, completions=completions
        )
        return self.harness.engine.admit_own(message, moment(self.harness.manifest))
