"""Training's own forward pass against transformers', values and every gradient."""

import resource

import pytest
import torch
from support.policies import make_policy_folder
from torch import nn

from sapo_client.learner.adapters import with_adapters
from sapo_client.learner.batch import TrainingRow, micro_batches
from sapo_client.learner.cpu import fast_forward
from sapo_client.learner.cpu import linear as products
from sapo_client.learner.cpu.fast_forward import fast_logprobs, is_fast
from sapo_client.learner.cpu.linear import (
    FEWEST_ROWS,
    FastLinear,
    differentiable_product,
    prepared,
    with_fast_products,
)
from sapo_client.learner.memory import keep_freed_memory
from sapo_client.learner.policy import Policy, load_policy

KINDS = ("qwen2", "llama", "llama3-rope")
PROMPTS = [(40, 41, 42), (50, 51, 52, 53, 54, 55, 56), (60,)]


@pytest.fixture(scope="module")
def policies(tmp_path_factory) -> dict[str, Policy]:
    root = tmp_path_factory.mktemp("models")
    return {kind: load_policy(str(make_policy_folder(root / kind, kind)), "cpu") for kind in (*KINDS, "gpt2")}


def text(length: int, start: int) -> tuple[int, ...]:
    return tuple(30 + (start * 7 + place * 5) % 60 for place in range(length))


def reference_logprobs(model, rows, temperature: float) -> torch.Tensor:
    """Row by row, without padding: what transformers says."""
    longest = max(len(completion) for _, completion in rows)
    result = []
    for prompt, completion in rows:
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        values = (logits / temperature).log_softmax(-1)[torch.arange(len(completion)), list(completion)]
        result.append(nn.functional.pad(values, (0, longest - len(completion))))
    return torch.stack(result)


