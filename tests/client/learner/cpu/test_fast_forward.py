"""The fast forward pass against transformers': log-probabilities and all gradients."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from torch import nn
from transformers import PreTrainedModel

from sapo_client.learner.cpu import fast_forward
from sapo_client.learner.cpu.fast_forward import fast_logprobs, is_fast
from sapo_client.learner.cpu.linear import FastLinear
from sapo_client.learner.cpu.mlp import mlp
from sapo_client.learner.cpu.packing import PackedLayout, Row, pack
from sapo_client.learner.policy import Policy, load_policy

KINDS = ("qwen2", "llama", "llama3-rope")
PROMPTS = [(40, 41, 42), (50, 51, 52, 53, 54, 55, 56), (60,)]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Policy]:
    root = tmp_path_factory.mktemp("models")
    return {kind: load_policy(str(make_policy_folder(root / kind, kind)), "cpu") for kind in (*KINDS, "gpt2")}


def text(length: int, start: int) -> tuple[int, ...]:
    return tuple(30 + (start * 7 + index * 5) % 60 for index in range(length))


def reference_logprobs(model: PreTrainedModel, rows: Sequence[Row], temperature: float) -> torch.Tensor:
    """Compute the log-probabilities with transformers, row by row, without padding."""
    longest = max(len(completion) for _, completion in rows)
    result = []
    for prompt, completion in rows:
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        values = (logits / temperature).log_softmax(-1)[torch.arange(len(completion)), list(completion)]
        result.append(nn.functional.pad(values, (0, longest - len(completion))))
    return torch.stack(result)


def gradients(model: PreTrainedModel, values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradients of a sum in which every value has another weight."""
    model.zero_grad()
    weights = torch.linspace(-1, 2, values.numel()).view_as(values)
    torch.autograd.backward((values * weights).sum())
    return {name: gradient_of(parameter).clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("lengths", "temperature"),
    [
        pytest.param([5, 9, 20, 1, 30, 7, 8], 1.0, id="shared prompts"),
        pytest.param([5, 9, 20, 1, 30, 7, 8], 0.6, id="tempered"),
        pytest.param([25] * 18, 1.0, id="enough tokens to be padded"),
        pytest.param([1, 1, 1, 1], 1.0, id="single tokens"),
        pytest.param([3], 1.0, id="one row"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_and_gradients_equal_those_of_transformers(
    policies: dict[str, Policy], kind: str, lengths: list[int], temperature: float
) -> None:
    policy = policies[kind]
    rows = [(PROMPTS[i % 3], text(length, i)) for i, length in enumerate(lengths)]
    assert is_fast(policy.model)
    found = fast_logprobs(policy.model, rows, policy.pad, temperature)
    expected = reference_logprobs(policy.model, rows, temperature)
    assert torch.allclose(found, expected, atol=1e-5)
    found_gradients, expected_gradients = gradients(policy.model, found), gradients(policy.model, expected)
    assert found_gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        assert torch.allclose(found_gradients[name], gradient, atol=1e-5 * float(gradient.abs().max())), name


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_results_are_nearer_to_float32_than_those_of_transformers(
    policies: dict[str, Policy], kind: str
) -> None:
    """It multiplies the layers' weights in bfloat16; autocast does so with the head and attention, too."""
    policy = policies[kind]
    rows = [(PROMPTS[i % 3], text(25, i)) for i in range(18)]
    exact = reference_logprobs(policy.model, rows, 0.8)
    wanted = torch.cat([each.flatten() for each in gradients(policy.model, exact).values()])
    errors = []
    with torch.autocast("cpu", torch.bfloat16):
        assert is_fast(policy.model)
        found = fast_logprobs(policy.model, rows, policy.pad, 0.8)
        theirs = reference_logprobs(policy.model, rows, 0.8).float()
    for values in (found, theirs):
        flat = torch.cat([each.flatten() for each in gradients(policy.model, values).values()])
        errors.append(
            (float((values - exact).detach().abs().mean()), float((flat - wanted).norm() / wanted.norm()))
        )
    (own_values, own_gradient), (their_values, their_gradient) = errors
    assert 1e-6 < own_values < their_values
    assert 1e-6 < own_gradient < their_gradient < 0.05


def test_unsupported_models_do_not_use_the_fast_path(policies: dict[str, Policy]) -> None:
    """Other architectures, adapters, gradient checkpointing, float16 products and float64."""
    policy = policies["qwen2"]
    adapted = load_policy(policy.model.name_or_path, "cpu").with_adapters(4)
    checkpointing = load_policy(policy.model.name_or_path, "cpu").model
    checkpointing.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    models = [policies["gpt2"].model, adapted.model, checkpointing]
    assert [is_fast(model) for model in models] == [False] * 3
    with torch.autocast("cpu", torch.float16):
        assert not is_fast(policy.model)
    assert not is_fast(load_policy(policy.model.name_or_path, "cpu").model.double())


def test_prompts_are_computed_once_and_padding_is_not(
    policies: dict[str, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts: list[PackedLayout] = []

    def recorded(rows: Sequence[Row], pad_id: int, heads: int, key_value_heads: int) -> PackedLayout:
        layouts.append(pack(rows, pad_id, heads, key_value_heads))
        return layouts[-1]

    monkeypatch.setattr(fast_forward, "pack", recorded)
    rows = [(PROMPTS[i % 2], text(3 + i, i)) for i in range(6)]
    fast_logprobs(policies["qwen2"].model, rows, 0, 1.0)
    [layout] = layouts
    computed = 3 + 7 + 2 + 3 + 4 + 5 + 6 + 7  # a completion's last token predicts nothing
    assert (layout.num_tokens, len(layout.inverse)) == (computed, computed + 1)  # one padding token


def test_after_attention_the_last_layer_computes_only_tokens_with_logits(
    policies: dict[str, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a prompt that is the last one; before the last layer all tokens are computed."""
    computed: list[int] = []

    def recorded(middle: torch.Tensor, *others: Any) -> torch.Tensor:
        computed.append(len(middle))
        return mlp(middle, *others)

    monkeypatch.setattr(fast_forward, "mlp", recorded)
    model = policies["qwen2"].model
    rows = [(PROMPTS[i % 2], text(3 + i, i)) for i in range(6)]
    fast_logprobs(model, rows, 0, 1.0)
    completions = sum(len(completion) - 1 for _, completion in rows)
    layers = model.config.num_hidden_layers
    assert computed == [3 + 7 + completions + 1] * (layers - 1) + [1 + 1 + completions]  # one padding token


def test_a_policy_on_a_cpu_has_fast_layers(policies: dict[str, Policy]) -> None:
    kinds = {type(module) for module in policies["qwen2"].model.modules() if isinstance(module, nn.Linear)}
    assert kinds == {FastLinear}
