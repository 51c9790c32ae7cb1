"""Training rounds of whole nodes: batches, signed slots, and restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import trio
from support.nodes import COMPLETIONS, EXTERNAL_GROUPS, LOCAL_GROUPS, PATIENCE_SECONDS, Home, manifest_of
from support.policies import make_policy_folder

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

GROUPS = LOCAL_GROUPS + EXTERNAL_GROUPS


def external(home: Home) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each external group of each step, with the step event's number."""
    for step in home.events("step"):
        for group in cast("list[dict[str, str]]", step["external"]):
            yield cast(int, step["seq"]), group


def ids(home: Home, *events: str) -> set[Any]:
    return {event["content_id"] for event in home.events(*events)}


def test_all_runs_end_with_exit_code_zero(two_nodes: Any) -> None:
    assert two_nodes.exit_codes == [0, 0, 0]


def test_every_external_group_was_admitted_and_verified_here_before(two_nodes: Any) -> None:
    for home, other in two_nodes.homes:
        admitted = {event["content_id"]: event for event in home.events("admitted")}
        verified = {event["content_id"]: event["seq"] for event in home.events("verified")}
        groups = list(external(home))
        assert groups
        for seq, group in groups:
            of = admitted[group["content_id"]]
            source = {key: of[key] for key in ("content_id", "account", "node")}
            assert {**source, "use": "reinforced"} == group
            assert group["node"] == other.identity.node_id.hex()
            assert of["seq"] < verified[group["content_id"]] < seq


def test_external_groups_are_those_published_by_the_other_node(two_nodes: Any) -> None:
    for home, other in two_nodes.homes:
        taken = {group["content_id"] for _, group in external(home)}
        assert taken <= ids(other, "published")
        assert not taken & ids(home, "published")
        local = [id_ for step in home.events("step") for id_ in cast("list[str]", step["local"])]
        assert set(local) <= ids(home, "published")
        assert len(local) == len(set(local))


def test_no_group_is_trained_twice_not_even_across_a_restart(two_nodes: Any) -> None:
    for home, _ in two_nodes.homes:
        taken = [group["content_id"] for _, group in external(home)]
        assert len(taken) == len(set(taken))


def test_every_batch_has_all_groups_and_at_most_the_external_limit(two_nodes: Any) -> None:
    for home, _ in two_nodes.homes:
        assert home.events("own_rollout_refused", "slot_skipped", "service_failed") == []
        for step in home.events("step"):
            local, others = cast("list[str]", step["local"]), cast("list[str]", step["external"])
            assert (len(local) + len(others), len(others) <= EXTERNAL_GROUPS) == (GROUPS, True)


def test_no_slot_is_signed_twice(two_nodes: Any) -> None:
    for home, _ in two_nodes.homes:
        slots = [(event["epoch"], event["slot"]) for event in home.events("published")]
        assert len(slots) == len(set(slots))
    assert {event["epoch"] for event in two_nodes.first.events("published")} == {
        0
    }  # the restart fell into it


def test_the_canary_is_active_from_the_start(two_nodes: Any) -> None:
    for home, _ in two_nodes.homes:
        assert (home.data.learner / "canary.json").exists()
        assert list((home.data.learner / "good").iterdir())


def test_a_restart_continues_at_its_step(two_nodes: Any) -> None:
    steps = [event["step"] for event in two_nodes.first.events("step")]
    assert [event["step"] for event in two_nodes.first.events("node_started")] == [0, two_nodes.stopped_at]
    assert [after - before for before, after in pairwise([0, *steps])] == [1] * len(steps)
    assert two_nodes.first.events("stopped")[-1]["step"] == steps[-1] > two_nodes.stopped_at


def test_a_peer_is_introduced_once_per_connection(two_nodes: Any) -> None:
    names = ("node_started", "peer_connected", "peer_lost")
    assert [event["event"] for event in two_nodes.first.events(*names)] == [
        "node_started",
        "peer_connected",
    ] * 2
    met = [event["event"] for event in two_nodes.second.events("peer_connected", "peer_lost")]
    assert met[:1] == ["peer_connected"]
    assert all(before != after for before, after in pairwise(met))


