"""Log-probabilities of target tokens from hidden states, without ever holding all logits.

A head's logits are as wide as the vocabulary: 64 answers of 256 tokens at 152,000 entries take 9.3 GiB in
float32, and the softmax and its gradient as much again. Here the vocabulary is cut into blocks of columns.
The forward pass keeps a running log-sum-exp and the target's logit of every position; the backward pass
computes each block's logits again. It costs one more product with the head. Under autocast on a GPU the
factors of products have 16 bits, which tensor cores multiply several times as fast, and the results are
float32, so that no logit is rounded to 16 bits.

Shapes: N positions, H hidden size, V vocabulary, C entries of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.learner.cpu.linear import fast_linear

BLOCK_VALUES: Final = {"cpu": 2**24, "cuda": 2**25}
"""Most logits of one block, 64 and 128 MiB in float32; on a GPU more blocks are more kernels to start."""

MIN_VOCABULARY: Final = 16_384
"""Below it a block is the whole vocabulary of a thousand positions, and nothing is saved."""


def target_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, temperature: float = 1.0
) -> Tensor:
    """Return the log-probability of every target under the tempered head: (N, H) to (N,), float32.

    Products have the data type of ``hidden``, on a GPU under autocast that of autocast; sums are float32. A
    CPU's products of 16 bits have results of 16 bits, so there factors are float32.

    Args:
        hidden: (N, H).
        weight: of the head, (V, H).
        targets: token ids, (N,).
        bias: of the head, (V,).
        temperature: the logits are divided by it.
    """
    if hidden.is_cuda and torch.is_autocast_enabled("cuda"):
        hidden = hidden.to(torch.get_autocast_dtype("cuda"))
    elif hidden.device.type == "cpu":
        hidden = hidden.float()
    result: Tensor = _TargetLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, temperature
    )
    return result


def block_entries(positions: int, width: int, vocabulary: int, device: str) -> int:
    """Return the number of vocabulary entries of a block.

    Args:
        positions: number of them.
        width: hidden size; a block of the head is copied, to oneDNN's layout or to 16 bits.
        vocabulary: V.
        device: type of the device.
    """
    return min(vocabulary, max(256, BLOCK_VALUES[device] // max(positions, width)))


class _TargetLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float
    ) -> Tensor:
        total = hidden.new_full((len(hidden),), -torch.inf, dtype=torch.float32)
        chosen = torch.zeros_like(total)
        with torch.autocast(hidden.device.type, enabled=False):
            for start, logits in _blocks(hidden, weight, bias, temperature):
                total = torch.logaddexp(total, logits.logsumexp(1))
                inside, column = _inside(targets, start, logits.shape[1])
                chosen = torch.where(inside, logits.gather(1, column[:, None]).squeeze(1), chosen)
        ctx.save_for_backward(hidden, weight, targets, total, *(() if bias is None else (bias,)))
        ctx.temperature = temperature
        return chosen - total

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        hidden, weight, targets, total, *biases = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, _, _ = ctx.needs_input_grad
        scaled = grad_output.float() / ctx.temperature
        grad_hidden = torch.zeros_like(hidden, dtype=torch.float32) if needs_hidden else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        grad_bias = torch.zeros_like(biases[0]) if biases and needs_bias else None
        with torch.autocast(hidden.device.type, enabled=False):
            for start, logits in _blocks(hidden, weight, biases[0] if biases else None, ctx.temperature):
                stop = start + logits.shape[1]
                # the logits' gradient: (1 at the target, else 0) - probability, times that of the result
                gradient = logits.sub_(total[:, None]).exp_().mul_(-scaled[:, None])
                inside, column = _inside(targets, start, logits.shape[1])
                gradient.scatter_add_(1, column[:, None], torch.where(inside, scaled, 0.0)[:, None])
                gradient = gradient.to(hidden.dtype)
                if grad_hidden is not None:
                    part = weight[start:stop].to(hidden.dtype)
                    grad_hidden += _linear(gradient, part.t())
                if grad_weight is not None:
                    grad_weight[start:stop] = _product(gradient.t(), hidden).to(weight.dtype)
                if grad_bias is not None:
                    grad_bias[start:stop] = gradient.sum(0).to(grad_bias.dtype)
        found = None if grad_hidden is None else grad_hidden.to(hidden.dtype)
        return found, grad_weight, grad_bias, None, None


def _blocks(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float
) -> Iterator[tuple[int, Tensor]]:
    """Yield the first vocabulary entry and the float32 logits, (N, C), of every block."""
    size = block_entries(len(hidden), hidden.shape[1], len(weight), hidden.device.type)
    for start in range(0, len(weight), size):
        part = weight[start : start + size].to(hidden.dtype)
        own_bias = None if bias is None else bias[start : start + size].to(hidden.dtype)
        logits = _linear(hidden, part, own_bias)
        yield start, logits if temperature == 1.0 else logits.div_(temperature)


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a linear layer of rows, (B, N) and (M, N) to (B, M), float32 whatever type its factors have."""
    if not _keeps_float32(rows):
        return fast_linear(rows, weight, bias).float()
    product = _product(rows, weight.t())
    return product if bias is None else product.add_(bias)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return a matrix product, float32 whatever type its factors have."""
    if _keeps_float32(left):
        return torch.mm(left, right, out_dtype=torch.float32)
    return (left @ right).float()


def _keeps_float32(factor: Tensor) -> bool:
    """Whether a product of 16-bit factors can have float32 results here: on CUDA, and not on ROCm."""
    return factor.is_cuda and factor.dtype != torch.float32 and torch.version.hip is None


def _inside(targets: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Return which targets lie in a block, (N,), and their columns there, (N,), 0 for the others."""
    column = targets - start
    inside = (column >= 0) & (column < count)
    return inside, torch.where(inside, column, 0)
