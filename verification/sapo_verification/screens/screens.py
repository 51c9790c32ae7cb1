"""Memory of texts against which new ones are screened (stages 11 and 13); not stored, on purpose.

The memory is useless without its key, and a key that is kept for long could be found out and evaded.
"""

from collections.abc import Mapping

from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_verification.fair_memory import IsNewcomer, nobody
from sapo_verification.screens.answer_forms import MIN_GROUPS, answer_runs, is_odd
from sapo_verification.screens.near_duplicates import NearDuplicates
from sapo_verification.screens.recurring_runs import RecurringRuns
from sapo_verification.screens.step_lengths import DependsLess, StepLengths
from sapo_verification.screens.usual_forms import UsualForms
from sapo_verification.tasks.answers import holds_code
from sapo_verification.tasks.text_policy import group_fault
from sapo_verification.types import AdmittedRollout, VerifiedRollout


class Screens:
    """All screens of the text of rollouts: text policy, near-duplicates, planted phrases.

    Args:
        key: 32 random bytes of this node and this start.
        own: this node's account, which it does not screen.
        is_newcomer: whether an account is not known yet: what it writes displaces nobody else's text.

    Attributes:
        recurring_runs: the screen of stage 13.
        usual_forms: the forms of steps that may be imitated.
        usual_answers: which spellings of answers may be imitated.
        step_lengths: whose steps, and which, are longer than usual.
    """

    def __init__(
        self, manifest: Manifest, key: bytes, own: Account, is_newcomer: IsNewcomer = nobody
    ) -> None:
        self._pays_right = bool(manifest.difficulty)
        self._families = families = manifest.suite.families
        self._own = own
        self.recurring_runs = RecurringRuns(key, is_newcomer)
        self.usual_forms = UsualForms(key, is_newcomer)
        self.usual_answers = UsualForms(
            key, is_newcomer, runs_of=answer_runs, min_groups=MIN_GROUPS, is_odd=is_odd
        )
        self.step_lengths = StepLengths(key, is_newcomer)
        self._duplicates = NearDuplicates(families, key, own, is_newcomer=is_newcomer)

    def note_arrival(self, admitted: AdmittedRollout, now_seconds: float, *, live: bool) -> None:
        """Record when a rollout arrived; ``live`` if it came by gossip, soon after it was sent."""
        self._duplicates.note_arrival(admitted.account, admitted.content_id, now_seconds, live=live)

    def text_fault(self, admitted: AdmittedRollout) -> str | None:
        """Return why a group's text is refused (stage 9), or None."""
        rollout = admitted.rollout
        return group_fault(self._families[rollout.family], rollout.completions)

    def holds_code(self, rollout: VerifiedRollout) -> bool:
        """Whether an answer of a group looks like code for a scorer that evaluates answers."""
        family = self._families[rollout.task.family]
        return any(holds_code(family, each) for each in rollout.admitted.rollout.completions)

    def duplicate_fault(self, rollout: VerifiedRollout) -> str | None:
        """Return why a group counts as copied (stage 11), or None; worthless ones are not examined."""
        is_worth = rollout.is_informative or (self._pays_right and any(rollout.rewards))
        return self._duplicates.examine(rollout) if is_worth else None

    def learn(self, rollout: VerifiedRollout) -> None:
        """Record the text of another account's verified group; call it once for each group."""
        if rollout.account != self._own:
            self.recurring_runs.learn(rollout)
            self.usual_forms.learn(rollout)
            self.usual_answers.learn(rollout)
            self.step_lengths.learn(rollout)

    def accounts(self) -> frozenset[Account]:
        """Return the accounts whose text is remembered."""
        counts = (self.recurring_runs.counts, self.usual_forms.counts, self.usual_answers.counts)
        return self.step_lengths.accounts().union(*(each.accounts() for each in counts))

    def weigh(self, weights: Mapping[Account, float], depends_less: DependsLess) -> None:
        """Let accounts weigh as much when text is compared, in any unit; one without a weight has none.

        Args:
            weights: by account.
            depends_less: see ``StepLengths.weigh``.
        """
        self.recurring_runs.counts.weigh(weights)
        self.usual_forms.weigh(weights)
        self.usual_answers.weigh(weights)
        self.step_lengths.weigh(weights, depends_less)

    def is_usual(self, family: int, prompt: str, completion: bytes) -> bool:
        """Whether most accounts write such steps for such a prompt, and spell answers so."""
        return (
            self.usual_forms.is_usual(family, completion)
            and self.usual_answers.is_usual(family, completion)
            and self.step_lengths.is_usual(family, prompt, completion)
        )

    def holds_planted_phrase(self, rollout: VerifiedRollout) -> bool:
        """Whether a verified group's text is not trained, because its account repeats a phrase (stage 13)."""
        return self.recurring_runs.holds(rollout.account, rollout.task.family)
