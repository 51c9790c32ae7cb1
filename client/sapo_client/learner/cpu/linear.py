"""Linear layers computed by oneDNN on CPUs where PyTorch would call MKL.

On processors with AVX-512 that are not Intel's, MKL does not use it; oneDNN, which is part of the same
PyTorch build, takes half of the time for the same float32 product. On those that have AVX2 alone MKL is the
faster one, above all for weights' gradients, and computes what is float32 (docs/results-history.md).
PyTorch calls oneDNN for compiled graphs only, so this module calls the two operators that those graphs use:

* ``torch.ops.mkldnn._linear_pointwise`` computes a linear layer,
* ``torch.ops.mkldnn._reorder_linear_weight`` copies a weight into oneDNN's own memory layout ("prepacking").

Both are private and may change or disappear. If either is missing when this module is imported, every
function here computes ``torch.nn.functional.linear`` and ``use_fast_linear`` leaves the model as it is. If a
call raises RuntimeError, that call alone is computed by ``torch.nn.functional.linear``.

The type of a weight is that of its products: beside float32 inputs, a bfloat16 weight's are computed in
bfloat16 with sums in float32, and their results are float32 again.

Shapes: N inputs, M outputs, B rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.backends.cpu import get_cpu_capability
from torch.nn.functional import linear

MIN_ROWS: Final = 32
"""With fewer rows, oneDNN's start-up of a fiftieth of a millisecond outweighs its gain."""

_PREPACK_ROWS: Final = 64
"""Number of rows that a prepacked weight is laid out for; other numbers of rows work as well."""

MAX_KERNELS: Final = 128
"""Compiled kernels that oneDNN keeps, one for each shape of a product, of about half a megabyte each.

Its default of 1,024 takes half a gigabyte, filled over hours because micro-batches have ever other numbers of
rows. Fewer cost little, for a kernel is compiled in a fraction of a millisecond (docs/results-history.md).
"""

_KERNEL_LIMITS: Final = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Variables that oneDNN, and PyTorch's own cache in front of it, read at the first product."""

_HAS_MKL: Final[bool] = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]

_MKL_IS_FASTER: Final = _HAS_MKL and get_cpu_capability() == "AVX2"
"""Whether float32 products are left to MKL. It follows from the processor alone, not from a measurement, so
that every start computes the same."""

_LINEAR_OP: Final = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_PREPACK_OP: Final = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)


