"""Poison that passes every check, and the way back from it; the real learner, sampler, pool and verifier."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.desk import Desk
from support.poison import OneAnswer
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment

from sapo_client.learner.process import Learner
from sapo_client.learner.settings import LearnerSettings
from sapo_client.node.canary import Canary, CanaryParts, CanarySettings
from sapo_client.node.canary_state import CanaryFile, Watch
from sapo_client.observe.events import Event, EventLog, read_events
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.jail_messages import Checked
from sapo_verification.sampler import SamplingPolicy
from sapo_verification.types import VerifiedRollout

OWN, EVIL = Identity(1), Identity(2)
SETTINGS = CanarySettings(every_rounds=4, items=32)
DAYS = tuple(day.encode() for day in ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"])
WELL = 0.8
"""The bundled policy is right on more weekdays than this; who always says the same day, on one in seven."""


@dataclass
class Here:
    """The real scorers in this process, as the canary asks for them."""

    desk: Desk

    async def prompt(self, task: Task) -> str:
        return (await self.desk.score(task, ())).prompt

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        return await self.desk.score(task, completions)


@dataclass
class Lone:
    """A node's learning half: its own rollouts, those of one poisoner, rounds, canary."""

    folder: Path
    learner: Learner
    desk: Desk
    events: EventLog
    fresh: bool = True
    slots: count = field(default_factory=count)  # type: ignore[type-arg]
    rng: random.Random = field(default_factory=lambda: random.Random(4))

    def __post_init__(self) -> None:
        file = CanaryFile(self.folder / "canary.json", fresh=self.fresh)
        parts = CanaryParts(
            self.learner, Here(self.desk), self.desk.sampler, self.desk.pool, self.events, file, b"secret", 1
        )
        self.canary = Canary(SETTINGS, parts)
        self.poison = OneAnswer(self.desk, EVIL, b"Sunday", DAYS)

    async def round(self, *, poisoned: bool) -> int:
        """One round as the node runs it; returns the number of external groups."""
        await self.canary.open()
        if poisoned:
            for admitted in self.poison.rollouts(6):
                self.desk.pool.offer(admitted)
        external = await self.desk.sampler.draw_external(EPOCH, self.rng)
        local, handles = await self._own_rollouts(4)
        batch = self.desk.sampler.assemble(local, external)
        await self.learner.train(batch, handles)
        await self.canary.after(batch)
        return len(external)

    async def _own_rollouts(self, number: int) -> tuple[list[VerifiedRollout], dict]:  # type: ignore[type-arg]
        verifier, here = self.desk.verifier, Here(self.desk)
        slots = [next(self.slots) for _ in range(number)]
        prompts = [await here.prompt(verifier.task_of(EPOCH, OWN.account, 0, slot)) for slot in slots]
        generations = await self.learner.generate(prompts, completions_per_prompt=8)
        rollouts, handles = [], {}
        for slot, generation in zip(slots, generations, strict=True):
            message = OWN.message(self.desk.manifest, slot=slot, completions=generation.completions)
            admitted = self.desk.admission.judge(message, moment(self.desk.manifest))
            rollouts.append(await verifier.verify(admitted))
            handles[admitted.content_id] = generation.handle
        return rollouts, handles

    def told(self, name: str) -> list[Event]:
        return [event for event in read_events(self.folder / "events.jsonl") if event["event"] == name]


def make_desk() -> Desk:
    manifest = make_manifest(
        suite=make_suite("nano", ["calendar_arithmetic"]),
        limits=Limits(slots_per_epoch=2**20, max_completions=8, points_per_epoch=16),
    )
    policy = SamplingPolicy(account_cap=1.0, newcomer_cap=1.0)
    desk = Desk((OWN, EVIL), manifest=manifest, policy=policy)
    desk.trust(EVIL)
    return desk


