"""A node whose learner was killed continues from a checkpoint."""

from __future__ import annotations

from typing import Any


def test_a_killed_learner_comes_back_at_a_checkpoint(two_nodes: Any) -> None:
    home = two_nodes.second
    [death] = home.events("learner_restarted")
    steps = home.events("step")
    before = [event["step"] for event in steps if event["seq"] < death["seq"]]
    after = [event["step"] for event in steps if event["seq"] > death["seq"]]
    assert before == list(range(1, before[-1] + 1))
    assert 1 < after[0] <= before[-1] + 1  # neither from the beginning nor past what was trained
    assert after == list(range(after[0], after[-1] + 1))
    during_or_between, _, reason = str(death["why"]).partition(": ")
    assert during_or_between.startswith(("the learner died ", "the learner ended between two calls"))
    assert (death["step"], reason) == (before[-1], "SIGKILL ended it, as when memory runs out")


def test_the_node_of_a_killed_learner_does_not_restart(two_nodes: Any) -> None:
    assert two_nodes.second.events("service_failed") == []
    assert len(two_nodes.second.events("node_started")) == 1
