"""Whole nodes that imitate, with a candidate beside the policy and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import trio
from support.nodes import PATIENCE_SECONDS, Home, manifest_of, until

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

TASKS = 16
COMPARISONS = 3


async def test_a_node_compares_its_candidate_after_each_round_unless_it_has_none(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    manifest, hub = manifest_of(weekdays), MemoryHub()
    averaged = {"demonstration_averaging": 0.5, "demonstration_steps": 2, "demonstration_rate": 1e-4}
    with_one, without = (
        Home(
            tmp_path / f"{number}",
            number,
            manifest,
            policy,
            learner={**averaged, "comparison_tasks": tasks},
            sampler={"text_use": "imitate"},
        )
        for number, tasks in ((1, TASKS), (2, 0))
    )

    def imitated(home: Home) -> int:
        return sum(any(each["use"] == "imitated" for each in step["external"]) for step in steps_of(home))

    with trio.fail_after(3 * PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(with_one.node(hub, neighbours=[without]).run)
            nursery.start_soon(without.node(hub, neighbours=[with_one]).run)
            await until(lambda: len(with_one.events("candidate_compared")) >= COMPARISONS)
            await until(lambda: imitated(without) >= COMPARISONS)
            await with_one.stop()
            await without.stop()
    found = cast("list[dict[str, Any]]", with_one.events("candidate_compared"))
    steps = [each["step"] for each in found]
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    assert {each["tasks"] for each in found} == {TASKS}
    assert without.events("candidate_compared") == []
    for home in (with_one, without):
        assert home.events("comparison_failed", "service_failed", "learner_restarted") == []


def steps_of(home: Home) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", home.events("step"))
