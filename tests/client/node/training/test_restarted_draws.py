"""What a node draws after a restart: other tasks than after the start before it, and the same ones again if
the same restart is repeated."""

from __future__ import annotations

import shutil
from pathlib import Path

import trio
from support.nodes import LOCAL_GROUPS, PATIENCE_SECONDS, Home, manifest_of

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_verification.suites.catalogue import suite

STEPS = 3


async def drawn(home: Home) -> list[object]:
    """Run a node for some steps; return the families of the tasks that it drew meanwhile."""
    before = len(home.events("published"))
    with trio.fail_after(PATIENCE_SECONDS):
        assert await home.node(MemoryHub(), steps=STEPS).run() == 0
    return [event["family"] for event in home.events("published")[before:]]


async def test_a_restart_continues_with_other_reproducible_draws(tmp_path: Path) -> None:
    manifest, sampler = manifest_of(suite("nano")), {"text_use": "reinforce", "learnable_tasks": False}
    home, again = (
        Home(tmp_path / name, 1, manifest, Path("bundled"), sampler=sampler) for name in ("home", "again")
    )
    first = await drawn(home)
    shutil.copytree(home.data.root, again.data.root, dirs_exist_ok=True)
    second = await drawn(home)
    assert len(first) == len(second) >= STEPS * LOCAL_GROUPS
    assert second != first
    assert await drawn(again) == second
