"""One node's verification, whole: admission, pool, reputation, verifier and sampler over a real suite.

The checker is the real one without its jail: it derives items and scores answers in this process.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from support.swarm import EPOCH, Identity, make_book, make_manifest, moment

from sapo_protocol.epochs import beacon
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.admission.rollouts import Admission
from sapo_verification.jail.messages import Checked
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, Reputation
from sapo_verification.sampling.pool import Pool, PoolLimits
from sapo_verification.sampling.sampler import Sampler, SamplingPolicy
from sapo_verification.screens.screens import Screens
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.scorers import score
from sapo_verification.types import AdmittedRollout, VerifiedRollout
from sapo_verification.verifier import Verifier

Check = Callable[[Task, Sequence[bytes]], Awaitable[Checked]]
WRONG = b"no answer"


@dataclass
class Witness:
    """An observer that writes down what it is told."""

    refusals: list[tuple[Reason, ContentId, Account]] = field(default_factory=list)
    rollouts: list[VerifiedRollout] = field(default_factory=list)

    def refused(self, rule: Rule, content_id: ContentId, account: Account, detail: str) -> None:
        """Written down."""
        self.refusals.append((rule.reason, content_id, account))

    def verified(self, rollout: VerifiedRollout) -> None:
        """Written down."""
        self.rollouts.append(rollout)


@dataclass
class VerificationHarness:
    """The parts of one node, wired as a node wires them."""

    identities: tuple[Identity, ...]
    manifest: Manifest = field(default_factory=make_manifest)
    policy: SamplingPolicy = field(default_factory=SamplingPolicy)
    limits: PoolLimits = field(default_factory=PoolLimits)
    pool_path: Path | str = ":memory:"
    check: Check | None = None
    witness: Witness = field(default_factory=Witness)
    reputation: Reputation = field(default_factory=Reputation)

    @cached_property
    def admission(self) -> Admission:
        """The gate; it knows every identity's certificate."""
        return Admission(self.manifest, make_book(self.manifest, *self.identities))

    @cached_property
    def pool(self) -> Pool:
        """The pool."""
        return Pool(self.pool_path, self.limits, self.reputation)

    @cached_property
    def verifier(self) -> Verifier:
        """The verifier."""
        return Verifier(
            self.manifest.swarm_id, self.check or self.score, self.beacon_of, self.reputation, self.witness,
            self.screens,
        )  # fmt: skip

    @cached_property
    def screens(self) -> Screens:
        """What is remembered of texts."""
        return Screens(self.manifest.suite.families, b"key")

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler."""
        return Sampler(self.pool, self.reputation, self.verifier, self.policy)

    def beacon_of(self, epoch: int) -> Digest:
        """The beacon of a swarm without a chain."""
        return beacon(self.manifest.swarm_id, epoch, b"")

    async def score(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """The prompt and rewards of a task."""
        from sapo_verification.tasks.generators import derive

        family = self.manifest.suite.families[task.family]
        item = derive(family, task.seed)
        rewards = (score(family, extract(family, completion), item.entry) for completion in completions)
        return Checked(item.prompt, tuple(rewards))

    def solution(self, account: Account, slot: int, family: int = 0, epoch: int = EPOCH) -> bytes:
        """An answer that earns 1.0 in a slot."""
        from sapo_verification.tasks.generators import derive, solution

        chosen = self.manifest.suite.families[family]
        task = assigned_task(self.manifest.swarm_id, self.beacon_of(epoch), account, family, slot)
        answer = solution(chosen, derive(chosen, task.seed))
        assert answer is not None
        return answer.encode()

    def hear(
        self, author: Identity, slot: int, *, right: int = 1, wrong: int = 1, epoch: int = EPOCH
    ) -> AdmittedRollout:
        """A group of right and wrong answers of an author, sealed, sent and admitted."""
        answers = (self.solution(author.account, slot, epoch=epoch),) * right + (WRONG,) * wrong
        message = author.message(self.manifest, slot=slot, epoch=epoch, completions=answers)
        return self.admission.judge(message, moment(self.manifest, epoch))

    def trust(self, *authors: Identity, epoch: int = EPOCH) -> None:
        """Lets every author have stood up to twice the audits that a weight takes."""
        for author in authors:
            for _ in range(2 * AUDITS_BEFORE_WEIGHT):
                self.reputation.record_good(author.account, 0, epoch)
