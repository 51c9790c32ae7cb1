"""A swarm in one process, deterministic: real pool, reputation, verifier and sampler.

Different from a node are the answers, which are looked up in a table instead of being generated and scored
by ReasoningGYM; the time, which is a counter; and, without `sealed`, admission: rollouts are then created
as admitted ones, because signing and checking each would take most of the time.
One observing node receives all rollouts, audits a share of them, and draws its batches; a simulation
measures what it draws.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import cycle
from typing import Final

from support.swarm import EPOCH, Identity, make_chain_manifest, make_manifest, moment
from support.verification_harness import VerificationHarness

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Limits
from sapo_protocol.rollout import Rollout
from sapo_protocol.tasks import Task
from sapo_protocol.terms.gate import BondGate
from sapo_verification.admission.certificates import MAX_NODES_PER_ACCOUNT
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.jail.messages import Checked
from sapo_verification.sampling.pool import PoolLimits
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.types import AdmittedRollout
from sapo_verification.verifier import Check, CheckResult

Group = tuple[bytes, ...]
Behaviour = Callable[[int], Sequence[Group]]
"""The groups that an author sends in an epoch."""

RIGHT, WRONG, HANGS = b"right", b"wrong", b"hangs"
GOOD: Final[Group] = (RIGHT, WRONG)
BAD: Final[Group] = (HANGS, WRONG)

SLOTS: Final = 4096
"""More than any author here fills in an epoch, floods included."""

LIMITS: Final = Limits(SLOTS, max_completions=8, points_per_epoch=16)
GATED: Final = make_chain_manifest(
    version=2, limits=LIMITS, gate=BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32)
)

AUDIT_SHARE: Final = 0.25
"""The default of `verification.audit_share`."""

ROUNDS_PER_EPOCH: Final = 8

SEALED_PER_EPOCH: Final = 100
"""Groups that an author with many keys sends in an epoch; the next epoch continues with the next keys."""


async def table_check(task: Task, completions: Sequence[bytes]) -> Checked:
    """Check completions by the table; raise a time-out if an answer hangs."""
    if HANGS in completions:
        raise CheckFailed(Failure.TIMEOUT)
    return Checked(f"task {task.seed}", tuple(float(answer == RIGHT) for answer in completions))


async def broken_check(task: Task, completions: Sequence[bytes]) -> Checked:
    """Fail as a checker after a bad upgrade does: on all answers."""
    raise CheckFailed(Failure.CRASH)


def steady(groups: int, group: Group = GOOD) -> Behaviour:
    """Return a behaviour with the same groups in every epoch."""
    return lambda _epoch: (group,) * groups


def turning(groups: int, epoch: int, group: Group = BAD) -> Behaviour:
    """Return a behaviour with good groups until an epoch, and others from then on."""
    return lambda now: (GOOD if now < epoch else group,) * groups


def silent_until(epoch: int, behaviour: Behaviour) -> Behaviour:
    """Return a behaviour that sends no groups before an epoch."""
    return lambda now: behaviour(now) if now >= epoch else ()


@dataclass(frozen=True)
class Author:
    """One account with its behaviour, its number of keys, and its nodes' address."""

    number: int
    behaviour: Behaviour
    keys: int = 1
    host: str = "127.0.0.1"

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """Its keys, all certified for its account."""
        return tuple(Identity(self.number, key) for key in range(self.keys))

    @cached_property
    def account(self) -> Account:
        """The author's account."""
        return Identity(self.number).account

    def senders(self, epoch: int) -> Iterator[Identity]:
        """Yield the key of each group: in turn one of the newest four, which are valid, and one of all."""
        keys = self.identities
        newest, others = cycle(keys[-MAX_NODES_PER_ACCOUNT:]), cycle(keys)
        for _ in range(epoch * SEALED_PER_EPOCH // 2 % len(keys)):
            next(others)
        while True:
            yield next(newest)
            yield next(others)


def accounts(authors: Iterable[Author]) -> frozenset[Account]:
    """Return the authors' accounts."""
    return frozenset(author.account for author in authors)


@dataclass
class Draws:
    """The draws of the observing node's sampler.

    Attributes:
        places: external places that were to be filled; what no group fills stays with local ones.
        groups: drawn groups by account.
    """

    places: int = 0
    groups: Counter[Account] = field(default_factory=Counter)

    def share(self, of: Iterable[Author]) -> float:
        """Return the authors' part of all drawn external groups."""
        return sum(self.groups[account] for account in accounts(of)) / self.groups.total()

    def part_of_places(self, of: Iterable[Author]) -> float:
        """Return the authors' part of all external places."""
        return sum(self.groups[account] for account in accounts(of)) / self.places


class Simulation:
    """One observing node and many authors; the same seed gives the same history.

    Args:
        bonds: each account's bond, in hundredths of what the gate asks for; None: there is no gate.
    """

    def __init__(
        self,
        authors: Sequence[Author],
        *,
        bonds: Mapping[Account, int] | None = None,
        seed: int = 0,
        policy: SamplingPolicy | None = None,
        sealed: bool = False,
        limits: PoolLimits | None = None,
    ) -> None:
        self.authors = authors
        self.check: Check = table_check
        self.epoch = EPOCH
        self.refused: Counter[str] = Counter()
        self.policy = policy or SamplingPolicy()
        self._sealed = sealed
        self._rng = random.Random(seed)
        introduced = tuple(key for author in authors for key in author.identities) if sealed else ()
        manifest = make_manifest(limits=LIMITS) if bonds is None else GATED
        self._harness = VerificationHarness(
            introduced,
            manifest=manifest,
            policy=self.policy,
            limits=limits or PoolLimits(),
            check=self._checked,
        )
        self.reputation = self._harness.reputation
        self._harness.engine.standing.learn(0, bonds or {})
        for author in authors:
            self._harness.engine.learn_origin(author.account, author.host)

    async def run(self, epochs: int) -> Draws:
        """Run a number of epochs; return what was drawn in them."""
        draws = Draws()
        for _ in range(epochs):
            rollouts = list(self._rollouts())
            self._rng.shuffle(rollouts)
            for number in range(ROUNDS_PER_EPOCH):
                await self._round(rollouts[number::ROUNDS_PER_EPOCH], draws)
            self.epoch += 1
            self._harness.pool.expire(self.epoch - 1)
        return draws

    def _rollouts(self) -> Iterable[tuple[Identity, Rollout]]:
        for author in self.authors:
            groups = author.behaviour(self.epoch)
            for slot, (group, key) in enumerate(zip(groups, author.senders(self.epoch), strict=False)):
                yield key, key.rollout(epoch=self.epoch, slot=slot, completions=group)

    async def _round(self, rollouts: Iterable[tuple[Identity, Rollout]], draws: Draws) -> None:
        for key, rollout in rollouts:
            admitted = self._receive(key, rollout)
            if admitted is not None and self._rng.random() < AUDIT_SHARE:
                await self._audit(admitted)
        await self._draw(draws)

    async def _draw(self, draws: Draws) -> None:
        drawn = await self._harness.engine.draw(self.epoch, self._rng)
        draws.places += self.policy.external_groups
        draws.groups.update(rollout.account for rollout in drawn)

    def _receive(self, key: Identity, rollout: Rollout) -> AdmittedRollout | None:
        try:
            admitted = self._admit(key, rollout)
            self._harness.pool.offer(admitted)
        except RemoteProtocolError as error:
            self.refused[error.reason] += 1
            return None
        return admitted

    def _admit(self, key: Identity, rollout: Rollout) -> AdmittedRollout:
        if self._sealed:
            message = key.seal(self._harness.manifest, rollout).to_bytes()
            return self._harness.engine.admit_own(message, moment(self._harness.manifest, self.epoch))
        name = f"{rollout.account} {rollout.epoch} {rollout.slot}"
        return AdmittedRollout(ContentId(sha256(name.encode()).digest()), rollout)

    async def _audit(self, admitted: AdmittedRollout) -> None:
        try:
            await self._harness.engine.verify(admitted)
        except RemoteProtocolError as error:
            self.refused[error.reason] += 1
            self._harness.pool.take(admitted.content_id)

    async def _checked(self, task: Task, completions: Sequence[bytes]) -> CheckResult:
        return await self.check(task, completions)
