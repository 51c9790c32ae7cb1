"""Verification in the jail: against the stock scorer in process, and under hostile load."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

from sapo_client.bench.swarm import GROUP, Author, BenchSwarm
from sapo_client.config import VerificationConfig
from sapo_client.node.audit import Audit, AuditShares
from sapo_client.node.beacons import Beacons
from sapo_client.node.gossip import AUDIT_QUEUE
from sapo_client.observe.events import EventLog
from sapo_protocol.errors import RemoteProtocolError
from sapo_verification.admission import Admission
from sapo_verification.checkers import CheckerPool
from sapo_verification.generators import Item, Underivable, derive, solution
from sapo_verification.observer import NullObserver
from sapo_verification.pool import Pool, PoolLimits
from sapo_verification.reputation import Reputation
from sapo_verification.screens import Screens
from sapo_verification.types import AdmittedRollout
from sapo_verification.verifier import MAX_REMEMBERED, Verifier

HOSTILE_ANSWERS_PER_SECOND: Final = 1000
HOSTILE_AUTHORS: Final = 16
ROUNDS: Final = 5
TICK_SECONDS: Final = 0.005
"""The event loop is asked this often whether it still runs."""

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
    """Seconds per rollout, derivation of the task and scoring of the whole group included."""

    rollouts: int
    in_process_seconds: float
    jailed_seconds: float

    @property
    def cost(self) -> float:
        """How many times as long the jail takes."""
        return self.jailed_seconds / self.in_process_seconds


@dataclass(frozen=True, slots=True)
class LoadRate:
    """Honest verification alone and under hostile load, and how long the event loop stood still."""

    offered_answers_per_second: float
    calm_per_second: float
    loaded_per_second: float
    calm_pause_seconds: float
    longest_pause_seconds: float

    @property
    def share(self) -> float:
        """What hostile load leaves of the honest rate."""
        return self.loaded_per_second / self.calm_per_second


@dataclass
class Desk:
    """A node's road from admission to verification, with its real parts."""

    swarm: BenchSwarm
    verifier: Verifier
    pool: Pool
    audit: Audit
    audit_queue: trio.MemorySendChannel[AdmittedRollout]
    slots: Iterator[int] = field(default_factory=lambda: iter(range(1 << 20)))


@asynccontextmanager
async def open_desk() -> AsyncIterator[Desk]:
    """A desk whose workers are warm."""
    swarm = BenchSwarm()
    with TemporaryDirectory(prefix="sapo-bench-") as folder:
        events = EventLog(Path(folder) / "events.jsonl")
        beacons = Beacons(swarm.manifest, None, events)
        await beacons.obtain(0)
        checkers = CheckerPool(swarm.manifest.suite)
        reputation = Reputation(Path(folder) / "bench.sqlite")
        screens = Screens(swarm.manifest.suite.families, bytes(32))
        verifier = Verifier(
            swarm.manifest.swarm_id, checkers.check, beacons.known, reputation, NullObserver(), screens
        )
        pool = Pool(Path(folder) / "bench.sqlite", PoolLimits(), reputation)
        send, receive = trio.open_memory_channel[AdmittedRollout](AUDIT_QUEUE)
        config = VerificationConfig()
        shares = AuditShares(config.audit_share, config.audit_time)
        audit = Audit(receive, verifier, pool, reputation, beacons, shares, events, random.Random(0))
        async with trio.open_nursery() as nursery:
            await nursery.start(checkers.run)
            yield Desk(swarm, verifier, pool, audit, send)
            nursery.cancel_scope.cancel()
        events.close()


async def checking_rate(rollouts: int) -> CheckingRate:
    """The same rollouts through the jail and through the stock scorers of this process."""
    async with open_desk() as desk:
        author = Author(1)
        admitted = _honest(desk, author, rollouts)
        _stock(desk, author, admitted[:10])  # imports and caches are not what is measured
        in_process = _timed(lambda: _stock(desk, author, admitted))
        began = time.perf_counter()
        for rollout in admitted:
            await desk.verifier.verify(rollout)
        jailed = time.perf_counter() - began
    return CheckingRate(rollouts, in_process / rollouts, jailed / rollouts)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _honest(desk: Desk, author: Author, count: int) -> list[AdmittedRollout]:
    """Admitted rollouts of every family in turn, half of each group right."""
    gate = desk.swarm.admission([author])
    families = desk.swarm.manifest.suite.families
    admitted: list[AdmittedRollout] = []
    while len(admitted) < count:
        slot = next(desk.slots)
        place = slot % len(families)
        item = _item(desk, author, place, slot)
        answer = item and solution(families[place], item)
        if not answer:
            continue
        group = [answer.encode() if number % 2 else b"no idea" for number in range(GROUP)]
        message = desk.swarm.message(author, place, slot, group)
        admitted.append(gate.judge(message, desk.swarm.now_seconds))
    return admitted


