"""Poison that passes every check: only those of an author's items that have one certain answer.

The author is genuine, answers every chosen item correctly, and its groups have an advantage. But a policy
that is trained on them learns to give the same answer always, because the groups contain no other right
answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from support.swarm import EPOCH, Identity, moment
from support.verification_harness import VerificationHarness

from sapo_verification.types import AdmittedRollout


@dataclass
class OneAnswer:
    """An author that publishes only items of one family with the same answer.

    Attributes:
        answer: the right answer of all its groups.
        wrong: the other completions.
    """

    harness: VerificationHarness
    author: Identity
    answer: bytes
    wrong: tuple[bytes, ...]
    family: int = 0
    _slots: Iterator[int] = field(default_factory=count)

    def rollouts(self, number: int) -> list[AdmittedRollout]:
        """Return the next groups, signed, and admitted like those of any author."""
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
