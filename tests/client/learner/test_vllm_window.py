"""Texts that are longer than a vLLM engine or server takes, though the model's window is longer still."""

from pathlib import Path

import pytest
from support.policies import make_policy_folder
from support.vllm_api import vllm_api

from sapo_client.errors import SapoError
from sapo_client.learner.generate import SampleRequest
from sapo_client.learner.loading.answerable import answerable_prompts
from sapo_client.learner.policy import Policy, load_policy
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.ranks.sampling import Replica, ReplicaGenerator
from sapo_client.learner.remote.vllm_server import VllmServerGenerator
from sapo_client.learner.vllm.generator import engine_window

SHORT, LONG = "6/8\n", "12 + 7 = " * 8


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return load_policy(str(make_policy_folder(tmp_path / "model")), "cpu")


@pytest.mark.parametrize("window", [None, 24])
def test_prompts_beyond_a_server_s_window_are_refused_one_by_one(policy: Policy, window: int | None) -> None:
    """Without that, the server's refusal of one prompt ended the node."""
    with vllm_api(policy) as (url, api):
        api.window = window
        remote = VllmServerGenerator(policy, url, push=lambda: None)
        posed = answerable_prompts(policy, [SHORT, LONG], 8, remote.window)
        groups = remote.draw(SampleRequest(posed.tokens, 2, 8, 1.0, seed=0))
    assert (remote.window, posed.places, len(groups)) == ((24, [0], 1) if window else (None, [0, 1], 2))
    assert {place: each.reason.value for place, each in posed.refusals.items()} == (
        {1: "window"} if window else {}
    )


def test_a_server_without_room_for_an_answer_is_refused_at_the_start(policy: Policy) -> None:
    policy.require_room(64, max_tokens=80)
    with pytest.raises(SapoError) as caught:
        policy.require_room(64, max_tokens=64)
    assert (caught.value.text, caught.value.hint) == (
        "its vLLM server reads 64 tokens, and answers of 64 leave no room for a task",
        "lower learner.max_new_tokens, or start it with a larger --max-model-len",
    )


def test_the_leader_s_generator_knows_the_window(policy: Policy) -> None:
    """Other ranks have no connection to the server: they take it from the leader."""
    with vllm_api(policy) as (url, api):
        api.window = 24
        remote = VllmServerGenerator(policy, url, push=lambda: None)
    ranks = RankGroup(0, 2)
    replica = Replica(policy, RankGroup(), copied=True)
    windows = [ReplicaGenerator(ranks, replica, each, by_leader=True).window for each in (remote, None)]
    assert windows == [24, None]


@pytest.mark.parametrize(
    ("window", "new_tokens", "expected"),
    [(None, 64, 4096), (512, 64, 512), (32768, 64, 4096), (32768, 8192, 16384), (8192, 8192, 8192)],
)
def test_an_engine_has_room_for_long_completions(window: int | None, new_tokens: int, expected: int) -> None:
    assert engine_window(window, new_tokens) == expected