@asynccontextmanager
async def lone(folder: Path) -> AsyncIterator[Lone]:
    settings = LearnerSettings("bundled", folder, learning_rate=3e-4, max_new_tokens=6)
    learner = Learner(settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        yield Lone(folder, learner, make_desk(), EventLog(folder / "events.jsonl"))
        nursery.cancel_scope.cancel()


async def test_poison_that_passes_every_check_is_rolled_back(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        drawn = [await node.round(poisoned=True) for _ in range(8)]
        assert drawn == [4] * 8
        accused = [account for _, _, account in node.desk.witness.refusals if account == EVIL.account]
        assert accused == [], "no check finds anything wrong with it"
        [first, second] = node.told("canary")
        assert (first["falls"], second["falls"]) == (1, 2)
        assert first["control"] == second["control"] > WELL
        assert max(first["reward"], second["reward"]) < second["lowest"]
        [back] = node.told("rolled_back")
        assert len(back["quarantined"]) == 32
        assert {group["account"] for group in back["quarantined"]} == {EVIL.account.hex()}
        assert back["dropped"] == 8 * (6 - 4) == 16 - len(node.desk.pool)
        assert await node.canary._measure(node.canary._items) == first["control"], "bit by bit as it was"

        assert [await node.round(poisoned=True) for _ in range(4)] == [0] * 4, "alone from here"
        assert node.told("canary")[-1]["reward"] > WELL
        assert node.desk.sampler.most_external == 1, "one place back for a check that passed"
        assert node.learner.step == 12, "steps are counted on"

        again = Lone(tmp_path, node.learner, make_desk(), node.events, fresh=False)
        await again.canary.open()
        assert again.desk.sampler.most_external == 1, "a restart forgets nothing"
        assert again.canary._watch == node.canary._watch


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
        node.canary._watch = Watch(1.0)  # as if it had been better once: no stranger has made it worse
        for _ in range(4):
            await node.round(poisoned=False)
        assert node.told("rolled_back") == []
        assert node.told("canary")[-1]["falls"] == 0
        assert node.canary._watch.control == node.told("canary")[-1]["reward"]


async def test_the_canary_can_be_switched_off(tmp_path: Path) -> None:
    async with lone(tmp_path) as node:
        node.canary._settings = replace(SETTINGS, every_rounds=0)
        for _ in range(5):
            await node.round(poisoned=False)
        assert node.told("canary") == []


@given(st.floats(0.0, 1.0), st.lists(st.floats(0.0, 1.0), max_size=20), st.floats(0.0, 0.5))
def test_the_control_never_falls_and_falls_are_counted_in_a_row(
    control: float, rewards: list[float], margin: float
) -> None:
    watch = Watch(control)
    for reward in rewards:
        lowest = watch.control - margin
        after = watch.after(reward, lowest)
        assert after.control >= watch.control
        assert after.falls == (watch.falls + 1 if reward < lowest else 0)
        watch = after


def test_a_torn_or_foreign_file_says_nothing(tmp_path: Path) -> None:
    file = CanaryFile(tmp_path / "canary.json")
    assert file.read(32) is None
    file.write(Watch(0.5, 1, 3), 32)
    assert file.read(32) == Watch(0.5, 1, 3)
    assert file.read(31) is None
    assert CanaryFile(tmp_path / "canary.json", fresh=True).read(32) is None
    (tmp_path / "canary.json").write_text('{"items": 32, "watch": {"cont')
    assert file.read(32) is None
    (tmp_path / "canary.json").write_text('{"items": 32, "watch": {"x": 1}}')
    assert file.read(32) is None


@pytest.mark.parametrize(
    ("control", "items", "expected"), [(0.5, 64, 0.375), (0.95, 4096, 0.9025), (0.04, 64, 0)]
)
def test_a_fall_exceeds_tolerance_and_chance(
    tmp_path: Path, control: float, items: int, expected: float
) -> None:
    desk = make_desk()
    parts = CanaryParts(
        Learner(LearnerSettings("bundled", tmp_path)), Here(desk), desk.sampler, desk.pool,
        EventLog(tmp_path / "events.jsonl"), CanaryFile(tmp_path / "c.json"), b"", 1,
    )  # fmt: skip
    canary = Canary(SETTINGS, parts)
    canary._items = [(Task(0, 0), "")] * items
    lowest = canary._lowest(control)
    assert max(0, lowest) == pytest.approx(expected)
