"""Types of increasing trust: one for each step of checking, built by exactly one function each.

===================  ====================================  =============================
type                 what has been checked                 the only builder
===================  ====================================  =============================
``SignedEnvelope``   well formed, this swarm               ``sapo_protocol.envelope``
``AdmittedRollout``  stages 1 to 7: authentic, in time     ``Admission.admit``
``VerifiedRollout``  9 to 11: re-derived and re-scored     ``Verifier.verify``
``PractisedGroup``   own answers to another's task         ``Engine.practise``
``PrivateGroup``     own answers that nobody is sent       ``Engine.answer_privately``
``SampledBatch``     drawn under weights and caps          ``Sampler.assemble``
===================  ====================================  =============================

There is no flag ``verified``: a function that needs a checked rollout takes the type as its argument.
"""

from dataclasses import dataclass

from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rollout import Rollout
from sapo_protocol.tasks import Task

Pair = tuple[Account, int]
"""Account and index of a family."""


class Scored:
    """Answers that were scored here.

    Attributes:
        rewards: one per completion, 0.0 or 1.0.
    """

    __slots__ = ()
    rewards: tuple[float, ...]

    @property
    def mean_reward(self) -> float:
        """The share of completions that are right."""
        return sum(self.rewards) / len(self.rewards)

    @property
    def is_informative(self) -> bool:
        """Whether the rewards differ; where all are equal, every advantage is 0 and so is the gradient."""
        return len(set(self.rewards)) > 1


@dataclass(frozen=True, slots=True)
class AdmittedRollout:
    """A rollout whose author, epoch and slot are genuine; its answers are not yet scored.

    Its message is kept in the envelope store only, since thousands of rollouts wait at a time.
    """

    content_id: ContentId
    rollout: Rollout

    @property
    def account(self) -> Account:
        """The author's account."""
        return self.rollout.account


@dataclass(frozen=True, slots=True)
class VerifiedRollout(Scored):
    """A rollout with what this node derived for it.

    Attributes:
        task: re-derived from beacon, account, family and slot.
        prompt: re-derived from the task.
        rewards: one per completion, 0.0 or 1.0, scored here.
    """

    admitted: AdmittedRollout
    task: Task
    prompt: str
    rewards: tuple[float, ...]

    @property
    def content_id(self) -> ContentId:
        """The id of the signed content."""
        return self.admitted.content_id

    @property
    def account(self) -> Account:
        """The author's account."""
        return self.admitted.account

    @property
    def completions(self) -> tuple[bytes, ...]:
        """The author's completions."""
        return self.admitted.rollout.completions

    @property
    def right(self) -> tuple[bytes, ...]:
        """The completions that are right."""
        scored = zip(self.completions, self.rewards, strict=True)
        return tuple(completion for completion, reward in scored if reward == 1.0)


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """One group of a training batch and where it came from."""

    rollout: VerifiedRollout
    external: bool


@dataclass(frozen=True, slots=True)
class PractisedGroup(Scored):
    """This node's own answers to the task of another account's rollout; they are not published.

    Attributes:
        hint: the rollout whose task was answered; nothing of its text is trained.
        completions: of the own policy.
        rewards: one per completion, 0.0 or 1.0, scored here.
    """

    hint: VerifiedRollout
    completions: tuple[bytes, ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PrivateGroup(Scored):
    """This node's own answers to a task that fills no slot: neither signed nor published, and never paid.

    Attributes:
        prompt: of the task.
        rewards: one per completion, 0.0 or 1.0, scored here.
        handle: identifies the sampled tokens inside the learner process.
    """

    task: Task
    prompt: str
    completions: tuple[bytes, ...]
    rewards: tuple[float, ...]
    handle: int


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A right answer that the own policy did not write and may imitate.

    Attributes:
        task: the answered task.
        prompt: of the task.
        completion: UTF-8.
        source: the verified rollout that holds it; None if no account wrote it, as in control experiments.
    """

    task: Task
    prompt: str
    completion: bytes
    source: VerifiedRollout | None

    @property
    def family(self) -> int:
        """The task's family as an index of the suite."""
        return self.task.family

    @property
    def account(self) -> Account:
        """The author's account; the zero account if no account wrote it."""
        return Account(bytes(Account.SIZE)) if self.source is None else self.source.account

    @property
    def has_steps(self) -> bool:
        """Whether there is text before the answer."""
        steps, opened, _ = self.completion.partition(b"<answer>")
        return bool(steps and opened)

    @property
    def answer(self) -> bytes:
        """The answer without its steps: the text between the tags, or all of it."""
        _, opened, rest = self.completion.partition(b"<answer>")
        return rest.partition(b"</answer>")[0] if opened else self.completion


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """A right answer that the own policy wrote, to be rehearsed beside demonstrations.

    Attributes:
        prompt: of the task.
        completion: UTF-8.
        family: the task's family as an index of the suite.
    """

    prompt: str
    completion: bytes
    family: int


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """The input of one training step.

    Attributes:
        groups: own groups, and groups of others whose text enters the policy gradient (I and J of the paper).
        practised: own answers to tasks of others.
        demonstrations: right answers of others.
        judged: right answers, of others and own ones, whose steps are judged but not trained.
        rehearsed: own right answers to further tasks.
        forgotten: pairs of account and family whose earlier demonstrations must not be trained any more.
        private: own answers to tasks that fill no slot.
    """

    groups: tuple[SampledGroup, ...]
    practised: tuple[PractisedGroup, ...] = ()
    demonstrations: tuple[Demonstration, ...] = ()
    judged: tuple[Demonstration, ...] = ()
    rehearsed: tuple[OwnAnswer, ...] = ()
    forgotten: frozenset[Pair] = frozenset()
    private: tuple[PrivateGroup, ...] = ()

    @property
    def external(self) -> tuple[VerifiedRollout, ...]:
        """The external rollouts of the batch."""
        return tuple(group.rollout for group in self.groups if group.external)

    @property
    def local(self) -> tuple[VerifiedRollout, ...]:
        """The node's own rollouts of the batch."""
        return tuple(group.rollout for group in self.groups if not group.external)
