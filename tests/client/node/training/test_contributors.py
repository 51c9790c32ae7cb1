"""Whole nodes that contribute without training: answers of a server, and of a user at a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from support.completions_server import CompletionsServer
from support.events import objects
from support.nodes import COMPLETIONS, PATIENCE_SECONDS, Home, manifest_of, until

from sapo_client.errors import SapoError
from sapo_client.node.runtime.backends import open_backend
from sapo_client.observe.events import Event
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
STEPS = 3


async def test_a_server_contributes_and_another_node_learns_from_it(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    """The contributor's groups are verified and trained on elsewhere; it takes none itself."""
    manifest, hub = manifest_of(weekdays), MemoryHub()
    learner = Home(tmp_path / "learner", 1, manifest, policy)
    with CompletionsServer().serving() as url:
        settings: dict[str, Any] = {"backend": "endpoint", "endpoint": url, "model": "bundled"}
        server = Home(tmp_path / "server", 2, manifest, policy, learner=settings, sampler={})
        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.node(hub, neighbours=[learner]).run)
                nursery.start_soon(learner.node(hub, neighbours=[server]).run)
                await until(lambda: _external(learner) and len(server.events("step")) >= STEPS)
                await server.stop()
                await learner.stop()
    published = {event["content_id"] for event in server.events("published")}
    assert {group["content_id"] for group in _external(learner)} <= published
    assert (_external(server), server.events("canary")) == ([], [])
    assert [event["step"] for event in server.events("step")][:STEPS] == [1, 2, 3]
    assert any(event["reward"] for event in server.events("step")), "the bundled policy knows weekdays"
    assert server.events("service_failed", "own_rollout_refused") == []


def _external(home: Home) -> list[Event]:
    return [group for step in home.events("step") for group in objects(step["external"])]


async def test_a_person_answers_at_the_terminal(
    policy: Path, weekdays: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, terminal = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(os.dup(terminal), encoding="utf-8"))
    monkeypatch.setattr(sys, "stderr", os.fdopen(terminal, "w", encoding="utf-8"))
    settings: dict[str, Any] = {"backend": "human", "local_groups": 1, "external_groups": 1}
    home = Home(tmp_path, 1, manifest_of(weekdays), policy, learner=settings)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_type_answers, identity)
            assert await home.node(MemoryHub(), steps=2).run() == 0
            nursery.cancel_scope.cancel()
    os.close(identity)
    assert [event["reward"] for event in home.events("step")] == [0.5, 0.5], "one right and one wrong answer"
    assert home.events("service_failed", "own_rollout_refused") == []
    assert len(home.events("published")) == 2


async def _type_answers(identity: int) -> None:
    """Read questions from the terminal and type a right answer, a wrong one, and an empty line."""
    seen = ""
    while True:
        await trio.lowlevel.wait_readable(identity)
        seen += os.read(identity, 4096).decode()
        if (question := re.search(r"(\w+day) ([+-]\d+)\s.*answer 1: $", seen, re.DOTALL)) is None:
            continue
        assert f"up to {COMPLETIONS} answers" in seen
        day = (WEEK.index(question[1]) + int(question[2])) % 7
        os.write(identity, f"{WEEK[day]}\n{WEEK[(day + 1) % 7]}\n\n".encode())
        seen = ""


def test_an_endpoint_without_an_address_is_refused(policy: Path, weekdays: Suite, tmp_path: Path) -> None:
    home = Home(tmp_path, 1, manifest_of(weekdays), policy, learner={"backend": "endpoint"})
    with pytest.raises(SapoError, match="has no endpoint") as caught:
        open_backend(home.config.learner, tmp_path, suite=weekdays, seed=0, fresh=False)
    assert "learner.endpoint" in caught.value.hint
