"""What a node records for its page: stages of a rollout, live decisions, counts by account, bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.rollouts import rollout_of
from support.swarm import EPOCH, Identity, make_suite

from sapo_client.dashboard.history import FigureHistory
from sapo_client.dashboard.recorder import MAX_DECISIONS, DashboardRecorder
from sapo_client.dashboard.rollouts import MAX_OWN_ROLLOUTS, MAX_ROLLOUTS, RolloutUse
from sapo_protocol.rules import STAGES, Rule
from sapo_verification.types import VerifiedRollout

NOW = 1_800_000_000.0
OWN, OTHER = Identity(1).account, Identity(2).account
ANSWERS = {b"1": 1.0, b"2": 0.0}
MESSAGE = b"as it came"


def recorder() -> DashboardRecorder:
    return DashboardRecorder(FigureHistory(":memory:"), make_suite(), OWN, clock=lambda: NOW)


def outcome(recorded: DashboardRecorder, rollout: VerifiedRollout) -> tuple[str, list[bool | None]]:
    """Return the state of a rollout and the result of each stage."""
    seen = recorded.rollouts.get(rollout.content_id)
    assert seen is not None
    assert [stage.name for stage in seen.stages()] == list(STAGES)
    return seen.state, [stage.passed for stage in seen.stages()]


def test_stages_of_an_external_rollout_are_updated_until_it_is_trained_on() -> None:
    recorded, rollout = recorder(), rollout_of(OTHER, 1, ANSWERS)
    recorded.admitted(rollout.admitted, MESSAGE, "peer")
    assert outcome(recorded, rollout) == ("admitted", [True] * 9 + [None] * 5)
    recorded.verified(rollout)
    assert outcome(recorded, rollout) == ("verified", [True] * 12 + [None, True])
    group = {"content_id": rollout.content_id, "account": OTHER, "use": "reinforced"}
    recorded.note("step", {"step": 7, "external": [group], "local": []})
    assert outcome(recorded, rollout) == ("reinforced", [True] * 14)
    seen = recorded.rollouts.get(rollout.content_id)
    assert seen is not None
    assert seen.uses == [RolloutUse(7, "reinforced", "2027-01-15T08:00:00+00:00")]
    assert (seen.forwarder, seen.prompt, seen.rewards) == ("peer", "task 1", (1.0, 0.0))


def test_a_refusal_ends_the_stages_and_a_group_without_advantage_is_no_fault() -> None:
    recorded, bad, even = recorder(), rollout_of(OTHER, 1, ANSWERS), rollout_of(OTHER, 2, {b"1": 1.0})
    for each in (bad, even):
        recorded.admitted(each.admitted, MESSAGE, "peer")
    recorded.refused(Rule.VISIBLE_TEXT, bad.admitted, "a control character")
    assert outcome(recorded, bad) == ("refused: text_policy", [True] * 9 + [False] + [None] * 4)
    recorded.verified(even)
    recorded.refused(Rule.SIGNAL, even.admitted, "all earned 1")
    assert outcome(recorded, even) == ("refused: no_signal", [True] * 10 + [None] * 4)


def test_an_own_rollout_in_a_step_is_recorded_as_trained() -> None:
    recorded, rollout = recorder(), rollout_of(OWN, 1, ANSWERS)
    recorded.verified(rollout)
    recorded.note("step", {"step": 3, "external": [], "local": [rollout.content_id]})
    assert outcome(recorded, rollout)[0] == "trained"


def test_an_own_group_without_advantage_is_not_called_trained() -> None:
    """It is part of its round's batch, and changes nothing."""
    recorded, rollout = recorder(), rollout_of(OWN, 1, {b"1": 1.0, b"2": 1.0})
    recorded.verified(rollout)
    recorded.refused(Rule.SIGNAL, rollout.admitted, "all earned 1")
    recorded.note("step", {"step": 3, "external": [], "local": [rollout.content_id]})
    assert outcome(recorded, rollout)[0] == "no advantage"
    seen = recorded.rollouts.get(rollout.content_id)
    assert seen is not None
    assert seen.uses == []