def _item(desk: Desk, author: Author, place: int, slot: int) -> Item | None:
    task = desk.swarm.task(author, place, slot)
    try:
        return derive(desk.swarm.manifest.suite.families[place], task.seed)
    except Underivable:
        return None


def _stock(desk: Desk, author: Author, admitted: Sequence[AdmittedRollout]) -> list[list[float]]:
    """What a trainer without a jail does: derive the item, hand every completion to the stock scorer."""
    from reasoning_gym.factory import create_dataset

    families = desk.swarm.manifest.suite.families
    scorers: dict[str, Any] = {}
    rewards = []
    for each in admitted:
        rollout = each.rollout
        name = families[rollout.family].name
        scorer = scorers.get(name) or scorers.setdefault(name, create_dataset(name, size=1))
        item = _item(desk, author, rollout.family, rollout.slot)
        texts = [completion.decode() for completion in rollout.completions]
        rewards.append([scorer.score_answer(text, item.entry) for text in texts] if item else [])
    return rewards


async def load_rate(seconds: float) -> LoadRate:
    """Honest verification alone and under hostile load, in turn; each side's best round counts."""
    async with open_desk() as desk:
        honest = cycle(_honest(desk, Author(1), MAX_REMEMBERED + 256))  # forgotten before it comes again
        hostile, phase = iter(_hostile(desk, seconds)), seconds / ROUNDS
        gate = desk.swarm.admission([Author(100 + number) for number in range(HOSTILE_AUTHORS)])
        calm, loaded, offered = [], [], [0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.audit.run)
            for _ in range(ROUNDS):
                calm.append(await _measure(desk, honest, phase))
                with trio.CancelScope() as scope:
                    nursery.start_soon(_offer, desk, gate, hostile, offered, scope)
                    loaded.append(await _measure(desk, honest, phase))
                    scope.cancel()
            nursery.cancel_scope.cancel()
    rates = [max(rate for rate, _ in phases) for phases in (calm, loaded)]
    pauses = [max(pause for _, pause in phases) for phases in (calm, loaded)]
    return LoadRate(offered[0] * len(HOSTILE) / seconds, *rates, *pauses)


async def _measure(desk: Desk, honest: Iterator[AdmittedRollout], seconds: float) -> tuple[float, float]:
    """Rollouts verified per second, and the longest pause of the event loop meanwhile."""
    pauses = [0.0]
    done = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, pauses)
        began = time.perf_counter()
        for rollout in honest:
            await desk.verifier.verify(rollout)
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


def _hostile(desk: Desk, seconds: float) -> list[bytes]:
    """Genuinely signed rollouts full of hostile answers, of many authors, enough for the time."""
    families = len(desk.swarm.manifest.suite.families)
    count = int(2 * seconds * HOSTILE_ANSWERS_PER_SECOND / len(HOSTILE)) + 1
    return [
        desk.swarm.message(
            Author(100 + number % HOSTILE_AUTHORS), number % families, number // HOSTILE_AUTHORS, HOSTILE
        )
        for number in range(count)
    ]


async def _offer(
    desk: Desk, gate: Admission, messages: Iterator[bytes], offered: list[int], until: trio.CancelScope
) -> None:
    """Hands messages in at the hostile rate, as gossip does: admission, pool, audit queue."""
    due = time.perf_counter()
    for message in messages:
        due += len(HOSTILE) / HOSTILE_ANSWERS_PER_SECOND
        await trio.sleep(max(0.0, due - time.perf_counter()))
        if until.cancel_called:
            return
        offered[0] += 1
        with suppress(RemoteProtocolError, trio.WouldBlock):
            admitted = gate.judge(message, desk.swarm.now_seconds)
            desk.pool.offer(admitted)
            desk.audit_queue.send_nowait(admitted)
