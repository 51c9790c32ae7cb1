"""Own groups of the next round, sampled while the present one trains (``learner.overlap``).

They are one step older than groups that are sampled in their own round. They are published in that round; a
node that stops before drops them. If the learner crashes during a step they are lost, and their slots are
answered in the next round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sapo_client.learner.backend import Generation, SamplingAhead
from sapo_client.learner.report import StepReport
from sapo_client.node.training.round_parts import Slot
from sapo_protocol.identifiers import ContentId
from sapo_verification.types import SampledBatch


class Ahead:
    """Slots of the next round.

    Args:
        learner: samples and trains at the same time.
        completions: number of completions of a group.
    """

    def __init__(self, learner: SamplingAhead, completions: int) -> None:
        self._learner = learner
        self._completions = completions
        self._unanswered: list[Slot] = []
        self._answered: list[tuple[Slot, Generation]] = []

    def take_answered(self) -> list[tuple[Slot, Generation]]:
        """Return and remove the groups that were sampled in the last step."""
        taken, self._answered = self._answered, []
        return taken

    def take_unanswered(self) -> list[Slot]:
        """Return and remove the slots whose answers were lost in a crash of the learner."""
        taken, self._unanswered = self._unanswered, []
        return taken

    def lose(self, slots: Sequence[Slot]) -> None:
        """Record slots whose answers were lost in a crash of the learner before they were published."""
        self._unanswered = list(slots)

    async def train(
        self, batch: SampledBatch, handles: Mapping[ContentId, int], posed: Sequence[tuple[Slot, str]]
    ) -> StepReport:
        """Train a step and answer the next round's slots meanwhile.

        Args:
            batch: of this round.
            handles: as for ``Learning.train``.
            posed: slots of the next round with their prompts.

        Raises:
            LearnerCrashed: neither the step nor the answers were completed.
        """
        self._unanswered = [slot for slot, _ in posed]
        report, generations = await self._learner.train_ahead(
            batch, handles, [prompt for _, prompt in posed], completions_per_prompt=self._completions
        )
        self._answered = list(zip(self.take_unanswered(), generations, strict=True))
        return report
