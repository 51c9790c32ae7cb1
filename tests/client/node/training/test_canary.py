"""Poison that passes every check, and the rollback, with real learner, sampler, pool and verifier."""

from __future__ import annotations

import json
import math
import random
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
import trio
from support.events import number, numbers, objects
from support.poison import OneAnswer
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from support.verification_harness import VerificationHarness

from sapo_client.learner.process import Learner
from sapo_client.learner.settings import LearnerSettings
from sapo_client.node.training.canary import Canary, CanaryParts, CanarySettings
from sapo_client.node.training.canary_state import (
    MAX_COMPARISONS,
    MAX_NATS,
    MAX_QUARANTINED,
    MAX_SETBACKS,
    SURE_RATIO,
    CanaryFile,
    CanaryState,
    HeldOutResult,
    evidence,
)
from sapo_client.node.training.harm_rates import HarmRates, PastComparison
from sapo_client.node.training.others_text import NOTHING, AnswerPair
from sapo_client.observe.events import Event, EventLog, read_events
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.jail.messages import Checked
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.types import VerifiedRollout

OWN, EVIL, OTHER = Identity(1), Identity(2), Identity(3)
HONEST = [Identity(number) for number in range(4, 8)]
SETTINGS = CanarySettings(every_rounds=4, items=32)
DAYS = tuple(day.encode() for day in ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"])
NO_TIME = b"no time"
WELL = 0.8
"""The bundled policy is right on more weekdays than this; one that always gives the same day, on 1/7."""


@dataclass
class InProcessCheckers:
    """The real scorers in this process, with the canary's interface; for one answer there is never time."""

    harness: VerificationHarness

    async def prompt(self, task: Task) -> str:
        return (await self.harness.score(task, ())).prompt

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        if NO_TIME in completions:
            raise CheckFailed(Failure.NODE_BUSY)
        return await self.harness.score(task, completions)


@dataclass
class TrainingHarness:
    """The training part of a node: its own rollouts, those of one attacker, rounds, canary."""

    folder: Path
    learner: Learner
    harness: VerificationHarness
    events: EventLog
    fresh: bool = True
    slots: count[int] = field(default_factory=count)
    rng: random.Random = field(default_factory=lambda: random.Random(4))

    def __post_init__(self) -> None:
        file = CanaryFile(self.folder / "canary.json", self.harness.manifest.suite.families, fresh=self.fresh)
        parts = CanaryParts(
            learner=self.learner,
            checkers=InProcessCheckers(self.harness),
            sampler=self.harness.sampler,
            pool=self.harness.pool,
            demonstrations=self.harness.engine.demonstrations,
            events=self.events,
            file=file,
            secret=b"secret",
            families=1,
        )
        self.canary = Canary(SETTINGS, parts)
        self.poison = OneAnswer(self.harness, EVIL, b"Sunday", DAYS)

    async def round(self, *, poisoned: bool) -> int:
        """Run one round as the node does; return the number of external groups."""
        await self.canary.open()
        if poisoned:
            for admitted in self.poison.rollouts(6):
                self.harness.pool.offer(admitted)
        external = await self.harness.sampler.draw_external(EPOCH, self.rng)
        local, handles = await self._own_rollouts(4)
        batch = self.harness.sampler.assemble(local, external)
        await self.learner.train(batch, handles)
        await self.canary.after(batch)
        return len(external)

    async def _own_rollouts(self, number: int) -> tuple[list[VerifiedRollout], dict[ContentId, int]]:
        engine, checkers = self.harness.engine, InProcessCheckers(self.harness)
        slots = [next(self.slots) for _ in range(number)]
        prompts = [await checkers.prompt(engine.task_of(EPOCH, OWN.account, 0, slot)) for slot in slots]
        generations = await self.learner.generate(prompts, completions_per_prompt=8)
        rollouts, handles = [], {}
        for slot, generation in zip(slots, generations, strict=True):
            message = OWN.message(self.harness.manifest, slot=slot, completions=generation.completions)
            admitted = self.harness.engine.admit_own(message, moment(self.harness.manifest))
            rollouts.append(await engine.verify(admitted))
            handles[admitted.content_id] = generation.handle
        return rollouts, handles

    @property
    def decided(self) -> CanaryState | None:
        """The canary's state without accounts and the results of the last check and by family."""
        watch = self.canary._watch
        if watch is None:
            return None
        return replace(watch, last=None, by_family=(), best=(), accounts=HarmRates())

    def told(self, name: str) -> list[Event]:
        return [event for event in read_events(self.folder / "events.jsonl") if event["event"] == name]


def make_desk() -> VerificationHarness:
    manifest = make_manifest(
        suite=make_suite("nano", ["calendar_arithmetic"]),
        limits=Limits(slots_per_epoch=2**20, max_completions=8, points_per_epoch=16),
    )
    policy = SamplingPolicy(account_cap=1.0, newcomer_cap=1.0)
    harness = VerificationHarness((OWN, EVIL), manifest=manifest, policy=policy)
    harness.trust(EVIL)
    return harness


@asynccontextmanager
async def lone(folder: Path) -> AsyncIterator[TrainingHarness]:
    settings = LearnerSettings("bundled", folder, learning_rate=3e-4, max_new_tokens=6)
    learner = Learner(settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        yield TrainingHarness(folder, learner, make_desk(), EventLog(folder / "events.jsonl"))
        nursery.cancel_scope.cancel()


async def test_poison_that_passes_every_check_is_rolled_back(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        drawn = [await node.round(poisoned=True) for _ in range(4)]
        assert drawn == [4] * 4
        accused = [account for _, _, account in node.harness.record.refusals if account == EVIL.account]
        assert accused == [], "no check finds anything wrong with it"
        [check] = node.told("canary")
        assert number(check["reward"]) < 0.6 < WELL < number(check["shadow"])
        [back] = node.told("rolled_back")
        quarantined = objects(back["external"])
        assert len(quarantined) == 16
        assert {group["account"] for group in quarantined} == {EVIL.account.hex()}
        assert (back["quarantined"], back["planted"]) == ([], 0), "of two accounts nobody can be named"
        assert back["dropped"] == 4 * (6 - 4) == 8 - len(node.harness.pool)
        answers = await node.canary._measure(await node.canary._draw_items(0))
        assert round(answers.reward, 4) == check["shadow"], "bit by bit the shadow"

        assert back["blamed"] == [EVIL.account.hex()]
        assert node.canary._watch is not None
        assert node.canary._watch.accounts.comparisons == (PastComparison((EVIL.account,), has_harmed=True),)
        assert [await node.round(poisoned=True) for _ in range(4)] == [0] * 4, "alone from here"
        alone = node.told("canary")[1:]
        assert [(each["lost"], each["external"]) for each in alone] == [(0, 0)]
        watch = node.canary._watch
        while EVIL.account in watch.accounts.waiting:
            watch = replace(watch, accounts=watch.accounts.idle(random.Random(0)))
        node.canary._apply(watch)
        assert await node.round(poisoned=True) == 4, "again"
        assert node.learner.step == 4 + 4 + 1, "steps are counted on"

        node.canary._parts.file.write(watch)
        again = TrainingHarness(tmp_path, node.learner, make_desk(), node.events, fresh=False)
        await again.canary.open()
        assert again.canary._watch == node.canary._watch


async def test_a_restart_before_the_first_check_keeps_the_first_good_policy(tmp_path: Path) -> None:
    """Otherwise a node that is made to restart often enough would take a poisoned policy for its shadow."""
    async with lone(tmp_path) as node:
        prompts = [prompt for _, prompt in await node.canary._draw_items(0)]
        first = await node.learner.evaluate(prompts)
        for _ in range(3):
            await node.round(poisoned=True)
        again = TrainingHarness(tmp_path, node.learner, make_desk(), node.events, fresh=False)
        await again.canary.open()
        assert await node.learner.evaluate(prompts) != first
        assert await node.learner.shadow(prompts) == first


@pytest.mark.long
async def test_a_restart_does_not_find_the_poisoned_policy(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        for _ in range(4):
            await node.round(poisoned=True)
        shadow = node.told("canary")[0]["shadow"]
    async with lone(tmp_path) as node:
        assert node.learner.step == 4
        found = await node.canary._measure(await node.canary._draw_items(0))
        assert round(found.reward, 4) == shadow


async def test_poison_of_some_accounts_is_attributed_to_its_authors(tmp_path: Path) -> None:
    """Two of six say Sunday always, and are named."""
    async with lone(tmp_path) as node:
        for each in (*HONEST, OTHER):
            node.harness.trust(each)
        rng = random.Random(1)
        for _ in range(60):
            honest = [(each.account, 0, rng.choice((b"Sunday", *DAYS))) for each in HONEST]
            await node.canary._others.learn([*honest, (OTHER.account, 0, b"Sunday")])
        for _ in range(4):
            await node.round(poisoned=True)
        [back] = node.told("rolled_back")
        assert back["quarantined"] == sorted(one.account.hex() for one in (EVIL, OTHER))
        assert number(back["planted"]) > 0
        sampler = node.harness.sampler
        assert node.canary._watch is not None
        waiting = node.canary._watch.accounts.waiting
        assert waiting == {EVIL.account}, "the reward fell as well; of the other nothing was trained"
        assert sampler.shares({EVIL.account}, EPOCH) == {}
        assert sampler.set_aside() == {(EVIL.account, 0), (OTHER.account, 0)}
        assert await node.round(poisoned=True) == 0, "nobody else is there"


async def test_own_training_alone_rolls_nothing_back(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        for _ in range(8):
            await node.round(poisoned=False)
        checks = node.told("canary")
        assert [(each["lost"], each["won"], each["external"]) for each in checks] == [(0, 0, 0)] * 2
        assert node.told("rolled_back") == []
        assert node.decided == CanaryState(checks=2, shadow_step=8), (
            "without others' text there is nothing to compare"
        )
        held_out = node.canary.held_out
        assert held_out is not None
        unmeasured = replace(held_out, reward=0.0, first_reward=0.0)
        assert unmeasured == HeldOutResult(8, 32, 0.0, 0.0, None, shadow_step=4, lead=0.0, lead_error=0.0)
        assert round(held_out.first_reward, 4) == checks[0]["reward"]
        assert (round(held_out.reward, 4), []) == (checks[1]["reward"], checks[1]["shadow_rewards"])


@dataclass
class Speaking:
    """The learner, with other answers to the canary's items.

    Attributes:
        policy: what the policy answers in place of its own answer; None leaves it as it is.
        shadow_says: the same of its shadow.
    """

    learner: Learner
    policy: bytes | None
    shadow_says: bytes | None

    @property
    def step(self) -> int:
        return self.learner.step

    async def evaluate(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        return self._said(self.policy, await self.learner.evaluate(prompts))

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        return self._said(self.shadow_says, await self.learner.shadow(prompts))

    async def keep_good(self) -> None:
        await self.learner.keep_good()

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        await self.learner.roll_back(planters)

    def _said(self, text: bytes | None, answers: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return answers if text is None else (text,) * len(answers)


async def test_when_text_of_others_helps_the_shadow_becomes_the_policy(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        node.canary._parts = replace(node.canary._parts, learner=Speaking(node.learner, None, b""))
        for _ in range(4):
            await node.round(poisoned=True)
        [check] = node.told("canary")
        assert number(check["won"]) > 9 > number(check["lost"])
        lead, items = (number(check["won"]) - number(check["lost"])) / 32, numbers(check["rewards"])
        assert len(items) == 32
        assert sum(items) / 32 == pytest.approx(number(check["reward"]), abs=1e-4)
        [difference, among] = [number(check["won"]) + sign * number(check["lost"]) for sign in (-1, 1)]
        error = math.sqrt(((among + 1) / 34 - (difference / 34) ** 2) / 34)
        mean = sum(items) / 32
        last = HeldOutResult(4, 32, mean, mean, 0.0, shadow_step=0, lead=lead, lead_error=error)
        used = HarmRates((EVIL.account,), (PastComparison((EVIL.account,), has_harmed=False),))
        assert node.canary._watch == CanaryState(
            checks=1, shadow_step=4, last=last, best=(0.0,), accounts=used
        )
        assert (check["since"], check["step"]) == (0, 4)
        assert (node.canary._window, node.canary._imitated) == ([], set())


async def test_undecided_answers_do_not_count_as_a_loss(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        node.canary._parts = replace(node.canary._parts, learner=Speaking(node.learner, NO_TIME, None))
        for _ in range(4):
            await node.round(poisoned=True)
        [check] = node.told("canary")
        assert (check["reward"], check["lost"], check["won"]) == (0.0, 0, 0)
        assert number(check["shadow"]) > WELL / 2
        assert node.told("rolled_back") == []


async def test_planted_text_without_loss_of_reward_is_detected_and_only_its_authors_are_quarantined(
    tmp_path: Path,
) -> None:
    """Both answer nothing right, so that the reward is equal."""
    async with lone(tmp_path) as node:
        for each in (*HONEST, OTHER):
            node.harness.trust(each)
        speaking = Speaking(node.learner, b"so it is", b"")
        node.canary._parts = replace(node.canary._parts, learner=speaking)
        rng = random.Random(1)

        async def hear() -> None:
            for _ in range(60):
                honest = [(each.account, 0, rng.choice(DAYS)) for each in HONEST]
                await node.canary._others.learn([*honest, (OTHER.account, 0, b"so it is Monday")])

        await hear()
        for _ in range(4):
            await node.round(poisoned=True)
        [back] = node.told("rolled_back")
        assert (back["lost"], back["won"], back["planted"]) == (0, 0, 32)
        assert back["quarantined"] == [OTHER.account.hex()]
        assert back["dropped"] == 0, "what others have waiting stays"
        assert len(node.harness.pool) == 8
        after = CanaryState(checks=1, quarantined=(OTHER.account,), shadow_step=4)
        assert node.decided == after, "the others' text is used as before"

        assert node.canary._others._tallies == {}, "answers of before the rollback are forgotten"

        await hear()  # of who is in quarantine nothing counts any more, from the next check on
        assert await node.canary._others.planted([AnswerPair(0, b"so it is", b"")] * 32) != NOTHING
        node.canary._others.reset_comparison()
        for _ in range(4):
            await node.round(poisoned=True)
        assert len(node.told("rolled_back")) == 1


async def test_a_restart_continues_the_comparison(tmp_path: Path) -> None:
    """What others showed before is not remembered, and still in the policy."""
    async with lone(tmp_path) as node:
        node.canary._parts = replace(node.canary._parts, learner=Speaking(node.learner, b"", b""))
        for _ in range(4):
            await node.round(poisoned=True)
        assert node.decided == CanaryState(checks=1, comparisons=1, latest=((0, 0, 32),))
        again = TrainingHarness(tmp_path, node.learner, make_desk(), node.events, fresh=False)
        again.canary._parts = replace(again.canary._parts, learner=Speaking(node.learner, b"", b""))
        for _ in range(4):
            await again.round(poisoned=False)
        assert again.decided == CanaryState(checks=2, comparisons=2, latest=((0, 0, 32), (0, 0, 32)))


async def test_policy_and_shadow_are_the_same_again_after_many_checks(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        node.canary._parts = replace(node.canary._parts, learner=Speaking(node.learner, b"", b""))
        await node.canary.open()
        node.canary._watch = CanaryState(checks=30, comparisons=MAX_COMPARISONS - 1, lost=5, won=4)
        for _ in range(4):
            await node.round(poisoned=True)
        assert node.decided == CanaryState(checks=31, shadow_step=4)


async def test_each_check_has_items_of_its_own(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        checks = [await node.canary._draw_items(check) for check in (0, 1, 0)]
        assert checks[0] == checks[2]
        assert not {task for task, _ in checks[0]} & {task for task, _ in checks[1]}
        asked = list[Sequence[str]]()
        evaluate = node.learner.evaluate

        class Recording(Speaking):
            """Remembers what it is asked."""

            async def evaluate(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
                asked.append(prompts)
                return await evaluate(prompts)

        node.canary._parts = replace(node.canary._parts, learner=Recording(node.learner, None, None))
        for _ in range(8):
            await node.round(poisoned=False)
        assert asked == [[prompt for _, prompt in items] for items in checks[:2]]


async def test_the_canary_can_be_switched_off(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        node.canary._settings = replace(SETTINGS, every_rounds=0)
        for _ in range(5):
            await node.round(poisoned=False)
        assert node.told("canary") == []


ALIKE = 0.7
"""So that ten of 64 items tell the two apart, as in the lab's runs."""


def verdicts(policy: Sequence[float], shadow: Sequence[float], seed: int, items: int = 64) -> list[int]:
    """Return the checks at which a policy of these chances to be right would be rolled back.

    In ``ALIKE`` of the items its answer and its shadow's are drawn together, for both are nearly one policy.
    """
    rng, found = random.Random(seed), list[int]()
    watch = CanaryState()
    for check, (mine, its) in enumerate(zip(policy, shadow, strict=True)):
        draws = []
        for _ in range(items):
            one = rng.random()
            two = one if rng.random() < ALIKE else rng.random()
            draws.append((one < mine, two < its))
        watch = watch.checked(sum(b > a for a, b in draws), sum(a > b for a, b in draws), items)
        if watch.has_lost:
            found.append(check)
        if watch.has_lost or watch.has_won or watch.is_undecided:
            watch = watch.rolled_back(0, 0.0) if watch.has_lost else watch.kept(0)
    return found


@pytest.mark.parametrize("level", [0.05, 0.2, 0.5, 0.9])
def test_false_alarms_are_rare(level: float) -> None:
    """Of 200 policies like their shadows, over twenty checks each: two hundred rounds by default."""
    alarms = [verdicts([level] * MAX_COMPARISONS, [level] * MAX_COMPARISONS, seed) for seed in range(200)]
    assert sum(map(bool, alarms)) <= 200 / SURE_RATIO + 4


@pytest.mark.parametrize(("level", "least"), [(0.3, 55), (0.5, 90), (0.9, 95)])
def test_a_collapse_to_a_third_is_found_at_the_first_check(level: float, least: int) -> None:
    found = [verdicts([level / 3] * 2, [level] * 2, seed) for seed in range(100)]
    assert sum(checks[:1] == [0] for checks in found) >= least
    assert sum(map(bool, found)) >= 95, "at the second"


def test_a_slow_decline_is_detected_before_a_third_is_lost() -> None:
    """One part in fifty per check, each step far below chance."""
    decline = [0.5 - 0.01 * step for step in range(1, 17)]
    assert sum(bool(verdicts(decline, [0.5] * 16, seed)) for seed in range(100)) >= 95


@pytest.mark.parametrize(("loss", "least", "most"), [(0.04, 35, 65), (0.07, 98, 100)])
def test_a_small_lasting_loss_is_detected_at_the_stated_rate(loss: float, least: int, most: int) -> None:
    """As stated in the threat model."""
    policy, shadow = [0.5 - loss] * MAX_COMPARISONS, [0.5] * MAX_COMPARISONS
    assert least <= sum(bool(verdicts(policy, shadow, seed)) for seed in range(100)) <= most


def test_a_halved_learning_rate_of_the_policy_is_detected() -> None:
    """It never falls below its own past, so that no comparison with that would see it."""
    slow, alone = ([factor * 0.05 * step for step in range(1, 11)] for factor in (0.5, 1.0))
    assert sum(bool(verdicts(slow, alone, seed)) for seed in range(100)) >= 90


@pytest.mark.parametrize(
    ("more", "less", "expected"), [(0, 0, 1.0), (1, 0, 1.5), (9, 0, 102.3), (0, 9, 0.1), (39, 11, 1182.0)]
)
def test_evidence_grows_with_the_difference(more: int, less: int, expected: float) -> None:
    assert evidence(more, less) == pytest.approx(expected, rel=0.01)


def test_evidence_of_many_items_is_a_number() -> None:
    """Twenty checks of 4,096 items, the most that may be configured."""
    assert evidence(81_920, 0) == evidence(50_000, 31_920) == pytest.approx(math.exp(MAX_NATS))
    assert evidence(0, 81_920) == pytest.approx(1 / 81_921)
    assert 0.0 < evidence(41_000, 40_920) < 1.0


def test_evidence_is_a_martingale() -> None:
    """However many fair comparisons follow, its mean stays."""
    for more in range(6):
        for less in range(6):
            after = (evidence(more + 1, less) + evidence(more, less + 1)) / 2
            assert after == pytest.approx(evidence(more, less))


def test_each_setback_lasts_longer_until_text_of_others_has_helped() -> None:
    """Where it is not known whose text was trained, as after a restart of an earlier version's node."""
    watch, checks, rng = CanaryState(), list[int](), random.Random(0)
    for _ in range(MAX_SETBACKS + 1):
        watch, waited = watch.set_back(rng), 0
        while watch.opening == 0:
            watch, waited = watch.passed(), waited + 1
        checks.append(waited)
    assert checks == [2, 3, 5, 9, 17, 33, 65, 65]
    assert replace(watch, won=64).kept(0).set_back(rng).waits == 1


def test_text_of_others_is_used_on_if_it_is_known_whose_was_trained() -> None:
    watch = CanaryState(accounts=HarmRates(used=(OTHER.account,)))
    after = watch.set_back(random.Random(0))
    assert after == replace(watch, accounts=watch.accounts.ended(random.Random(0), has_harmed=True))
    assert after.accounts.waiting == {OTHER.account}


def test_the_lead_covers_the_last_checks_and_ends_with_the_comparison() -> None:
    def figures(state: CanaryState) -> tuple[float | None, ...]:
        last = state.last
        assert last is not None
        rewards = last.first_reward, last.reward, last.shadow
        return last.step, last.shadow_step, *rewards, round(last.lead, 4), round(last.lead_error, 4)

    first = CanaryState().checked(lost=2, won=12, compared=50).measured(10, 50, reward=0.6, shadow=0.4)
    assert figures(first) == (10, 0, 0.6, 0.6, 0.4, 0.2, 0.0695)
    risen = first.checked(0, 14, 50).checked(0, 15, 50)
    assert figures(risen.measured(30, 50, 0.7, 0.4)) == (30, 0, 0.6, 0.7, 0.4, round(39 / 150, 4), 0.0384)
    assert figures(risen.checked(0, 16, 50).measured(40, 50, 0.7, 0.4))[-2] == 0.3, "of the last three"
    kept = risen.kept(30).checked(5, 5, 50).measured(40, 50, 0.7, 0.7)
    assert figures(kept) == (40, 30, 0.6, 0.7, 0.7, 0.0, 0.0638)
    back = kept.checked(40, 0, 50).measured(50, 50, 0.1, 0.9).rolled_back(50, shadow=0.9)
    assert figures(back) == (50, 30, 0.6, 0.9, 0.9, 0.0, 0.0)
    assert figures(back.measured(60, 50, 0.8, None)) == (60, 50, 0.6, 0.8, None, 0.0, 0.0)
    assert back.measured(60, 0, 0.0, None) == back, "no item was checked"


def test_a_quarantine_ends_with_the_checks_that_pass() -> None:
    accounts = [Identity(number).account for number in range(1, MAX_QUARANTINED + 3)]
    watch = CanaryState().quarantining(frozenset(accounts[:2])).quarantining(frozenset(accounts[1:3]))
    first, second, third = accounts[0], *sorted(accounts[1:3])
    assert set(watch.quarantined) == {first, second, third}
    assert watch.quarantined[0] == first, "the oldest first; who is found again begins anew"
    assert watch.passed().quarantined == watch.quarantined[1:]
    full = CanaryState().quarantining(frozenset(accounts))
    assert len(full.quarantined) == MAX_QUARANTINED


def test_a_damaged_or_unknown_state_file_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "canary.json"
    families = make_suite("nano", ("calendar_arithmetic",)).families
    file = CanaryFile(path, families)
    assert file.read() is None
    last = HeldOutResult(9, 64, 0.5, 0.25, None, shadow_step=3, lead=0.1, lead_error=0.02)
    watch = CanaryState(3, 5, 2, 4, 6, 1, 7, (EVIL.account, OWN.account), ((1, 2, 64),), 90, last)
    file.write(watch)
    assert file.read() == watch
    assert CanaryFile(path, families, fresh=True).read() is None
    of_0_1 = {"items": 32, "watch": {"quick": 0.5, "slow": 0.5, "falls": 0, "most_external": 4}}
    torn = ('{"opening": 3, "quar', '{"quarantined": []', "[]", '{"quarantined": ["0x12"]}')
    for text in (*torn, json.dumps(of_0_1)):
        path.write_text(text)
        assert file.read() is None