def test_a_check_on_held_out_tasks_becomes_figures_of_the_policy_and_its_copy() -> None:
    recorded = recorder()
    recorded.note(
        "canary", {"step": 10, "rewards": [1.0, 0.0, 1.0], "shadow_rewards": [1.0, 0.0], "since": 0}
    )
    recorded.write()
    curves = recorded.history.curves(recorded.history.figures(), since=NOW - 60, now=NOW)
    found = {name: [(mean, n) for _, mean, _, n, _ in curve.points] for name, curve in curves.items()}
    assert found == {"held_out": [(pytest.approx(2 / 3), 3)], "held_out_own_alone": [(0.5, 2)]}


def test_rewards_and_refusals_become_figures() -> None:
    recorded = recorder()
    recorded.verified(rollout_of(OWN, 1, ANSWERS))
    recorded.verified(rollout_of(OTHER, 2, {b"1": 1.0}, family=1))
    recorded.note("refused", {"reason": "flood", "count": 40, "account": None})
    recorded.note("refused", {"reason": "flood", "account": None})
    recorded.note("admitted", {"account": OTHER})
    step = {
        "step": 3,
        "batch_reward": 0.75,
        "pool": 4,
        "peers": 2,
        "seconds": 1.5,
        "external": [],
        "local": [],
    }
    recorded.note("step", step)
    recorded.write()
    curves = recorded.history.curves(recorded.history.figures(), since=NOW - 60, now=NOW)
    assert {name: curve.points[0][3:] for name, curve in curves.items()} == {
        "admitted": (1, 1.0),
        "batch": (1, 0.75),
        "external": (1, 0.0),
        "others": (1, 1.0),
        "others/base_conversion": (1, 1.0),
        "own": (1, 0.5),
        "own/basic_arithmetic": (1, 0.5),
        "peers": (1, 2.0),
        "pool": (1, 4.0),
        "refused/flood": (2, 41.0),
        "seconds": (1, 1.5),
        "step": (1, 3.0),
    }
    assert recorded.verdicts_of(str(OTHER)) == {"admitted": 1}


def test_a_final_epoch_is_kept() -> None:
    recorded = recorder()
    recorded.note("epoch_final", {"epoch": EPOCH, "total": 12, "contribution_root": b"\xab"})
    recorded.write()
    [final] = recorded.history.epochs(5)
    assert (final.epoch, final.total, final.root) == (EPOCH, 12, "ab")


def test_own_rollouts_evict_no_external_rollouts() -> None:
    recorded = recorder()
    heard = rollout_of(OTHER, 7, ANSWERS).admitted
    recorded.admitted(heard, MESSAGE, "peer")
    for number in range(MAX_ROLLOUTS + 10):
        recorded.admitted(rollout_of(OWN, number, ANSWERS).admitted, MESSAGE, "self")
    newest = [content_id for content_id, _ in recorded.rollouts.newest()]
    assert len(newest) == 1 + MAX_OWN_ROLLOUTS
    assert recorded.rollouts.get(heard.content_id) is not None
    assert heard.content_id in newest


def test_rollouts_decisions_and_bytes_are_bounded() -> None:
    recorded = recorder()
    for number in range(MAX_ROLLOUTS + 10):
        recorded.admitted(rollout_of(OTHER, number, ANSWERS).admitted, MESSAGE, "peer")
        recorded.note("refused", {"reason": "schema", "account": None})
    assert len(recorded.rollouts) == MAX_ROLLOUTS - MAX_OWN_ROLLOUTS
    kept = list(recorded.since(0))
    assert (len(kept), kept[-1].number) == (MAX_DECISIONS, MAX_ROLLOUTS + 10)
    assert [each.number for each in recorded.since(kept[-1].number - 2)] == [
        kept[-1].number - 1,
        kept[-1].number,
    ]
    large = rollout_of(OTHER, 10**6, {bytes([n]) * 2**20: 0.0 for n in range(12)})
    for number in range(3):
        content = replace(large.admitted, content_id=rollout_of(OTHER, 10**7 + number, ANSWERS).content_id)
        recorded.admitted(content, MESSAGE, "peer")
    assert len(recorded.rollouts) == 1  # 12 MiB each, and 16 MiB are kept
