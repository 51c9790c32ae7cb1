"""Whole nodes that practise and imitate: no text of others enters the policy gradient."""

from __future__ import annotations

from collections import Counter
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
    steps = {seq for seq, _ in used(home, "practised")}
    return len(steps) >= PRACTISED_STEPS and bool(used(home, "imitated"))


def used(home: Home, *uses: str) -> list[tuple[int, dict[str, Any]]]:
    """Return each rollout of others that a step used in one of these ways, with the step event's number."""
    return [
        (cast(int, step["seq"]), group)
        for step in home.events("step")
        for group in cast("list[dict[str, Any]]", step["external"])
        if group["use"] in uses
    ]


def test_no_text_of_others_is_reinforced(homes: list[Home]) -> None:
    for home in homes:
        assert used(home, "reinforced") == []


def test_used_text_was_verified_before_and_is_by_the_other_node(homes: list[Home]) -> None:
    for home, other in zip(homes, reversed(homes), strict=True):
        verified = {event["content_id"]: cast(int, event["seq"]) for event in home.events("verified")}
        published = {event["content_id"] for event in other.events("published")}
        for seq, group in used(home, "practised", "imitated"):
            assert verified[group["content_id"]] < seq
            assert group["content_id"] in published
            assert group["account"] == other.identity.account.hex()
        hints = [group["content_id"] for _, group in used(home, "practised")]
        assert len(hints) == len(set(hints)), "no task is practised twice"


def test_practice_replaces_external_groups_and_is_not_published(homes: list[Home]) -> None:
    for home in homes:
        steps = home.events("step")
        per_step = Counter(seq for seq, _ in used(home, "practised"))
        assert max(per_step.values()) <= EXTERNAL_GROUPS
        local = [id_ for step in steps for id_ in cast("list[str]", step["local"])]
        assert {event["content_id"] for event in home.events("published")} >= set(local)
        assert not {group["content_id"] for _, group in used(home, "practised")} & set(local)
