"""A policy, a suite, a swarm with a chain, and a run of two nodes, shared by several tests."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from support.auditor_harness import World
from support.nodes import Home, manifest_of, until
from support.warm_learners import WarmLearners
from support.weekday_policy import FAMILY, make_weekday_policy

from sapo_client.learner import process
from sapo_client.node.app import NodeApp
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite
from sapo_verification.suites.catalogue import suite

SOURCES = os.pathsep.join(path for path in sys.path if path)

STEPS = 5
SHARED_STEPS = 2


@pytest.fixture(autouse=True)
def _children_find_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCES)


@pytest.fixture(scope="session", autouse=True)
def _warm_learners() -> Iterator[None]:
    """Let nodes in this process start their learners without imports, in the session's fixtures, too."""
    learners = WarmLearners({**os.environ, "PYTHONPATH": SOURCES}, process.start_child)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "start_child", learners.open)
        yield
    learners.close()


@pytest.fixture
def without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit oneDNN to instructions below bfloat16's, so that learners compute in float32 by default."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a policy that is right once in seven completions."""
    return make_weekday_policy(tmp_path_factory.mktemp("policy") / "weekdays")


@pytest.fixture(scope="session")
def weekdays() -> Suite:
    """Return the suite of the only family that the policy knows, with its real sample digest."""
    return suite("nano", [FAMILY])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Yield a new swarm with a chain and registered auditors and workers; no node runs yet."""
    with World.running(tmp_path) as created:
        yield created


@dataclass
class TwoNodeRun:
    """Two nodes that trained together; then the first was stopped and started again, and meanwhile the
    second one's learner was killed.

    Attributes:
        exit_codes: exit codes of the first node's two runs and of the second node.
        reports: the first node's reports through its control API, while both ran.
        stopped_at: the first node's step when it was stopped.
    """

    first: Home
    second: Home
    exit_codes: list[int]
    reports: dict[str, str]
    stopped_at: int

    @property
    def homes(self) -> tuple[tuple[Home, Home], tuple[Home, Home]]:
        """Each node with the other."""
        return (self.first, self.second), (self.second, self.first)


@pytest.fixture(scope="session")
def two_nodes(
    policy: Path, weekdays: Suite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoNodeRun]:
    """Run both nodes in one swarm without a chain, within one epoch."""
    root, manifest = tmp_path_factory.mktemp("two_nodes"), manifest_of(weekdays)
    first, second = (Home(root / f"{number}", number, manifest, policy) for number in (1, 2))
    interrupt = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SOURCES)
        yield trio.run(_run_both, first, second)
    signal.signal(signal.SIGINT, interrupt)  # two nodes in one process do not end in the order of their start


async def _run_both(first: Home, second: Home) -> TwoNodeRun:
    hub, codes = MemoryHub(), list[int]()

    async def run(node: NodeApp) -> None:
        codes.append(await node.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, first.node(hub, neighbours=[second]))
        nursery.start_soon(run, second.node(hub, neighbours=[first]))
        await until(lambda: _has_learned_from_others(first) and _has_learned_from_others(second))
        reports = {name: json.dumps(await first.get(name)) for name in ("status", "peers", "rollouts")}
        await first.stop()
        await until(lambda: codes)
        stopped_at = int(str(first.events("stopped")[-1]["step"]))
        second.signal_learner()
        nursery.start_soon(run, first.node(hub, neighbours=[second]))
        await until(lambda: _has_learned_from_others(first, since_step=stopped_at))
        await until(lambda: _steps_after_the_death(second) > 1)
        await first.stop()
        await until(lambda: len(codes) == 2)  # it would see the second one end during its last round
        await second.stop()
    return TwoNodeRun(first, second, codes, reports, stopped_at)


def _has_learned_from_others(home: Home, since_step: int = 0) -> bool:
    steps = [step for step in home.events("step") if int(str(step["step"])) > since_step]
    shared = sum(bool(step["external"]) for step in steps)
    return len(steps) >= STEPS and shared >= SHARED_STEPS and len(home.events("peer_connected")) > 0


def _steps_after_the_death(home: Home) -> int:
    events = [event["event"] for event in home.events("step", "learner_restarted")]
    return len(events) - 1 - events.index("learner_restarted") if "learner_restarted" in events else 0
