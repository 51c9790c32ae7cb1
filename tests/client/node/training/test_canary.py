"""Poison that passes every check, and the roll-back; with real learner, sampler, pool and verifier."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
import trio
from support.events import number, objects
from support.poison import OneAnswer
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from support.verification_harness import VerificationHarness

from sapo_client.learner.process import Learner
from sapo_client.learner.settings import LearnerSettings
from sapo_client.node.training.canary import FALLS, Canary, CanaryParts, CanarySettings
from sapo_client.node.training.canary_state import CanaryFile, CanaryState
from sapo_client.observe.events import Event, EventLog, read_events
from sapo_protocol.identifiers import ContentId
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.jail.messages import Checked
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.types import VerifiedRollout

OWN, EVIL = Identity(1), Identity(2)
SETTINGS = CanarySettings(every_rounds=4, items=32)
DAYS = tuple(day.encode() for day in ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"])
WELL = 0.8
"""The bundled policy is right on more weekdays than this; one that always gives the same day, on 1/7."""


@dataclass
class InProcessCheckers:
    """The real scorers in this process, with the canary's interface."""

    harness: VerificationHarness

    async def prompt(self, task: Task) -> str:
        return (await self.harness.score(task, ())).prompt

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
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
        file = CanaryFile(self.folder / "canary.json", fresh=self.fresh)
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
        drawn = [await node.round(poisoned=True) for _ in range(8)]
        assert drawn == [4] * 8
        accused = [account for _, _, account in node.harness.record.refusals if account == EVIL.account]
        assert accused == [], "no check finds anything wrong with it"
        [first, second] = node.told("canary")
        assert (first["falls"], second["falls"]) == (1, 2)
        assert number(first["control"]) == number(second["control"]) > WELL
        assert max(number(first["reward"]), number(second["reward"])) < number(second["lowest"])
        [back] = node.told("rolled_back")
        quarantined = objects(back["quarantined"])
        assert len(quarantined) == 32
        assert {group["account"] for group in quarantined} == {EVIL.account.hex()}
        assert back["dropped"] == 8 * (6 - 4) == 16 - len(node.harness.pool)
        assert await node.canary._measure(node.canary._items) == first["control"], "bit by bit as it was"

        assert [await node.round(poisoned=True) for _ in range(4)] == [0] * 4, "alone from here"
        assert number(node.told("canary")[-1]["reward"]) > WELL
        assert node.harness.sampler.most_external == 1, "one place back for a check that passed"
        assert node.learner.step == 12, "steps are counted on"

        again = TrainingHarness(tmp_path, node.learner, make_desk(), node.events, fresh=False)
        await again.canary.open()
        assert again.harness.sampler.most_external == 1, "a restart forgets nothing"
        assert again.canary._watch == node.canary._watch


@pytest.mark.long
async def test_a_restart_does_not_find_the_poisoned_policy(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        for _ in range(8):
            await node.round(poisoned=True)
        control = node.told("canary")[0]["control"]
        items = node.canary._items
    async with lone(tmp_path) as node:
        assert node.learner.step == 8
        assert await node.canary._measure(items) == control


async def test_own_training_alone_rolls_nothing_back(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        for _ in range(8):
            await node.round(poisoned=False)
        assert [event["falls"] for event in node.told("canary")] == [0, 0]
        tasks, prompts = zip(
            *node.canary._items, strict=True
        )  # suddenly it is bad, and no stranger was there
        node.canary._items = list(zip(tasks, (*prompts[1:], prompts[0]), strict=True))
        for _ in range(8):
            await node.round(poisoned=False)
        assert node.told("rolled_back") == []
        last = node.told("canary")[2:]
        assert [event["falls"] for event in last] == [0, 0]
        assert number(last[0]["reward"]) < number(last[0]["lowest"])
        assert last[1]["control"] == last[0]["reward"], "taken as it is"


async def test_the_canary_can_be_switched_off(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        node.canary._settings = replace(SETTINGS, every_rounds=0)
        for _ in range(5):
            await node.round(poisoned=False)
        assert node.told("canary") == []


def measured(rng: random.Random, right: float, items: int = 64) -> float:
    """Return the measured reward of a policy that is right on this share of all items."""
    return sum(rng.random() < right for _ in range(items)) / items


def alarms(levels: Sequence[float], seed: int) -> list[int]:
    """Return the checks at which a policy of these levels would be rolled back."""
    rng, found = random.Random(seed), list[int]()
    watch = CanaryState.begin(measured(rng, levels[0]))
    for check, level in enumerate(levels):
        watch = watch.after(measured(rng, level), watch.lowest(64, 0.05))
        if watch.falls == FALLS:
            found.append(check)
            watch = replace(watch, falls=0)
    return found


@pytest.mark.parametrize(("level", "most"), [(0.05, 0), (0.2, 2), (0.5, 2), (0.9, 15)])
def test_false_alarms_are_rare(level: float, most: int) -> None:
    """Of 100 unchanging policies, over a hundred checks each: two thousand rounds by default."""
    assert sum(bool(alarms([level] * 100, seed)) for seed in range(100)) <= most


@pytest.mark.parametrize(("level", "least"), [(0.3, 65), (0.5, 95), (0.9, 90)])
def test_a_collapse_to_a_third_is_found_at_the_second_check(level: float, least: int) -> None:
    falls = [level] * 20 + [level / 3] * 4
    found = [next((at for at in alarms(falls, seed) if at >= 20), None) for seed in range(100)]
    assert sum(at == 21 for at in found) >= least


def test_a_patient_decline_is_found_before_a_third_is_left() -> None:
    """One part in twenty per check, each step far below chance."""
    decline = [0.5] * 30 + [0.5 - 0.025 * step for step in range(1, 14)]
    assert sum(bool(alarms(decline, seed)) for seed in range(100)) >= 90


def test_a_weak_policy_is_beyond_the_canary() -> None:
    """Where one item in twenty is right, 64 items show no fall; the documentation says so."""
    assert CanaryState.begin(0.05).lowest(64, 0.05) < 0


def test_a_torn_or_foreign_file_says_nothing(tmp_path: Path) -> None:
    file = CanaryFile(tmp_path / "canary.json")
    assert file.read(32) is None
    file.write(CanaryState(0.5, 0.4, 1, 3), 32)
    assert file.read(32) == CanaryState(0.5, 0.4, 1, 3)
    assert file.read(31) is None
    assert CanaryFile(tmp_path / "canary.json", fresh=True).read(32) is None
    (tmp_path / "canary.json").write_text('{"items": 32, "watch": {"cont')
    assert file.read(32) is None
    (tmp_path / "canary.json").write_text('{"items": 32, "watch": {"x": 1}}')
    assert file.read(32) is None


@pytest.mark.parametrize(
    ("control", "items", "tolerance", "expected"),
    [(0.5, 64, 0.05, 0.5 - 3 / 16), (0.5, 4096, 0.2, 0.4), (1.0, 64, 0.0, 1.0 - 3 / 64)],
)
def test_a_fall_exceeds_tolerance_and_chance(
    control: float, items: int, tolerance: float, expected: float
) -> None:
    assert CanaryState.begin(control).lowest(items, tolerance) == pytest.approx(expected)
