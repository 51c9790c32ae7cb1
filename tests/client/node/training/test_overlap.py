"""Whole nodes that sample the next round while the present one trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import trio
from support.nodes import EXTERNAL_GROUPS, LOCAL_GROUPS, PATIENCE_SECONDS, Home, manifest_of, until

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

GROUPS = LOCAL_GROUPS + EXTERNAL_GROUPS
OVERLAP = {"overlap": True}


def steps_of(home: Home) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", home.events("step"))


async def test_rounds_are_one_step_old_and_a_dead_learner_loses_no_slot(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    home = Home(tmp_path, 1, manifest_of(weekdays), policy, learner=OVERLAP)
    codes: list[int] = []
    told: list[Any] = []

    async def run() -> None:
        codes.append(await home.node(MemoryHub(), steps=7).run())

    with trio.fail_after(3 * PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until(lambda: len(steps_of(home)) >= 3)
            told.append(await home.get("status"))
            home.signal_learner()
    steps, [death] = steps_of(home), home.events("learner_restarted")
    ages = [step["age"] for step in steps if step["seq"] < death["seq"]]
    after = [step["age"] for step in steps if step["seq"] > death["seq"]]
    assert (ages, after) == ([0.0, *[1.0] * (len(ages) - 1)], [0.0, *[1.0] * (len(after) - 1)])
    assert (codes, steps[-1]["step"], len(after) > 1) == ([0], 7, True)
    assert {len(step["local"]) for step in steps} == {GROUPS}
    slots = sorted(cast(int, event["slot"]) for event in home.events("published"))
    assert slots == list(range(len(slots))), "the slots of the step that died were answered after it"
    assert home.events("own_rollout_refused", "service_failed") == []
    assert (told[0]["batch_age"], told[0]["ranks"]) == (1.0, 1)


async def test_two_nodes_that_overlap_share_and_stop(policy: Path, weekdays: Suite, tmp_path: Path) -> None:
    manifest = manifest_of(weekdays)
    first, second = (Home(tmp_path / f"{n}", n, manifest, policy, learner=OVERLAP) for n in (1, 2))
    codes: list[int] = []

    def shares(home: Home) -> bool:
        return sum(bool(step["external"]) for step in steps_of(home)) > 1

    async def run(home: Home, other: Home) -> None:
        codes.append(await home.node(hub, neighbours=[other]).run())

    hub = MemoryHub()
    with trio.fail_after(3 * PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, first, second)
            nursery.start_soon(run, second, first)
            await until(lambda: shares(first) and shares(second))
            await first.stop()
            await second.stop()
    assert codes == [0, 0]
    for home in (first, second):
        old = [step["age"] for step in steps_of(home)]
        assert old[0] == 0.0
        assert all(0.0 < age <= 1.0 for age in old[1:])  # a round that draws fewer of others adds own ones
        assert all(step["external_age"] >= 0.0 for step in steps_of(home))
        assert home.events("own_rollout_refused", "service_failed", "learner_restarted") == []
