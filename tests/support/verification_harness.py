"""Harness of one node's engine with a real suite; answers are scored in this process, without the jail."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
from support.swarm import EPOCH, Identity, make_manifest, moment

from sapo_protocol.epochs import beacon
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task, assigned_task
from sapo_protocol.topics import certificates_topic, rollouts_topic
from sapo_verification.admission.arrivals import Received
from sapo_verification.engine import Engine
from sapo_verification.jail.messages import Checked
from sapo_verification.observer import Observer
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, Reputation
from sapo_verification.sampling.audit_queue import MAX_WAITING
from sapo_verification.sampling.engine_terms import Terms
from sapo_verification.sampling.pool import Pool, PoolLimits
from sapo_verification.sampling.sampler import Sampler, SamplingPolicy
from sapo_verification.store import KEPT_BYTES
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.scorers import score
from sapo_verification.types import AdmittedRollout, VerifiedRollout
from sapo_verification.verifier import Check, CheckResult

WRONG = b"no answer"
BYSTANDER: Final = Identity(999)


@dataclass
class RecordingObserver(Observer):
    """Observer that records refusals and results."""

    refusals: list[tuple[Reason, ContentId, Account]] = field(default_factory=list)
    rollouts: list[VerifiedRollout] = field(default_factory=list)

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """Record a refusal."""
        self.refusals.append((rule.reason, admitted.content_id, admitted.account))

    def verified(self, rollout: VerifiedRollout) -> None:
        """Record a result."""
        self.rollouts.append(rollout)


@dataclass
class VerificationHarness:
    """One node's engine that knows every identity's certificate.

    Attributes:
        own: the node's account; by default of an identity that sends nothing.
    """

    identities: tuple[Identity, ...]
    manifest: Manifest = field(default_factory=make_manifest)
    policy: SamplingPolicy = field(default_factory=SamplingPolicy)
    limits: PoolLimits = field(default_factory=PoolLimits)
    database: Path | str = ":memory:"
    check: Check | None = None
    record: RecordingObserver = field(default_factory=RecordingObserver)
    own: Account = BYSTANDER.account
    knows_beacons: bool = True
    audits_waiting: int = MAX_WAITING
    audit_share: float = 1.0
    kept_bytes: int = KEPT_BYTES

    def __post_init__(self) -> None:
        self.engine = Engine(
            self.manifest,
            self.database,
            own=self.own,
            check=self._check,
            beacon_of=self._known_beacon,
            key=b"key",
            terms=Terms(
                sampling=self.policy,
                pool=self.limits,
                audit_share=self.audit_share,
                audits_waiting=self.audits_waiting,
                kept_bytes=self.kept_bytes,
            ),
            observers=[self.record],
        )
        topic = certificates_topic(self.manifest.swarm_id)
        for identity in self.identities:
            message = identity.certificate(self.manifest).to_bytes()
            self.engine.receive(topic, message, moment(self.manifest))

    @property
    def pool(self) -> Pool:
        """The engine's pool."""
        return self.engine.pool

    @property
    def reputation(self) -> Reputation:
        """The engine's reputation."""
        return self.engine.reputation

    @property
    def sampler(self) -> Sampler:
        """The engine's sampler."""
        return self.engine.sampler

    def beacon_of(self, epoch: int) -> Digest:
        """Return the beacon of a swarm without a chain."""
        return beacon(self.manifest.swarm_id, epoch, b"")

    def _known_beacon(self, epoch: int) -> Digest | None:
        return self.beacon_of(epoch) if self.knows_beacons else None

    async def _check(self, task: Task, completions: Sequence[bytes]) -> CheckResult:
        return await (self.check or self.score)(task, completions)

    async def score(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Return the prompt and rewards of a task."""
        return await score_in_process(self.manifest)(task, completions)

    def hold_checks_until(self, begun: int) -> None:
        """Let no check end before a number of them have begun."""
        waiting: list[Task] = []
        are_enough = trio.Event()

        async def check(task: Task, completions: Sequence[bytes]) -> Checked:
            waiting.append(task)
            if len(waiting) == begun:
                are_enough.set()
            await are_enough.wait()
            return await self.score(task, completions)

        self.check = check

    def solution(self, account: Account, slot: int, family: int = 0, epoch: int = EPOCH) -> bytes:
        """Return an answer that earns 1.0 in a slot."""
        from sapo_verification.tasks.generators import derive, solution

        chosen = self.manifest.suite.families[family]
        task = assigned_task(
            self.manifest.swarm_id, self.beacon_of(epoch), account=account, family=family, slot=slot
        )
        answer = solution(chosen, derive(chosen, task.seed))
        assert answer is not None
        return answer.encode()

    def message(
        self, author: Identity, slot: int, *, right: int = 1, wrong: int = 1, epoch: int = EPOCH
    ) -> bytes:
        """Return a sealed group of right and wrong answers of an author."""
        answers = (self.solution(author.account, slot, epoch=epoch),) * right + (WRONG,) * wrong
        return author.message(self.manifest, slot=slot, epoch=epoch, completions=answers)

    def receive(self, author: Identity, slot: int, **group: int) -> Received:
        """Let the engine receive such a group by gossip."""
        epoch = group.get("epoch", EPOCH)
        topic = rollouts_topic(self.manifest.swarm_id)
        return self.engine.receive(topic, self.message(author, slot, **group), moment(self.manifest, epoch))

    def admit(self, author: Identity, slot: int, **group: int) -> AdmittedRollout:
        """Admit such a group without offering it to the pool."""
        message = self.message(author, slot, **group)
        return self.engine.admit_own(message, moment(self.manifest, group.get("epoch", EPOCH)))

    def trust(self, *authors: Identity, epoch: int = EPOCH) -> None:
        """Record twice the audits that a weight takes for every author."""
        for author in authors:
            for _ in range(2 * AUDITS_BEFORE_WEIGHT):
                self.reputation.record_good(author.account, 0, epoch)


def score_in_process(manifest: Manifest) -> Callable[[Task, Sequence[bytes]], Awaitable[Checked]]:
    """Return the real checker without its jail: it derives items and scores answers in this process."""

    async def check(task: Task, completions: Sequence[bytes]) -> Checked:
        from sapo_verification.tasks.generators import derive

        family = manifest.suite.families[task.family]
        item = derive(family, task.seed)
        rewards = (score(family, extract(family, completion), item.entry) for completion in completions)
        return Checked(item.prompt, tuple(rewards))

    return check