def gradients(model, values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a sum in which every value has a weight of its own."""
    model.zero_grad()
    weights = torch.linspace(-1, 2, values.numel()).view_as(values)
    (values * weights).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("lengths", "temperature"),
    [
        pytest.param([5, 9, 20, 1, 30, 7, 8], 1.0, id="shared prompts"),
        pytest.param([5, 9, 20, 1, 30, 7, 8], 0.6, id="tempered"),
        pytest.param([25] * 18, 1.0, id="enough places to be rounded up"),
        pytest.param([1, 1, 1, 1], 1.0, id="single tokens"),
        pytest.param([3], 1.0, id="one row"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_transformers(policies, kind, lengths, temperature):
    policy = policies[kind]
    rows = [(PROMPTS[i % 3], text(length, i)) for i, length in enumerate(lengths)]
    assert is_fast(policy.model)
    found = fast_logprobs(policy.model, rows, policy.pad, temperature)
    expected = reference_logprobs(policy.model, rows, temperature)
    assert torch.allclose(found, expected, atol=1e-5)
    of_found, of_expected = gradients(policy.model, found), gradients(policy.model, expected)
    assert of_found.keys() == of_expected.keys()
    for name, gradient in of_expected.items():
        assert torch.allclose(of_found[name], gradient, atol=1e-5 * float(gradient.abs().max())), name


def test_what_it_does_not_compute(policies):
    """Other architectures, adapters, bfloat16, and activations that are computed twice."""
    policy = policies["qwen2"]
    adapted = with_adapters(load_policy(policy.model.name_or_path, "cpu"), rank=4)
    checkpointing = load_policy(policy.model.name_or_path, "cpu").model
    checkpointing.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    models = [policies["gpt2"].model, adapted.model, checkpointing]
    assert [is_fast(model) for model in models] == [False] * 3
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_fast(policy.model)
    assert not is_fast(load_policy(policy.model.name_or_path, "cpu").model.double())


def test_prompts_are_computed_once_and_padding_never(policies, monkeypatch):
    seen = []
    arranged = fast_forward._arranged
    monkeypatch.setattr(fast_forward, "_arranged", lambda *given: seen.append(arranged(*given)) or seen[-1])
    rows = [(PROMPTS[i % 2], text(3 + i, i)) for i in range(6)]
    fast_logprobs(policies["qwen2"].model, rows, 0, 1.0)
    [layout] = seen
    computed = 3 + 7 + 2 + 3 + 4 + 5 + 6 + 7  # a text's last token predicts nothing
    assert (layout.real, len(layout.which)) == (computed, computed + 1)  # one place fills rectangles up


def row(prompt: tuple[int, ...], length: int) -> TrainingRow:
    return TrainingRow(prompt, text(length, 0), 0.5, None)


def test_micro_batches_count_a_shared_prompt_once():
    prompts = [tuple(range(30)), tuple(range(10, 30))]
    rows = [row(prompts[i // 8], 4) for i in range(16)]
    parts = list(micro_batches(rows, 92, 256, shared_prompts=True))
    assert parts == [rows[:8], rows[8:]]  # 30 + 8 x 4; one row of the other prompt makes it 60 + 9 x 4 = 96
    assert list(micro_batches(rows, 124, 256, shared_prompts=True)) == [rows]
    assert [len(part) for part in micro_batches(rows, 124, 256)] == [5, 3, 3, 3, 2]  # 24 or 34 tokens a row


def test_a_long_row_gets_a_micro_batch_of_its_own():
    rows = [row((1, 2), length) for length in [6] * 63 + [64]]
    assert [len(part) for part in micro_batches(rows, 2**20, 256, shared_prompts=True)] == [63, 1]
    assert [len(part) for part in micro_batches(rows, 2**20, 4096, shared_prompts=True)] == [64]


def test_a_fast_layer_is_the_plain_one():
    torch.manual_seed(0)
    for inner, outer, bias in ((12, 40, True), (40, 12, False)):
        plain = nn.Linear(inner, outer, bias=bias)
        fast = nn.Linear(inner, outer, bias=bias)
        fast.load_state_dict(plain.state_dict())
        with_fast_products(fast)
        assert isinstance(fast, FastLinear)
        assert fast.state_dict().keys() == plain.state_dict().keys()
        for rows in (1, FEWEST_ROWS - 1, FEWEST_ROWS, 200):
            x = torch.randn(rows, inner, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            found, expected = fast(x), plain(twin)
            assert torch.allclose(found, expected, atol=1e-5)
            found.square().sum().backward()
            expected.square().sum().backward()
            assert torch.allclose(x.grad, twin.grad, atol=1e-3)
            for name, parameter in plain.named_parameters():
                assert torch.allclose(fast.get_parameter(name).grad, parameter.grad, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("rows", [1, 80])
def test_a_prepared_layer_is_the_plain_one(rows):
    x, weight, bias = torch.randn(rows, 3, 8), torch.randn(16, 8), torch.randn(16)
    for given in (bias, None):
        expected = nn.functional.linear(x, weight, given)
        assert torch.allclose(prepared(weight, given)(x), expected, atol=1e-5)
    assert torch.equal(
        prepared(weight.double())(x.double()), nn.functional.linear(x.double(), weight.double())
    )


def test_products_of_other_kinds_stay_torchs():
    x, weight = torch.randn(80, 8), torch.randn(16, 8)
    expected = nn.functional.linear(x.double(), weight.double())
    assert torch.equal(differentiable_product(x.double(), weight.double()), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert differentiable_product(x, weight).dtype == torch.bfloat16


@pytest.mark.parametrize("lay_out", [None, products._LAY_OUT], ids=["nothing", "weights"])
def test_what_onednn_refuses_is_multiplied_by_torch(lay_out, monkeypatch):
    """As it does once it has no room for a program."""

    def refuse(*_):
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(products, "_ONEDNN", refuse)
    monkeypatch.setattr(products, "_LAY_OUT", lay_out or refuse)
    x, weight = torch.randn(80, 8, requires_grad=True), torch.randn(16, 8)
    found = differentiable_product(x, weight)
    assert torch.equal(found, nn.functional.linear(x, weight))
    assert torch.allclose(prepared(weight)(x), nn.functional.linear(x, weight), atol=1e-5)
    found.sum().backward()
    assert torch.allclose(x.grad, weight.sum(0).expand(80, -1), atol=1e-5)


def test_a_frozen_weight_costs_no_gradient():
    layer = nn.Linear(8, 16).requires_grad_(False)
    with_fast_products(layer)
    x = torch.randn(80, 8, requires_grad=True)
    layer(x).sum().backward()
    assert (layer.weight.grad, layer.bias.grad) == (None, None)
    assert torch.allclose(x.grad, layer.weight.sum(0).expand(80, -1), atol=1e-5)


def test_freed_memory_serves_again():
    """A quarter of a gigabyte is 65,536 pages; none of them comes from the kernel twice."""
    keep_freed_memory()

    def new_pages() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**26)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    new_pages()
    assert new_pages() < 1000


def test_a_policy_on_a_cpu_has_fast_layers(policies):
    kinds = {type(module) for module in policies["qwen2"].model.modules() if isinstance(module, nn.Linear)}
    assert kinds == {FastLinear}
