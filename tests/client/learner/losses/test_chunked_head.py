"""The chunked head against the plain one: values, gradients and memory."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from torch import Tensor

from sapo_client.learner.adapters import add_adapters
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.losses import chunked_head
from sapo_client.learner.policy import load_policy

POSITIONS, HIDDEN, VOCABULARY = 40, 16, 1003
ROWS = [((30, 31, 32), (40, 41, 42, 43)), ((30, 31), (50, 51)), ((60, 61, 62, 63), (70,))]


def plain(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias).float() / temperature
    return logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Cut even these vocabularies into several blocks."""
    monkeypatch.setattr(chunked_head, "BLOCK_VALUES", {"cpu": 2**10, "cuda": 2**10})
    monkeypatch.setattr(chunked_head, "MIN_VOCABULARY", 1)
    return chunked_head


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("with_bias", [False, True])
def test_values_and_gradients_equal_those_of_all_logits(
    small_blocks: ModuleType, temperature: float, with_bias: bool
) -> None:
    torch.manual_seed(3)
    targets = torch.randint(VOCABULARY, (POSITIONS,))
    upstream = torch.randn(POSITIONS)
    results = []
    for compute in (plain, None):
        torch.manual_seed(4)
        hidden = torch.randn(POSITIONS, HIDDEN).requires_grad_()
        weight = torch.randn(VOCABULARY, HIDDEN).requires_grad_()
        bias = torch.randn(VOCABULARY).requires_grad_() if with_bias else None
        values = (
            plain(hidden, weight, targets, bias, temperature)
            if compute
            else small_blocks.target_logprobs(hidden, weight, targets, bias=bias, temperature=temperature)
        )
        torch.autograd.backward(values, upstream)
        leaves = [hidden, weight, *([] if bias is None else [bias])]
        results.append([values.detach(), *(gradient_of(leaf) for leaf in leaves)])
    for expected, found in zip(*results, strict=True):
        assert torch.allclose(found, expected, atol=2e-5)


def test_on_a_cpu_a_base_of_16_bits_has_logits_in_float32(small_blocks: ModuleType) -> None:
    """Logits of 16 to 32 would be rounded to eighths."""
    torch.manual_seed(3)
    targets, upstream = torch.randint(VOCABULARY, (POSITIONS,)), torch.randn(POSITIONS)
    hidden, weight = (
        torch.randn(POSITIONS, HIDDEN).bfloat16(),
        (3 * torch.randn(VOCABULARY, HIDDEN)).bfloat16(),
    )
    exact, half = hidden.float().requires_grad_(), hidden.clone().requires_grad_()
    expected = plain(exact, weight.float(), targets, None, 1.0)
    found = small_blocks.target_logprobs(half, weight, targets)
    torch.autograd.backward([expected, found], [upstream, upstream])
    assert torch.allclose(found, expected, atol=1e-4)
    assert torch.allclose(gradient_of(half).float(), gradient_of(exact), rtol=2**-7, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("with_bias", [False, True])
def test_on_a_gpu_16_bit_factors_give_logits_in_float32_precision(
    small_blocks: ModuleType, with_bias: bool
) -> None:
    """Against all logits in float32: nearer than those of a head that writes bfloat16, as autocast's does."""
    torch.manual_seed(3)
    targets, upstream = torch.randint(VOCABULARY, (POSITIONS,)).cuda(), torch.randn(POSITIONS).cuda()
    results: list[list[Tensor]] = []
    for compute in (plain, small_blocks.target_logprobs, plain):
        torch.manual_seed(4)
        hidden = torch.randn(POSITIONS, HIDDEN).bfloat16().float().cuda().requires_grad_()
        weight = (torch.randn(VOCABULARY, HIDDEN) * 3).bfloat16().float().cuda().requires_grad_()
        bias = torch.randn(VOCABULARY).bfloat16().float().cuda() if with_bias else None
        with torch.autocast("cuda", torch.bfloat16, enabled=bool(results)):
            values = compute(hidden, weight, targets, bias=bias, temperature=0.7)
        torch.autograd.backward(values, upstream)
        results.append([values.detach(), gradient_of(hidden), gradient_of(weight)])
    exact, found, rounded = results
    assert torch.allclose(found[0], exact[0], atol=1e-4)
    assert (rounded[0] - exact[0]).abs().max() > 100 * (found[0] - exact[0]).abs().max()
    for one, other in zip(found[1:], exact[1:], strict=True):
        assert (one - other).norm() < 0.01 * other.norm()


def test_a_frozen_head_gets_no_gradient(small_blocks: ModuleType) -> None:
    hidden, weight = torch.randn(POSITIONS, HIDDEN).requires_grad_(), torch.randn(VOCABULARY, HIDDEN)
    targets = torch.arange(POSITIONS)
    small_blocks.target_logprobs(hidden, weight, targets).sum().backward()
    assert (weight.grad, hidden.grad is None) == (None, False)


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
@pytest.mark.parametrize("lora", [False, True])
def test_the_whole_model_has_the_same_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lora: bool
) -> None:
    folder = make_policy_folder(tmp_path / "model", kind)

    def gradients() -> tuple[Tensor, list[Tensor]]:
        policy = load_policy(str(folder), "cpu")
        torch.manual_seed(0)
        model = add_adapters(policy.model, 4) if lora else policy.model
        values = completion_logprobs(model, ROWS, policy.pad, 0.9)
        values.pow(2).sum().backward()  # type: ignore[no-untyped-call]
        return values.detach(), [
            gradient_of(parameter) for parameter in model.parameters() if parameter.requires_grad
        ]

    expected_values, expected = gradients()
    monkeypatch.setattr(chunked_head, "BLOCK_VALUES", {"cpu": 2**9})
    monkeypatch.setattr(chunked_head, "MIN_VOCABULARY", 1)
    values, found = gradients()
    assert torch.allclose(values, expected_values, atol=1e-5)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


PROGRAM = """
import sys, torch
from sapo_client.learner.losses.chunked_head import target_logprobs
torch.set_num_threads(1)
hidden = torch.randn(1024, 64).requires_grad_()
weight = torch.randn(60_000, 64)
targets = torch.randint(60_000, (1024,))
if sys.argv[1] == "chunked":
    values = target_logprobs(hidden, weight, targets)
else:
    values = (hidden @ weight.t()).log_softmax(-1).gather(1, targets[:, None])
values.sum().backward()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def test_the_peak_of_memory_is_a_fraction_of_all_logits() -> None:
    """All logits are 234 MiB here; the plain way holds them twice to three times, blocks of 64 MiB twice."""
    peaks = {
        way: int(
            subprocess.run(
                [sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, check=True
            ).stdout
        )
        for way in ("chunked", "plain")
    }
    assert peaks["plain"] - peaks["chunked"] > 200 * 1024
