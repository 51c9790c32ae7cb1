"""The canary: held-out items that show when training on others' text has harmed the policy.

Every ``every_rounds`` rounds the policy answers fresh items greedily; the answers are not published. The
items' seeds are derived from the node's secret key, so an attacker cannot spare these items. The *shadow*
answers them too: a copy of the policy that has since been trained on the own groups only. Others' text has
done harm if

* the shadow gets significantly more items right (over all items since both were equal), or the policy has
  surely lost more than half of a family, whatever it has gained in others;
* the policy repeats text that few accounts planted (``others_text``).

Then the shadow becomes the policy, so that nothing that was learned from own groups is lost. Accounts that
planted text are quarantined: nothing of theirs is trained. If none are found, the used and waiting text of
all accounts in question is dropped. After a lower reward fewer accounts are admitted, and others each time,
until it shows which of them do harm (``harm_rates``). If it is not known whose text was trained, no external
text is used, and then each check that passes admits a quarter more of the external groups and demonstrations.
It also ends the oldest quarantine.

If others' text has helped significantly, or if nothing was found in ``canary_state.MAX_COMPARISONS`` checks,
the shadow is set to the policy, unless a family may have been lost lately.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

from sapo_client.node.training.canary_state import CanaryFile, CanaryState, HeldOutResult
from sapo_client.node.training.family_evidence import NO_TASKS, Assigned, Comparison
from sapo_client.node.training.others_text import NOTHING, AnswerPair, OthersText, PlantedText
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed

if TYPE_CHECKING:
    from sapo_client.observe.events import EventLog
    from sapo_protocol.identifiers import Account, ContentId
    from sapo_verification.jail.messages import Checked
    from sapo_verification.sampling.demonstrations import DemonstrationPool
    from sapo_verification.sampling.pool import Pool
    from sapo_verification.sampling.sampler import Sampler
    from sapo_verification.types import SampledBatch

_SEED_BITS: Final = 31
_MAX_DRAWS: Final = 4
"""Attempts per item, since a few seeds of some families have no task."""


Items = Sequence[tuple[Task, str]]
"""Tasks of a check, with their prompts."""


class Checkers(Protocol):
    """Interface that derives items and scores answers."""

    async def prompt(self, task: Task) -> str:
        """Return the task's prompt."""
        ...

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Return a task's prompt, and the reward of each completion."""
        ...


