"""The learner's calls of vLLM: arguments, order and weights, with vLLM's interfaces on a CPU."""

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from requests import HTTPError
from support.vllm_modules import (
    LLM,
    AnyWeightSource,
    HTTPVLLMWeightSyncClient,
    NCCLTrainerInitInfo,
    Transfers,
    WeightSource,
    WeightSourceOf33,
    changed,
    install,
)
from torch.distributed import DistNetworkError

from sapo_client.errors import SapoError
from sapo_client.learner.adapters import merge_adapters
from sapo_client.learner.generate import Completion
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import Policy, load_policy
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.remote.vllm_server import nccl_push
from sapo_client.learner.vllm.generator import VllmGenerator

PROMPTS = [(5, 6, 7), (8, 9)]


@pytest.fixture(autouse=True)
def transfers(monkeypatch: pytest.MonkeyPatch) -> Transfers:
    torch.manual_seed(0)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_NO_USAGE_STATS", "VLLM_LOGGING_LEVEL"):
        monkeypatch.setenv(name, "")  # the generator sets them for the process
    return install(monkeypatch)


def sampled(generator: VllmGenerator) -> list[list[Completion]]:
    return generator.sample(PROMPTS, completions_per_prompt=3, max_new_tokens=6, temperature=1.0, seed=5)


def require_own_logprobs(policy: Policy, groups: list[list[Completion]]) -> None:
    """Compare the log-probabilities of samples with the policy's."""
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for item in group:
            with torch.no_grad():
                own = completion_logprobs(policy.model, [(prompt, item.tokens)], policy.pad, 1.0)[0]
            assert item.logprobs == pytest.approx(own.tolist(), abs=1e-4)


def engine_of(generator: VllmGenerator) -> LLM:
    assert isinstance(generator._engine, LLM)
    return generator._engine


def test_all_weights_reach_the_engine_before_each_call() -> None:
    policy = load_policy("bundled", "cpu")
    generator = VllmGenerator(policy, seed=1)
    for _ in range(2):
        changed(policy.model, 0.02)
        require_own_logprobs(policy, sampled(generator))
    engine = engine_of(generator)
    assert (engine.dtype, engine.enable_lora, set(engine.requests)) == ("float32", False, {None})
    assert engine.model == policy.source
    engine.takes_weights = False
    changed(policy.model, 0.5)
    with pytest.raises(SapoError, match="vLLM did not take the new weights"):
        sampled(generator)


def test_adapters_reach_the_engine_under_new_numbers() -> None:
    policy = load_policy("bundled", "cpu").with_adapters(5)
    generator = VllmGenerator(policy, seed=1)
    for _ in range(2):
        changed(policy.model, 0.1)
        require_own_logprobs(policy, sampled(generator))
    engine = engine_of(generator)
    assert (engine.model, engine.enable_lora, engine.max_lora_rank) == (policy.source, True, 8)
    # each call is a probe and a draw
    numbers = [request.lora_int_id for request in engine.requests if request]
    folders = [Path(request.lora_path) for request in engine.requests if request]
    assert numbers == [1, 1, 2, 2]
    assert [folder.exists() for folder in folders] == [False, False, True, True]


def test_a_base_of_16_bits_may_differ_from_an_engine_of_32_by_its_rounding() -> None:
    policy = load_policy("bundled", "cpu", base="bfloat16").with_adapters(4)
    generator = VllmGenerator(policy, seed=1)
    changed(policy.model, 0.1)
    assert [len(group) for group in sampled(generator)] == [3, 3]
    assert engine_of(generator).dtype == "float32"


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
def test_a_quantised_base_is_refused_before_the_engine_starts() -> None:
    policy = load_policy("bundled", "cpu", base="nf4").with_adapters(4)
    with pytest.raises(SapoError, match="samples here from the base in floating point") as caught:
        VllmGenerator(policy, seed=1)
    assert caught.value.hint == "set learner.base = auto, or learner.backend = transformers"


def test_each_of_several_ranks_names_itself_to_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor for a single process would take the first GPU on every rank."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
    policy = load_policy("bundled", "cpu")
    assert engine_of(VllmGenerator(policy, seed=1)).distributed_executor_backend == "uni"
    second = engine_of(VllmGenerator(policy, seed=1, ranks=RankGroup(rank=1, size=2)))
    assert second.distributed_executor_backend == "external_launcher"
    assert (os.environ["RANK"], os.environ["LOCAL_RANK"]) == ("1", "1")


@pytest.mark.parametrize("weight_source", [WeightSource, WeightSourceOf33])
@pytest.mark.parametrize("rank", [0, 4])
def test_a_server_is_sent_the_present_weights_with_adapters_merged(
    monkeypatch: pytest.MonkeyPatch, weight_source: type[AnyWeightSource], rank: int
) -> None:
    transfers = install(monkeypatch, weight_source=weight_source)
    plain = load_policy("bundled", "cpu")
    policy = plain.with_adapters(rank) if rank else plain
    push = nccl_push(replace(policy, device=torch.device("cuda")), "http://10.0.0.2:8000", workers=2)
    for _ in range(2):
        changed(policy.model, 0.1)
        push()
        merged = merge_adapters(policy.model)
        head = merged.get_input_embeddings().weight  # tied
        expected = {**dict(merged.named_parameters()), "lm_head.weight": head}
        assert transfers.sent[-1].keys() == expected.keys()
        assert all(torch.equal(transfers.sent[-1][name], expected[name]) for name in expected)
    assert not torch.equal(*(sent["model.layers.0.mlp.up_proj.weight"] for sent in transfers.sent))
    place = NCCLTrainerInitInfo(
        master_address="127.0.0.1", master_port=29_500, world_size=3, rank=0, packed=True
    )
    assert transfers.opened == [(place, HTTPVLLMWeightSyncClient("http://10.0.0.2:8000"))]


@pytest.mark.parametrize("failure", [HTTPError("500 Server Error"), DistNetworkError("the peer is gone")])
def test_weights_that_a_server_does_not_take_are_waited_for(transfers: Transfers, failure: Exception) -> None:
    policy = replace(load_policy("bundled", "cpu"), device=torch.device("cuda"))
    push = nccl_push(policy, "http://10.0.0.2:8000", workers=1)
    transfers.failure = failure
    with pytest.raises(SapoError, match=r"http://10\.0\.0\.2:8000 does not take the weights: ") as caught:
        push()
    assert (caught.value.transient, caught.value.finding) == (True, "server_away")
