"""Whole nodes that practise and imitate: no text of others enters the policy gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import trio
from support.nodes import EXTERNAL_GROUPS, Home, manifest_of, until

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

PRACTISED_STEPS = 3


@pytest.fixture(scope="module")
def homes(policy: Path, weekdays: Suite, tmp_path_factory: pytest.TempPathFactory) -> list[Home]:
    """Run two nodes until both have practised tasks and imitated answers of the other."""
    root, manifest = tmp_path_factory.mktemp("hybrid"), manifest_of(weekdays)
    sampler = {"text_use": "hybrid", "strategy": "useful"}
    first, second = (Home(root / f"{n}", n, manifest, policy, sampler=sampler) for n in (1, 2))

    async def run() -> None:
        hub = MemoryHub()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.node(hub, neighbours=[second]).run)
            nursery.start_soon(second.node(hub, neighbours=[first]).run)
            await until(lambda: all(map(has_learned, (first, second))))
            await first.stop()
            await second.stop()

    trio.run(run)
    return [first, second]


def has_learned(home: Home) -> bool:
    steps = home.events("step")
    practised = sum(bool(step["practised"]) for step in steps)
    return practised >= PRACTISED_STEPS and any(step["demonstrations"] for step in steps)


def practised(home: Home) -> list[tuple[int, dict[str, Any]]]:
    """Return each practised group of each step, with the step event's number."""
    return [
        (cast(int, step["seq"]), group)
        for step in home.events("step")
        for group in cast("list[dict[str, Any]]", step["practised"])
    ]


def test_no_text_of_others_is_reinforced(homes: list[Home]) -> None:
    for home in homes:
        assert {tuple(cast("list[object]", step["external"])) for step in home.events("step")} == {()}


def test_hints_are_verified_rollouts_of_the_other_and_each_is_used_once(homes: list[Home]) -> None:
    for home, other in zip(homes, reversed(homes), strict=True):
        verified = {event["content_id"]: cast(int, event["seq"]) for event in home.events("verified")}
        published = {event["content_id"] for event in other.events("published")}
        groups = practised(home)
        for seq, group in groups:
            assert verified[group["content_id"]] < seq
            assert group["content_id"] in published
            assert group["account"] == other.identity.account.hex()
        hints = [group["content_id"] for _, group in groups]
        assert len(hints) == len(set(hints))


def test_practice_takes_the_places_of_external_groups_and_is_not_published(homes: list[Home]) -> None:
    for home in homes:
        steps = home.events("step")
        assert max(len(cast("list[object]", step["practised"])) for step in steps) <= EXTERNAL_GROUPS
        local = [id_ for step in steps for id_ in cast("list[str]", step["local"])]
        assert {event["content_id"] for event in home.events("published")} >= set(local)
        assert not {group["content_id"] for _, group in practised(home)} & set(local)
