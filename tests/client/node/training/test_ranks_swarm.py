"""A swarm of two whole nodes whose learners have two ranks each; one rank is killed during training."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from support.learner_child import other_ranks
from support.nodes import Home, manifest_of, until

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

PATIENCE_SECONDS = 500
"""Each step is that of two processes, of which four share the machine with everything else."""


def events(home: Home, name: str) -> list[dict[str, Any]]:
    """Return a node's events of one name."""
    return cast("list[dict[str, Any]]", home.events(name))


def ranks_of(home: Home) -> list[int]:
    """Return the process ids of the ranks that a node's learner has started."""
    log = home.data.learner / "learner.log"
    found = [
        process for process in Path("/proc").iterdir() if process.name.isdigit() and logs_to(process, log)
    ]
    return [other for process in found for other in other_ranks(int(process.name))]


def logs_to(process: Path, log: Path) -> bool:
    """Whether a process writes its errors to a file."""
    try:
        return (process / "fd" / "2").readlink() == log
    except OSError:
        return False  # it ended, or belongs to another user


@pytest.mark.e2e
@pytest.mark.long
def test_learners_of_two_ranks_share_and_survive_the_end_of_one(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    manifest = manifest_of(weekdays)
    sampler, learner = {"text_use": "hybrid", "strategy": "useful"}, {"ranks": 2, "device": "cpu"}
    first, second = (
        Home(tmp_path / f"{n}", n, manifest, policy, sampler=sampler, learner=learner) for n in (1, 2)
    )

    def shares(home: Home) -> bool:
        return any(step["external"] for step in events(home, "step"))

    def is_back() -> bool:
        deaths = events(second, "learner_restarted")
        return bool(deaths) and events(second, "step")[-1]["seq"] > deaths[0]["seq"]

    async def run() -> None:
        hub = MemoryHub()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.node(hub, neighbours=[second]).run)
            nursery.start_soon(second.node(hub, neighbours=[first]).run)
            await until(lambda: shares(first) and shares(second), PATIENCE_SECONDS)
            (rank,) = ranks_of(second)
            os.kill(rank, signal.SIGKILL)
            await until(is_back, PATIENCE_SECONDS)
            await first.stop()
            await second.stop()

    trio.run(run)
    for home in (first, second):
        steps = events(home, "step")
        assert {step["ranks"] for step in steps} == {2}
        assert home.events("service_failed") == []
    [death] = events(second, "learner_restarted")
    before = [event["step"] for event in events(second, "step") if event["seq"] < death["seq"]]
    after = [event["step"] for event in events(second, "step") if event["seq"] > death["seq"]]
    assert 1 < after[0] <= before[-1] + 1, "it goes on at its checkpoint"
    assert "died" in death["why"]
