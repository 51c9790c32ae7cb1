"""The feed-forward half of a layer against PyTorch's own functions: values and all gradients."""

import pytest
import torch
from support.gradients import gradient_of
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from sapo_client.learner.cpu import linear as onednn
from sapo_client.learner.cpu.mlp import BLOCK_ROWS, KnownMlp, mlp

HIDDEN, INTERMEDIATE, EPSILON = 24, 48, 1e-6


def tensors(rows: int) -> list[Tensor]:
    """Return hidden states, and weight and bias of both projections."""
    torch.manual_seed(0)
    shapes = (
        (rows, HIDDEN),
        (2 * INTERMEDIATE, HIDDEN),
        (2 * INTERMEDIATE,),
        (HIDDEN, INTERMEDIATE),
        (HIDDEN,),
    )
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def gate_up_of(middle: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return linear(rms_norm(middle, (HIDDEN,), None, EPSILON), weight, bias)


def reference(middle: Tensor, weight: Tensor, bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    gate, up = gate_up_of(middle, weight, bias).chunk(2, -1)
    return linear(silu(gate) * up, down, down_bias) + middle


@pytest.mark.parametrize("rows", [1, BLOCK_ROWS, 2 * BLOCK_ROWS + 64])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("has_onednn", [True, False])
def test_values_and_gradients_are_those_of_torch(
    rows: int, is_known: bool, has_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one block and in several; with what sampling has computed, in another order, and without."""
    if not has_onednn:
        monkeypatch.setattr(onednn, "_LINEAR_OP", None)
    given, twins = tensors(rows), tensors(rows)
    expected = reference(*twins)
    known = None
    if is_known:
        order = torch.randperm(rows)
        table = torch.empty(rows, 2 * INTERMEDIATE)
        table[order] = gate_up_of(*twins[:3]).detach()
        known = KnownMlp(table, order, expected.detach().clone())
    middle, weight, bias, down, down_bias = given
    found = mlp(middle, EPSILON, (weight, bias), (down, down_bias), known)
    assert torch.allclose(found, expected, atol=1e-5 * float(expected.detach().abs().max()))
    factors = torch.linspace(-1, 2, found.numel()).view_as(found)
    torch.autograd.backward((found * factors).sum())
    torch.autograd.backward((expected * factors).sum())
    for one, other in zip(given, twins, strict=True):
        wanted = gradient_of(other)
        assert torch.allclose(gradient_of(one), wanted, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("is_known", [True, False])
def test_bfloat16_weights_are_multiplied_in_bfloat16(is_known: bool) -> None:
    """Gradients come within bfloat16's rounding of those of float32, and are float32 at the parameters."""
    rows = BLOCK_ROWS + 64
    given, twins = tensors(rows), tensors(rows)
    expected = reference(*twins)
    known = None
    if is_known:
        gate_up = gate_up_of(*twins[:3]).detach()
        known = KnownMlp(gate_up, torch.arange(rows), expected.detach().clone())
    middle, weight, bias, down, down_bias = given
    half = [each.bfloat16() for each in (weight, bias, down, down_bias)]
    found = mlp(middle, EPSILON, (half[0], half[1]), (half[2], half[3]), known)
    factors = torch.linspace(-1, 2, found.numel()).view_as(found)
    torch.autograd.backward((found * factors).sum())
    torch.autograd.backward((expected * factors).sum())
    assert found.dtype == torch.float32
    assert relative_error(found.detach(), expected.detach()) < 0.01
    pairs = zip(map(gradient_of, given), map(gradient_of, twins), strict=True)
    errors = [relative_error(one, two) for one, two in pairs]
    assert all(1e-6 < error < 0.02 for error in errors), errors


def test_gradients_of_many_blocks_are_added_in_float32() -> None:
    """In bfloat16 the sum of 48 blocks would be off by 0.005."""
    rows = 48 * BLOCK_ROWS
    (middle, weight, bias, down, down_bias), twins = tensors(rows), tensors(rows)
    half = [each.bfloat16() for each in (weight, bias, down, down_bias)]
    found, expected = mlp(middle, EPSILON, (half[0], half[1]), (half[2], half[3]), None), reference(*twins)
    factors = torch.linspace(-1, 2, found.numel()).view_as(found)
    torch.autograd.backward((found * factors).sum())
    torch.autograd.backward((expected * factors).sum())
    assert relative_error(gradient_of(weight), gradient_of(twins[1])) < 0.004


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_layers_without_biases() -> None:
    middle, weight, _, down, _ = tensors(100)
    twins = tensors(100)
    torch.autograd.backward(mlp(middle, EPSILON, (weight, None), (down, None), None).square().sum())
    plain = reference(twins[0], twins[1], torch.zeros(2 * INTERMEDIATE), twins[3], torch.zeros(HIDDEN))
    torch.autograd.backward(plain.square().sum())
    for one, other in zip((middle, weight, down), (twins[0], twins[1], twins[3]), strict=True):
        wanted = gradient_of(other)
        assert torch.allclose(gradient_of(one), wanted, atol=1e-5 * float(wanted.abs().max()))