class Monitored(Protocol):
    """The functions of a learner that the canary needs; see ``Backend``."""

    @property
    def step(self) -> int:
        """Number of steps so far, over all starts."""
        ...

    async def evaluate(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """Return one greedy completion per prompt."""
        ...

    async def keep_good(self) -> None:
        """Keep the present policy as the one to which ``roll_back`` returns."""
        ...

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        """Restore the policy that was last kept as good."""
        ...

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """Train the good policy on the own groups since the last call, and return its answers."""
        ...


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """Settings of the canary.

    Attributes:
        every_rounds: rounds between two checks; 0 disables the canary.
        items: held-out items per check, over all families.
    """

    every_rounds: int = 10
    items: int = 64


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers to the items with their rewards, in the items' order.

    Attributes:
        rewards: None for an answer that this node was too busy to check; it is left out of comparisons.
    """

    texts: tuple[bytes, ...]
    rewards: tuple[float | None, ...]

    @property
    def checked(self) -> list[float]:
        """The rewards of the answers that were checked."""
        return [reward for reward in self.rewards if reward is not None]

    @property
    def reward(self) -> float:
        """The mean reward of the answers that were checked, 0 if none was."""
        return sum(self.checked) / max(1, len(self.checked))


@dataclass(frozen=True, slots=True)
class _Gap:
    """The differences between the shadow and the policy on the items of one check.

    Attributes:
        shadow: the shadow's answers.
        lost: number of items that only the shadow gets right.
        won: number of items that only the policy gets right.
        compared: number of items of which the answers of both were checked; 0 without a shadow.
        by_family: the results on these items by family; the policy is the new one.
        planted: text that few accounts planted.
    """

    shadow: _Answers
    lost: int = 0
    won: int = 0
    compared: int = 0
    by_family: tuple[Comparison, ...] = ()
    planted: PlantedText = NOTHING


@dataclass(frozen=True, slots=True)
class CanaryParts:
    """The parts that the canary works with.

    Attributes:
        secret: known to this node only; the items are derived from it.
        families: number of families in the suite.
        assigned: those that items are drawn of; None: all of them, always.
    """

    learner: Monitored
    checkers: Checkers
    sampler: Sampler
    pool: Pool
    demonstrations: DemonstrationPool
    events: EventLog
    file: CanaryFile
    secret: bytes
    families: int
    assigned: Assigned | None = None

    @property
    def drawn(self) -> Sequence[int]:
        """The families of the next items, as indices of the suite."""
        return range(self.families) if self.assigned is None else self.assigned()


class CanaryRole(Protocol):
    """Monitor of the policy between rounds."""

    @property
    def held_out(self) -> HeldOutResult | None:
        """Results of the last check; None before the first one."""

    async def open(self) -> None:
        """Prepare before the first round; later calls do nothing."""

    async def after(self, batch: SampledBatch) -> bool:
        """Record that a round was trained on a batch; return whether the policy went back since."""
        ...


class NoCanary:
    """The null object, for an experiment or a node that does not train."""

    held_out: Final = None

    async def open(self) -> None:
        """Do nothing."""

    async def after(self, batch: SampledBatch) -> bool:
        """Do nothing."""
        return False


class Canary:
    """Monitor of one policy."""

    def __init__(self, settings: CanarySettings, parts: CanaryParts) -> None:
        self._settings = settings
        self._parts = parts
        self._watch: CanaryState | None = None
        self._window: list[tuple[ContentId, Account]] = []
        self._imitated: set[Account] = set()
        self._others = OthersText(sha256(b"sapo canary text" + parts.secret).digest())
        self._rounds = 0
        self._epoch = 0

    @property
    def held_out(self) -> HeldOutResult | None:
        """Results of the last check; None before the first one."""
        return None if self._watch is None else self._watch.last

    async def open(self) -> None:
        """Keep the policy before the first round as the good one; later calls do nothing.

        Raises:
            LearnerCrashed: nothing was kept; call again.
        """
        if self._watch is not None or not self._settings.every_rounds:
            return
        watch = self._parts.file.read()
        if watch is None:
            watch = CanaryState()
            await self._parts.learner.keep_good()
            self._parts.file.write(watch)
        self._apply(watch)

    async def after(self, batch: SampledBatch) -> bool:
        """Record a trained round; check the policy when a check is due.

        Returns:
            Whether the shadow has become the policy.

        Raises:
            LearnerCrashed: the check is made after the next round instead.
        """
        if self._watch is None:
            return False
        self._window.extend((each.content_id, each.account) for each in batch.external)
        self._imitated.update(each.account for each in batch.demonstrations)
        await self._others.learn(_texts(batch))
        self._epoch = max((each.admitted.rollout.epoch for each in batch.local), default=self._epoch)
        self._rounds += 1
        if self._rounds < self._settings.every_rounds:
            return False
        went_back = await self._check(self._watch)
        self._rounds = 0
        return went_back

    async def _check(self, before: CanaryState) -> bool:
        """Check the policy; return whether the shadow has become the policy."""
        before = before.limited_to(self._parts.drawn)
        items = await self._draw_items(before.checks)
        answers = await self._measure(items)
        has_others = bool(self._window or self._imitated or before.comparisons)
        gap = await self._gap(items, answers) if has_others else _Gap(answers)
        before = replace(before, accounts=before.accounts.using(self._trained_accounts()))
        watch = self._recorded(before.checked(gap.lost, gap.won, gap.compared, gap.by_family), answers, gap)
        went_back = watch.has_lost or bool(gap.planted.accounts)
        if went_back:
            watch = await self._roll_back(watch, answers, gap)
        else:
            watch = await self._accept(watch, has_others=has_others)
        self._parts.file.write(watch)
        self._apply(watch)
        return went_back

    def _trained_accounts(self) -> list[Account]:
        """Return the accounts whose text was trained since policy and shadow were equal, in a fixed order."""
        return sorted({account for _, account in self._window} | self._imitated)

    def _recorded(self, watch: CanaryState, answers: _Answers, gap: _Gap) -> CanaryState:
        """Write the check's event; return the state with its results."""
        step, shadow = self._parts.learner.step, gap.shadow.reward if gap.compared else None
        watch = watch.measured(step, len(answers.checked), answers.reward, shadow)
        self._parts.events.write(
            "canary",
            step=step,
            reward=round(answers.reward, 4),
            shadow=round(gap.shadow.reward, 4),
            rewards=answers.checked,
            shadow_rewards=gap.shadow.checked if gap.compared else [],
            since=watch.shadow_step,
            lost=watch.lost,
            won=watch.won,
            spoilt=watch.spoilt,
            planted=gap.planted.answers,
            external=len(self._window),
            imitated=len(self._imitated),
        )
        return watch

    async def _gap(self, items: Items, answers: _Answers) -> _Gap:
        """Compare the policy's answers with those of its shadow."""
        texts = await self._parts.learner.shadow([prompt for _, prompt in items])
        shadow = await self._scored(items, texts)
        self._others.weigh(self._parts.sampler.shares(self._others.accounts(), self._epoch))
        changes = [
            mine - its
            for mine, its in zip(answers.rewards, shadow.rewards, strict=True)
            if mine is not None and its is not None
        ]
        pairs = [
            AnswerPair(task.family, mine, its)
            for (task, _), mine, its in zip(items, answers.texts, shadow.texts, strict=True)
        ]
        return _Gap(
            shadow=shadow,
            lost=sum(change < 0 for change in changes),
            won=sum(change > 0 for change in changes),
            compared=len(changes),
            by_family=self._by_family(items, answers, shadow),
            planted=await self._others.planted(pairs),
        )

    def _by_family(self, items: Items, answers: _Answers, shadow: _Answers) -> tuple[Comparison, ...]:
        """Return how the policy and its shadow did on the items, by family."""
        found = [NO_TASKS] * self._parts.families
        for (task, _), mine, its in zip(items, answers.rewards, shadow.rewards, strict=True):
            if mine is not None and its is not None:
                one = Comparison(1, mine + its == 2.0, mine > its, mine < its)
                found[task.family] = found[task.family].and_also(one)
        return tuple(found)

    async def _accept(self, watch: CanaryState, *, has_others: bool) -> CanaryState:
        """Keep the policy as the good one if the comparison is decided or has no purpose; return the new
        state."""
        if has_others and watch.is_undecided and watch.may_have_lost_lately:
            return watch.restarted().passed()  # what was lost is found soon by a new comparison
        if watch.has_won or watch.is_undecided or not has_others:
            await self._parts.learner.keep_good()
            self._reset_comparison()
            step = self._parts.learner.step
            draws = self._draws(watch.checks)
            watch = watch.accepted(step, draws) if has_others else watch.idle(step, draws)
        return watch.passed()

    async def _roll_back(self, watch: CanaryState, answers: _Answers, gap: _Gap) -> CanaryState:
        """Restore the shadow, quarantine planters, stop external text if reward was lost; return the new
        state."""
        planters = gap.planted.accounts
        await self._parts.learner.roll_back(planters)
        accounts = planters or self._trained_accounts()
        for account in accounts:
            self._parts.demonstrations.drop(account)
        waiting = [each.content_id for account in accounts for each in self._parts.pool.waiting(account)]
        self._parts.events.write(
            "rolled_back",
            step=self._parts.learner.step,
            reward=round(answers.reward, 4),
            shadow=round(gap.shadow.reward, 4),
            lost=watch.lost,
            won=watch.won,
            spoilt=watch.spoilt,
            planted=gap.planted.answers,
            quarantined=sorted(planters),
            blamed=sorted(watch.accounts.used) if watch.has_lost else [],
            external=[{"content_id": content_id, "account": account} for content_id, account in self._window],
            imitated=sorted(self._imitated),
            dropped=sum(self._parts.pool.take(content_id) for content_id in waiting),
        )
        self._reset_comparison()
        after = watch.rolled_back(self._parts.learner.step, gap.shadow.reward).quarantining(planters)
        return after.set_back(self._draws(watch.checks)) if watch.has_lost else after

    def _draws(self, check: int) -> random.Random:
        """Return what draws the accounts that are admitted after a check; only this node can know it."""
        return random.Random(sha256(b"sapo canary waits %d " % check + self._parts.secret).digest())

    def _reset_comparison(self) -> None:
        """Forget whose text was used, since policy and shadow have become equal."""
        self._window.clear()
        self._imitated.clear()
        self._others.reset_comparison()

    def _apply(self, watch: CanaryState) -> None:
        """Set and store the state, and update the sampler."""
        self._watch = watch
        sampler, families = self._parts.sampler, range(self._parts.families)
        sampler.opening = watch.opening
        sampler.quarantine = frozenset(
            (account, family)
            for account in watch.accounts.waiting.union(watch.quarantined)
            for family in families
        )
        sampler.waiting = watch.accounts.waiting.difference(watch.quarantined)
        sampler.admits = watch.accounts.admission()

    async def _measure(self, items: Items) -> _Answers:
        """Return the policy's answers to the items."""
        texts = await self._parts.learner.evaluate([prompt for _, prompt in items])
        return await self._scored(items, texts)

    async def _scored(self, items: Items, texts: tuple[bytes, ...]) -> _Answers:
        rewards: list[float | None] = []
        for (task, _), text in zip(items, texts, strict=True):
            try:
                rewards.append((await self._parts.checkers.check(task, (text,))).rewards[0])
            except CheckFailed as error:  # an answer on which the checker fails has reward 0
                rewards.append(None if error.reason.decides_nothing else 0.0)
        return _Answers(texts, tuple(rewards))

    async def _draw_items(self, check: int) -> Items:
        """Return the items of a check with their prompts, families in turn."""
        families = self._parts.drawn
        rng = random.Random(sha256(b"sapo canary %d " % check + self._parts.secret).digest())
        items: list[tuple[Task, str]] = []
        for number in range(_MAX_DRAWS * self._settings.items):
            task = Task(families[number % len(families)], rng.getrandbits(_SEED_BITS))
            try:
                items.append((task, await self._parts.checkers.prompt(task)))
            except CheckFailed:
                continue
            if len(items) == self._settings.items:
                return items
        raise LocalProtocolError("the suite yields no items for the canary")


def _texts(batch: SampledBatch) -> Iterator[tuple[Account, int, bytes]]:
    """Yield author, family and text of others' completions that a batch trains towards (only right ones)."""
    for rollout in batch.external:
        for completion in rollout.right:
            yield rollout.account, rollout.task.family, completion
    for each in batch.demonstrations:
        yield each.account, each.family, each.completion