def prepacked_linear(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return a linear layer for repeated use without gradients: (..., N) to (..., M).

    Args:
        weight: (M, N); oneDNN gets a prepacked copy, so later changes of the weight have no effect.
        bias: (M,).
    """
    plain = partial(_torch_linear, weight=weight, bias=bias)
    if not _is_multiplied(weight):
        return plain
    assert _PREPACK_OP is not None
    try:
        prepacked = _PREPACK_OP(weight.detach().contiguous(), _PREPACK_ROWS)
    except RuntimeError:  # as in _onednn_linear
        return plain

    def compute(x: Tensor) -> Tensor:
        return _onednn_linear(x, prepacked, bias)

    return compute


def fast_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``torch.nn.functional.linear`` with gradients: (..., N), (M, N), (M,) to (..., M)."""
    if not _is_supported(x.numel() // x.shape[-1], x, weight):
        return _torch_linear(x, weight, bias)
    result: Tensor = _LinearFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


def known_linear(
    x: Tensor, layer: tuple[Tensor, Tensor | None], *, known: Tensor | None, residual: Tensor | None = None
) -> Tensor:
    """Return a linear layer's output that is known already, with the layer's gradients; None computes it.

    Args:
        x: the layer's input, (B, N).
        layer: weight (M, N) and bias (M,).
        known: the output, ``residual`` included, (B, M).
        residual: what was added to the product, (B, M).
    """
    if known is None:
        product = fast_linear(x, *layer)
        return product if residual is None else product.add_(residual)
    result: Tensor = _KnownLinear.apply(x, *layer, residual, known)  # type: ignore[no-untyped-call]
    return result


class FastLinear(nn.Linear):
    """Linear layer whose forward and backward pass call oneDNN."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's output, as ``torch.nn.Linear`` does."""
        return fast_linear(input, self.weight, self.bias)


def use_fast_linear(model: nn.Module) -> None:
    """Turn every plain linear layer of a model into a ``FastLinear``; parameters and their names stay."""
    if _LINEAR_OP is not None and _PREPACK_OP is not None:
        limit_kernels()
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = FastLinear


def limit_kernels() -> None:
    """Let this process keep ``MAX_KERNELS`` kernels; the variables of the user and earlier products win."""
    for name in _KERNEL_LIMITS:
        os.environ.setdefault(name, str(MAX_KERNELS))


class _LinearFunction(torch.autograd.Function):
    """A linear layer and its derivative: (..., N), (M, N), (M,) to (..., M)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        return _linear_gradients(x, weight, grad_output, ctx.needs_input_grad)


class _KnownLinear(torch.autograd.Function):
    """A linear layer whose output is given, and its derivative; see ``known_linear``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, known: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        return known.view_as(known)

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        residual = grad_output if ctx.needs_input_grad[3] else None
        if not _is_supported(len(x), x, weight):
            needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
            grad, x = grad_output.to(weight.dtype), x.to(weight.dtype)
            return (
                (grad @ weight).to(grad_output.dtype) if needs_x else None,
                grad.t() @ x if needs_weight else None,
                grad_output.sum(0) if needs_bias else None,
                residual,
                None,
            )
        return *_linear_gradients(x, weight, grad_output, ctx.needs_input_grad[:3]), residual, None


def _linear_gradients(
    x: Tensor, weight: Tensor, grad_output: Tensor, needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of a linear layer's input, weight and bias where they are needed."""
    flat = grad_output.flatten(0, -2)
    needs_x, needs_weight, needs_bias = needed
    return (
        _onednn_linear(grad_output, weight.t()) if needs_x else None,
        sum_of_outer_products(flat, x.flatten(0, -2), weight.dtype) if needs_weight else None,
        flat.sum(0) if needs_bias else None,
    )


def sum_of_outer_products(left: Tensor, right: Tensor, products: torch.dtype) -> Tensor:
    """Return the sum of the rows' outer products, without gradients: (B, M), (B, N) to (M, N).

    oneDNN copies a transposed first factor, so the narrower one comes first.

    Args:
        left: first factors.
        right: second factors.
        products: type in which they are computed, and that of the result.
    """
    supported = _is_supported(len(left), left, right)
    left, right = left.to(products), right.to(products)
    if not supported:
        return left.t() @ right
    if left.shape[1] <= right.shape[1]:
        return _onednn_linear(left.t(), right.t())
    return _onednn_linear(right.t(), left.t()).t()


def _torch_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a linear layer with PyTorch, in the weight's type, and return it in the input's.

    For rows that do not lie one after another, as each sequence's last hidden state, PyTorch multiplies
    sequence by sequence, and in bfloat16 copies the weight for each of them.
    """
    x = x.contiguous()
    if x.dtype == weight.dtype:  # the result may have another type, under autocast
        return linear(x, weight, bias)
    return linear(x.to(weight.dtype), weight, bias).to(x.dtype)


def _onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute a linear layer with oneDNN, or with PyTorch where oneDNN refuses; no gradients."""
    assert _LINEAR_OP is not None
    try:
        # the last three describe a pointwise function after the product; names would double the call's cost
        result: Tensor = _LINEAR_OP(x.to(weight.dtype), weight, bias, "none", [], "")
    except RuntimeError:  # oneDNN has no memory for its compiled kernel; without any memory `linear` raises
        return _torch_linear(x, weight.to_dense() if weight.is_mkldnn else weight, bias)
    return result.to(x.dtype)


def _is_supported(rows: int, x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN computes this: float32 inputs, enough rows of them, and a weight that it multiplies."""
    return rows >= MIN_ROWS and x.dtype == torch.float32 and _is_multiplied(weight)


def _is_multiplied(weight: Tensor) -> bool:
    """Whether oneDNN multiplies by this weight: of float32 or bfloat16, on a CPU, without autocast."""
    return (
        _LINEAR_OP is not None
        and _PREPACK_OP is not None
        and weight.device.type == "cpu"
        and (weight.dtype == torch.bfloat16 or (weight.dtype == torch.float32 and not _MKL_IS_FASTER))
        and not torch.is_autocast_enabled("cpu")
    )
