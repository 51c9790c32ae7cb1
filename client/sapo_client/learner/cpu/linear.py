"""Matrix products of linear layers by oneDNN, where PyTorch would take MKL.

On processors that are not Intel's, MKL does without their widest instructions: there oneDNN, which the same
PyTorch carries, takes half of the time for the same float32 product (docs/results.md). PyTorch offers it to
compiled graphs alone, so it is called by the operator that those use; where there is none, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

FEWEST_ROWS: Final = 32
"""Below this, oneDNN's start of a fiftieth of a millisecond is not worth it."""

_USUAL_ROWS: Final = 64
"""For which a weight is laid out; others may use it as well."""

_ONEDNN: Final = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_LAY_OUT: Final = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)


def prepared(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """A linear layer that is to be used again and again, without gradients: (..., N) to (..., M).

    oneDNN gets the weight, (M, N), laid out as it wants it, in a copy.
    """
    plain = partial(linear, weight=weight, bias=bias)
    if not _is_worth_it(FEWEST_ROWS, weight, weight):
        return plain
    assert _LAY_OUT is not None
    try:
        laid_out = _LAY_OUT(weight.detach().contiguous(), _USUAL_ROWS)
    except RuntimeError:  # as in a product
        return plain

    def product(x: Tensor) -> Tensor:
        return _by_onednn(x, laid_out, bias)

    return product


def differentiable_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear``, with gradients: (..., N), (M, N), (M,) to (..., M)."""
    if not _is_worth_it(x.numel() // x.shape[-1], x, weight):
        return linear(x, weight, bias)
    result: Tensor = _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


class FastLinear(nn.Linear):
    """A linear layer with fast products, forwards and backwards."""

    def forward(self, input: Tensor) -> Tensor:
        """See ``torch.nn.Linear``."""
        return differentiable_product(input, self.weight, self.bias)


def with_fast_products(model: nn.Module) -> None:
    """Makes every plain linear layer of a model a fast one; weights and their names stay as they are."""
    if _ONEDNN is not None:
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = FastLinear


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _by_onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        flat = gradient.flatten(0, -2)
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            _by_onednn(gradient, weight.t()) if of_x else None,
            _outer(flat, x.flatten(0, -2)) if of_weight else None,
            flat.sum(0) if of_bias else None,
        )


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Sum of the rows' outer products, (B, M), (B, N) to (M, N).

    A first factor that is transposed is copied, so it is the smaller one.
    """
    if left.shape[1] <= right.shape[1]:
        return _by_onednn(left.t(), right.t())
    return _by_onednn(right.t(), left.t()).t()


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    assert _ONEDNN is not None
    try:
        result: Tensor = _ONEDNN(x, weight, bias, "none", [], "")
    except RuntimeError:  # no room for a program of its own; if there is no memory at all, `linear` says so
        return linear(x, weight.to_dense() if weight.is_mkldnn else weight, bias)
    return result


def _is_worth_it(rows: int, x: Tensor, weight: Tensor) -> bool:
    """Whether this is a float32 product on a CPU of some size; autocast asks for another kind."""
    return (
        _ONEDNN is not None
        and _LAY_OUT is not None
        and rows >= FEWEST_ROWS
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )
