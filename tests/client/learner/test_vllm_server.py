"""Sampling on a vLLM server: the requests, the order of a weight update, and unusable servers."""

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.policies import make_policy_folder
from support.vllm_api import VllmApi, vllm_api

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.generate import SampleRequest, generator_for
from sapo_client.learner.policy import Policy, load_policy
from sapo_client.learner.remote.vllm_server import VllmServerGenerator, nccl_push

PROMPTS = [(5, 6, 7), (8, 9)]
UPDATE = ["/pause", "weights", "/reset_prefix_cache", "/resume", "/v1/completions"]


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return load_policy(str(make_policy_folder(tmp_path / "model")), "cpu")


@pytest.fixture
def served(tmp_path: Path, policy: Policy) -> Iterator[tuple[str, VllmApi]]:
    with vllm_api(load_policy(str(tmp_path / "model"), "cpu")) as server:
        yield server


def generator(policy: Policy, served: tuple[str, VllmApi], *, pushes: bool = True) -> VllmServerGenerator:
    """Return the generator, whose weights reach the server without NCCL, or not at all."""
    url, api = served

    def push() -> None:
        if pushes:
            api.receive(policy.model.state_dict())

    return VllmServerGenerator(policy, f"{url}/v1", push)


def test_present_weights_are_sent_and_probed_before_sampling(
    policy: Policy, served: tuple[str, VllmApi]
) -> None:
    remote = generator(policy, served)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    groups = remote.sample(PROMPTS, completions_per_prompt=3, max_new_tokens=6, temperature=1.0, seed=5)
    for index, prompt in enumerate(PROMPTS):
        expected = generator_for(policy).sample(
            [prompt], completions_per_prompt=3, max_new_tokens=6, temperature=1.0, seed=5 + index
        )
        assert groups[index] == expected[0]
    assert served[1].calls == ["/v1/models", *UPDATE, "/v1/completions", "/v1/completions"]


def test_a_server_with_other_weights_is_an_error(policy: Policy, served: tuple[str, VllmApi]) -> None:
    remote = generator(policy, served, pushes=False)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn_like(parameter))
    with pytest.raises(SapoError, match="did not take the new weights"):
        remote.sample(PROMPTS, completions_per_prompt=1, max_new_tokens=4, temperature=1.0, seed=0)


def test_a_server_without_token_ids_is_an_error(policy: Policy, served: tuple[str, VllmApi]) -> None:
    remote = generator(policy, served)
    served[1].token_ids = False
    with pytest.raises(SapoError, match="sent an invalid reply: no token ids") as caught:
        remote.sample(PROMPTS, completions_per_prompt=1, max_new_tokens=4, temperature=1.0, seed=0)
    assert caught.value.hint.startswith("it must be vLLM 0.28 or later, with the model of learner.model: ")


def change(name: str, value: object) -> Callable[[list[dict[str, Any]]], object]:
    """Return what puts a value in place of the last token, the last log-probability or another field."""

    def falsify(choices: list[dict[str, Any]]) -> None:
        lists = {"token": choices[0]["token_ids"], "logprob": choices[0]["logprobs"]["token_logprobs"]}
        if name in lists:
            changed = [*lists[name][:-1], value]
            choices[0] |= (
                {"token_ids": changed} if name == "token" else {"logprobs": {"token_logprobs": changed}}
            )
        else:
            choices[0][name] = value

    return falsify


@pytest.mark.parametrize(
    ("falsify", "why"),
    [
        (change("logprob", math.nan), "logprobs.token_logprobs.* finite number"),
        (change("logprob", -math.inf), "logprobs.token_logprobs.* finite number"),
        (change("logprob", 0.5), "the log-probability 0.5"),
        (change("logprob", "-1"), "logprobs.token_logprobs.* valid number"),
        (change("token", 10**6), "the token id 1000000; the model has"),
        (change("token", -1), "the token id -1; the model has"),
        (change("token", 1.5), "token_ids.* valid integer"),
        (change("token_ids", [5]), "1 tokens with [2-9] log-probabilities"),
        (change("token_ids", []), "0 tokens with"),
        (change("logprobs", {"token_logprobs": []}), "tokens with 0 log-probabilities"),
        (lambda choices: choices.pop(), "2 completions; 3 were requested"),
        (lambda choices: choices.append({**choices[0], "index": 3}), "4 completions; 3 were requested"),
        (change("index", 1), "2 completions; 3 were requested"),
        (
            lambda choices: choices[0].update(token_ids=[5] * 9, logprobs={"token_logprobs": [-1.0] * 9}),
            "a completion of 9 tokens; at most 8 were requested",
        ),
    ],
)
def test_replies_that_do_not_match_the_request_are_refused(
    policy: Policy,
    served: tuple[str, VllmApi],
    falsify: Callable[[list[dict[str, Any]]], object],
    why: str,
) -> None:
    remote = generator(policy, served)
    remote.refresh()
    served[1].falsify = falsify
    with pytest.raises(SapoError, match=f"{served[0]}/v1 sent an invalid reply: .*{why}") as caught:
        remote.draw(SampleRequest(PROMPTS, 3, max_new_tokens=8, temperature=1.0, seed=4))
    assert (caught.value.exit_code, caught.value.transient) == (ExitCode.CONFIG, False)


def test_a_server_that_does_not_take_the_weights_is_connected_again(
    policy: Policy, served: tuple[str, VllmApi]
) -> None:
    url, api = served
    error = SapoError("not now", hint="", exit_code=ExitCode.NETWORK, transient=True)
    failures = [error]

    def push() -> None:
        if failures:
            raise failures.pop()
        api.receive(policy.model.state_dict())

    remote = VllmServerGenerator(policy, url, push)
    with pytest.raises(SapoError, match="not now"):
        remote.refresh()
    api.calls.clear()
    remote.refresh()
    assert api.calls == ["/v1/models", *UPDATE]


def test_a_failing_server_is_waited_for_and_reconnected(policy: Policy, served: tuple[str, VllmApi]) -> None:
    remote = generator(policy, served)
    sampled = partial(
        remote.sample, PROMPTS, completions_per_prompt=1, max_new_tokens=4, temperature=1.0, seed=0
    )
    expected = sampled()
    served[1].failing = 503
    with pytest.raises(SapoError, match="/pause fails with 503") as caught:
        sampled()
    assert (caught.value.transient, caught.value.finding) == (True, "server_away")
    served[1].failing = None
    served[1].calls.clear()
    assert sampled() == expected
    assert served[1].calls == ["/v1/models", *UPDATE, "/v1/completions", "/v1/completions"]
    served[1].failing = 400
    with pytest.raises(SapoError, match="refuses /pause: 400") as refused:
        sampled()
    assert not refused.value.transient


def test_without_a_server_or_a_gpu_the_error_says_what_to_do(policy: Policy) -> None:
    with pytest.raises(SapoError, match=r"http://127\.0\.0\.1:9 does not answer: ") as caught:
        VllmServerGenerator(policy, "http://127.0.0.1:9")
    assert (caught.value.transient, caught.value.finding) == (True, "server_away")
    with pytest.raises(SapoError, match="over NCCL, which needs a GPU here") as no_gpu:
        nccl_push(policy, "http://127.0.0.1:9", 1)
    assert (caught.value.exit_code, no_gpu.value.exit_code) == (ExitCode.NETWORK, ExitCode.CONFIG)


@pytest.mark.gpu
@pytest.mark.skipif("SAPO_VLLM_SERVER" not in os.environ, reason="SAPO_VLLM_SERVER names no vLLM server")
def test_a_real_server_takes_the_weights_and_samples(tmp_path: Path) -> None:
    """The server serves the folder SAPO_VLLM_MODEL, started as ``remote/vllm_server.py`` says."""
    real = load_policy(os.environ["SAPO_VLLM_MODEL"], "cuda")
    remote = VllmServerGenerator(real, os.environ["SAPO_VLLM_SERVER"])
    [group] = remote.sample([(5, 6)], completions_per_prompt=4, max_new_tokens=8, temperature=1.0, seed=0)
    assert [len(item.tokens) == len(item.logprobs) for item in group] == [True] * 4
