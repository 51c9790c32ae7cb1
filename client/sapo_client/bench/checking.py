"""Verification in the jail, compared with the original scorer in this process, and under hostile load."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

import trio

from sapo_client.bench.harness import BenchHarness, open_harness
from sapo_client.bench.spread import Spread
from sapo_client.bench.swarm import GROUP, BenchAuthor
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.generators import Item, Underivable, derive, solution
from sapo_verification.types import AdmittedRollout
from sapo_verification.verifier import MAX_REMEMBERED

HOSTILE_ANSWERS_PER_SECOND: Final = 1000
HOSTILE_AUTHORS: Final = 256
"""Number of hostile authors; large, because new keys cost nothing."""

ROUNDS: Final = 5
TICK_SECONDS: Final = 0.005
"""Interval at which pauses of the event loop are measured."""

HOSTILE: Final = (
    b"__import__('os').system('id')",
    b"().__class__.__base__.__subclasses__()",
    b"9**9**9**9",
    b"9" * 4000,
    b"(" * 4000,
    b"[[" * 2000,
    b"<answer>" * 500,
    b"1/0",
    b"\\frac{1}{0}",
    b"-1e999999999",
    "\u202e1\u200b".encode() * 300,
    b"P & " * 1000,
    b"\x00" * 100,
    b"1." + b"3" * 4000,
    b"while True: pass",
    b"exit()",
)


@dataclass(frozen=True, slots=True)
class CheckingRate:
    """Seconds per rollout, including derivation of the task and scoring of the whole group.

    Attributes:
        cost: ratio of the time in the jail to the time in this process.
    """

    rollouts: int
    in_process_seconds: Spread
    jailed_seconds: Spread
    cost: Spread


@dataclass(frozen=True, slots=True)
class LoadRate:
    """Rates of honest verification without and with hostile load, and pauses of the event loop.

    Attributes:
        share: ratio of the honest rate under load to the rate without load, pair by pair.
    """

    offered_answers_per_second: float
    calm_per_second: Spread
    loaded_per_second: Spread
    share: Spread
    calm_pause_seconds: float
    longest_pause_seconds: float


async def checking_rate(rollouts: int) -> CheckingRate:
    """Measure the same rollouts in the jail and with the original scorers in this process, in turn."""
    async with open_harness() as harness:
        author = BenchAuthor(1)
        admitted = _honest(harness, author, rollouts)
        await _jailed_seconds(harness, _honest(harness, author, rollouts))  # warm-up, as in a running node
        _stock_seconds(harness, author, admitted)
        in_process, jailed = [], []
        for start in range(ROUNDS):
            part = admitted[start::ROUNDS]
            in_process.append(_stock_seconds(harness, author, part) / len(part))
            jailed.append(await _jailed_seconds(harness, part) / len(part))
    cost = Spread.of_ratios(jailed, in_process)
    return CheckingRate(rollouts, Spread.of(in_process), Spread.of(jailed), cost)


async def _jailed_seconds(harness: BenchHarness, admitted: Sequence[AdmittedRollout]) -> float:
    began = time.perf_counter()
    for rollout in admitted:
        await harness.engine.verify(rollout)
    return time.perf_counter() - began


def _stock_seconds(harness: BenchHarness, author: BenchAuthor, admitted: Sequence[AdmittedRollout]) -> float:
    began = time.perf_counter()
    _stock(harness, author, admitted)
    return time.perf_counter() - began


def _honest(harness: BenchHarness, author: BenchAuthor, count: int) -> list[AdmittedRollout]:
    """Return admitted rollouts of all families in turn; half of each group is right."""
    gate = harness.swarm.admission([author])
    families = harness.swarm.manifest.suite.families
    admitted: list[AdmittedRollout] = []
    while len(admitted) < count:
        slot = next(harness.slots)
        place = slot % len(families)
        item = _item(harness, author, place, slot)
        answer = item and solution(families[place], item)
        if not answer:
            continue
        group = [answer.encode() if number % 2 else b"no idea" for number in range(GROUP)]
        message = harness.swarm.message(author, place, slot, group)
        admitted.append(gate.admit(message, harness.swarm.now_seconds))
    return admitted


def _item(harness: BenchHarness, author: BenchAuthor, place: int, slot: int) -> Item | None:
    task = harness.swarm.task(author, place, slot)
    try:
        return derive(harness.swarm.manifest.suite.families[place], task.seed)
    except Underivable:
        return None


def _stock(
    harness: BenchHarness, author: BenchAuthor, admitted: Sequence[AdmittedRollout]
) -> list[list[float]]:
    """Derive the item and score all completions with the original scorer, as a trainer without a jail."""
    families = harness.swarm.manifest.suite.families
    scorers: dict[str, Any] = {}
    rewards = []
    for each in admitted:
        rollout = each.rollout
        name = families[rollout.family].name
        scorer = scorers.get(name) or scorers.setdefault(name, create_dataset(name, size=1))
        item = _item(harness, author, rollout.family, rollout.slot)
        texts = [completion.decode() for completion in rollout.completions]
        rewards.append([scorer.score_answer(text, item.entry) for text in texts] if item else [])
    return rewards


async def load_rate(seconds: float) -> LoadRate:
    """Measure honest verification without and with hostile load, in turn, with alternating order."""
    strangers = [BenchAuthor(100 + number) for number in range(HOSTILE_AUTHORS)]
    async with open_harness(strangers) as harness:
        honest = cycle(
            _honest(harness, BenchAuthor(1), MAX_REMEMBERED + 256)
        )  # removed before it is received again
        hostile, phase = iter(_hostile(harness, strangers, seconds)), seconds / ROUNDS
        calm, loaded, offered = [], [], [0]
        await _measure(harness, honest, phase, iter(()), offered)  # warm-up, as in a running node
        for number in range(ROUNDS):
            for is_loaded in (number % 2 == 0, number % 2 == 1):
                if is_loaded:
                    loaded.append(await _measure(harness, honest, phase, hostile, offered))
                else:
                    await _settled(harness)
                    calm.append(await _measure(harness, honest, phase, iter(()), offered))
    calm_rates, rates = ([rate for rate, _ in phases] for phases in (calm, loaded))
    return LoadRate(
        offered[0] * len(HOSTILE) / seconds,
        Spread.of(calm_rates),
        Spread.of(rates),
        Spread.of_ratios(rates, calm_rates),
        max(pause for _, pause in calm),
        max(pause for _, pause in loaded),
    )


async def _settled(harness: BenchHarness) -> None:
    """Wait until all audits of hostile messages are done, so that they do not affect the next measurement."""
    while len(harness.engine.audits):
        await trio.sleep(TICK_SECONDS)


async def _measure(
    harness: BenchHarness,
    honest: Iterator[AdmittedRollout],
    seconds: float,
    hostile: Iterator[bytes],
    offered: list[int],
) -> tuple[float, float]:
    """Return the rollouts verified per second, and the longest pause of the event loop."""
    pauses = [0.0]
    done = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, pauses)
        nursery.start_soon(_offer, harness, hostile, offered)
        began = time.perf_counter()
        for rollout in honest:
            await harness.engine.verify(rollout)
            done += 1
            if time.perf_counter() - began > seconds:
                break
        took = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    return done / took, max(pauses)


async def _watch(pauses: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await trio.sleep(TICK_SECONDS)
        pauses[0] = max(pauses[0], time.perf_counter() - began - TICK_SECONDS)


def _hostile(harness: BenchHarness, strangers: Sequence[BenchAuthor], seconds: float) -> list[bytes]:
    """Return validly signed rollouts with hostile answers, of many authors, enough for the duration."""
    families = len(harness.swarm.manifest.suite.families)
    count = int(2 * seconds * HOSTILE_ANSWERS_PER_SECOND / len(HOSTILE)) + 1
    return [
        harness.swarm.message(
            strangers[number % len(strangers)], number % families, number // len(strangers), HOSTILE
        )
        for number in range(count)
    ]


async def _offer(harness: BenchHarness, messages: Iterator[bytes], offered: list[int]) -> None:
    """Submit messages at the hostile rate, as the transport does, until cancelled."""
    due = time.perf_counter()
    for message in messages:
        due += len(HOSTILE) / HOSTILE_ANSWERS_PER_SECOND
        await trio.sleep(max(0.0, due - time.perf_counter()))
        harness.gossip.validate_rollout(message, "a stranger")
        offered[0] += 1