async def test_an_empty_quota_waits_for_the_next_epoch(policy: Path, weekdays: Suite, tmp_path: Path) -> None:
    manifest = manifest_of(weekdays, slots=GROUPS + 1)
    home = Home(tmp_path, 1, manifest, policy)

    def clock() -> float:
        """Stand still until the quota is used, then continue shortly before the next epoch."""
        if not (used := home.events("quota_used")):
            return manifest.genesis_seconds + 1.0
        passed = datetime.now(UTC) - datetime.fromisoformat(str(used[0]["time"]))
        return manifest.genesis_seconds + manifest.epoch_seconds - 0.2 + passed.total_seconds()

    with trio.fail_after(PATIENCE_SECONDS):  # a full and a small batch in each epoch
        assert await home.node(MemoryHub(), steps=4, clock=clock).run() == 0
    steps, published = home.events("step"), home.events("published")
    assert [(step["step"], len(cast("list[str]", step["local"]))) for step in steps] == [
        *((1, GROUPS), (2, 1), (3, GROUPS), (4, 1))
    ]
    slots = [(event["epoch"], event["slot"]) for event in published]
    assert slots == [(epoch, slot) for epoch in (0, 1) for slot in range(GROUPS + 1)]
    assert [event["until_epoch"] for event in home.events("quota_used")] == [1]
    assert home.events("service_failed") == []


async def test_own_groups_with_text_that_cannot_be_seen_are_not_published(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    """Others would hold it against the account; at this temperature the policy writes any bytes."""
    home = Home(tmp_path, 1, manifest_of(weekdays), policy, learner={"temperature": 10.0})
    with trio.fail_after(PATIENCE_SECONDS):
        assert await home.node(MemoryHub(), steps=6).run() == 0
    withheld, published = home.events("own_rollout_refused"), home.events("published")
    assert {event["reason"] for event in withheld} == {"text_policy"}
    assert len(withheld) + len(published) == 6 * GROUPS
    assert "text_policy" not in {event["reason"] for event in home.events("refused")}


def test_completions_fill_the_groups(two_nodes: Any) -> None:
    for rollout in json.loads(two_nodes.reports["rollouts"])["rollouts"]:
        assert rollout["completions"] == COMPLETIONS


async def test_tasks_that_exceed_the_models_window_are_skipped(weekdays: Suite, tmp_path: Path) -> None:
    """Beside answers of 121 tokens, a window of 128 has room for half of the tasks."""
    model = make_policy_folder(tmp_path / "model", "gpt2")
    home = Home(tmp_path, 1, manifest_of(weekdays), model, learner={"max_new_tokens": 121})
    with trio.fail_after(PATIENCE_SECONDS):
        assert await home.node(MemoryHub(), steps=6).run() == 0
    skipped, answered = home.events("slot_skipped"), home.events("own_rollout_refused", "published")
    detail = "the prompt and an answer exceed the model's context window"
    reasons = {(event["family"], event["reason"], event["detail"]) for event in skipped}
    assert reasons == {("calendar_arithmetic", "window", detail)}
    assert (len(answered) > 0, len(skipped) + len(answered)) == (True, 6 * GROUPS)
    assert [event["too_long"] for event in home.events("step")] == [0] * 6


async def test_tasks_for_which_the_chat_template_raises_are_skipped(weekdays: Suite, tmp_path: Path) -> None:
    model = make_policy_folder(tmp_path / "model", chat=True)
    raises = "{% if 'Monday' in messages[0]['content'] %}{{ raise_exception('no Mondays') }}{% endif %}"
    template = model / "chat_template.jinja"
    template.write_text(raises + template.read_text())
    home = Home(tmp_path, 1, manifest_of(weekdays), model)
    with trio.fail_after(PATIENCE_SECONDS):
        assert await home.node(MemoryHub(), steps=6).run() == 0
    skipped, answered = home.events("slot_skipped"), home.events("own_rollout_refused", "published")
    detail = "the model's chat template raises TemplateError: no Mondays"
    assert {(event["reason"], event["detail"]) for event in skipped} == {("template", detail)}
    assert (len(answered) > 0, len(skipped) + len(answered)) == (True, 6 * GROUPS)
    assert [event["template_raised"] for event in home.events("step")] == [0] * 6
