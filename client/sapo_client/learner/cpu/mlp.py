"""The feed-forward half of a layer for training: norm, gate and up, SwiGLU, down, and the residual.

It is one autograd function that works through the tokens in blocks. What lies between two products of a block
stays in the core's cache, where tables of all tokens would be written to memory and read again; and of a
block only gate and up are kept for the backward pass, which computes the rest once more: it is elementwise.

Shapes: N packed tokens, I intermediate size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import silu

from sapo_client.learner.cpu.fused_layers import Affine
from sapo_client.learner.cpu.linear import prepacked_linear, sum_of_outer_products

BLOCK_ROWS: Final = 512
"""Tokens of a block; 256 and 1,024 are no faster at the bundled policy's width (docs/results-history.md)."""


@dataclass(frozen=True, slots=True)
class KnownMlp:
    """What sampling computed of this half of a layer.

    Attributes:
        gate_up: table of all sampled tokens' gate and up, (sampled, 2 I).
        rows: each packed token's row there, (N,).
        hidden: the result, (N, hidden).
    """

    gate_up: Tensor
    rows: Tensor
    hidden: Tensor


def mlp(middle: Tensor, epsilon: float, gate_up: Affine, down: Affine, known: KnownMlp | None) -> Tensor:
    """Return hidden states after the feed-forward half of a layer: (N, hidden) to (N, hidden).

    Args:
        middle: hidden states after attention.
        epsilon: of the norm, whose weight ``gate_up`` contains.
        gate_up: fused projection to 2 I.
        down: projection from I.
        known: what sampling computed by the present weights; None computes it.
    """
    result: Tensor = _Mlp.apply(middle, epsilon, *gate_up, *down, known)  # type: ignore[no-untyped-call]
    return result


class _Mlp(torch.autograd.Function):
    """See ``mlp``."""

    @staticmethod
    def forward(
        ctx: Any,
        middle: Tensor,
        epsilon: float,
        weight: Tensor,
        bias: Tensor | None,
        down_weight: Tensor,
        down_bias: Tensor | None,
        known: KnownMlp | None,
    ) -> Tensor:
        ctx.epsilon = epsilon
        # not `known` itself: its `hidden` becomes the output and would hold itself through its own node
        ctx.table, ctx.rows = (None, None) if known is None else (known.gate_up, known.rows)
        blocks: list[Tensor] = []
        if known is not None:
            result = known.hidden
        else:
            gate_up, down = prepacked_linear(weight, bias), prepacked_linear(down_weight, down_bias)
            result = torch.empty_like(middle)
            for part in _parts(len(middle)):
                normed, _ = _rms_norm(middle[part], epsilon)
                blocks.append(gate_up(normed))
                gate, up = blocks[-1].chunk(2, -1)
                torch.add(down(silu(gate).mul_(up)), middle[part], out=result[part])
        ctx.save_for_backward(middle, weight, down_weight, *blocks)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        middle, weight, down_weight, *blocks = ctx.saved_tensors
        _, _, _, has_bias, _, has_down_bias, _ = ctx.needs_input_grad
        from_gate_up, from_down = prepacked_linear(weight.t()), prepacked_linear(down_weight.t())
        grad_middle = torch.empty_like(middle)
        grad_weight = middle.new_zeros(weight.shape[::-1])  # the narrower factor of the product comes first
        grad_bias = middle.new_zeros(len(weight))
        grad_down = middle.new_zeros(down_weight.shape)
        for number, part in enumerate(_parts(len(middle))):
            grad = grad_output[part]
            normed, scale = _rms_norm(middle[part], ctx.epsilon)
            gate_up = blocks[number] if blocks else ctx.table.index_select(0, ctx.rows[part])
            gate, up = gate_up.chunk(2, -1)
            activated, grad_gated = silu(gate), from_down(grad)
            grad_gate_up = torch.empty_like(gate_up)
            grad_gate, grad_up = grad_gate_up.chunk(2, -1)
            torch.mul(grad_gated, activated, out=grad_up)
            torch.ops.aten.silu_backward.grad_input(grad_gated.mul_(up), gate, grad_input=grad_gate)
            grad_down += sum_of_outer_products(grad, activated.mul_(up), weight.dtype)
            grad_weight += sum_of_outer_products(normed, grad_gate_up, weight.dtype)
            if has_bias:
                grad_bias += grad_gate_up.sum(0)
            grad_normed = from_gate_up(grad_gate_up)
            mean = (grad_normed * normed).mean(-1, keepdim=True)
            grad_normed.addcmul_(normed, mean, value=-1).mul_(scale)
            torch.add(grad, grad_normed, out=grad_middle[part])
        return (
            grad_middle,
            None,
            grad_weight.t(),
            grad_bias if has_bias else None,
            grad_down,
            grad_output.sum(0) if has_down_bias else None,
            None,
        )


def _parts(count: int) -> list[slice]:
    """Return the blocks of a number of tokens."""
    return [slice(start, start + BLOCK_ROWS) for start in range(0, count, BLOCK_ROWS)]


def _rms_norm(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return rows divided by their root mean square, and the factors, (rows, 1)."""
    size = vector_norm(x, dim=-1, keepdim=True)
    scale = size.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return x * scale, scale
