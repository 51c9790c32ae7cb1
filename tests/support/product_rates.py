"""Rates of float32 products of the bundled policy's shapes, by oneDNN and by PyTorch's default (MKL).

    PYTHONPATH=$PYTHONPATH:tests python -m support.product_rates

Both take turns on one thread. Prints GFLOP/s of the fastest turn, and the median of the turns' ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import linear

from sapo_client.learner.cpu.linear import _onednn_linear

SHAPES: Final = {"qkv": (256, 128), "out": (128, 128), "gate and up": (768, 128), "down": (128, 384)}
"""Outputs and inputs of a layer's products."""

ROWS: Final = (64, 512, 4096)
"""Sampling's, the feed-forward half's in training, and a micro-batch's."""

TURNS: Final = 25
TURN_SECONDS: Final = 2e-3


def seconds(product: Callable[[], Tensor], count: int) -> float:
    """Return the thread's seconds of one product, the mean of a turn of so many."""
    started = time.thread_time()
    for _ in range(count):
        product()
    return (time.thread_time() - started) / count


def compared(onednn: Callable[[], Tensor], torch_own: Callable[[], Tensor], operations: int) -> str:
    """Return the rates of two ways to compute the same, and oneDNN's share of the other's time."""
    assert torch.allclose(onednn(), torch_own(), atol=1e-3)
    count = max(3, int(TURN_SECONDS / max(seconds(onednn, 3), 1e-6)))
    turns = [(seconds(onednn, count), seconds(torch_own, count)) for _ in range(TURNS)]
    rates = [operations / min(turn[way] for turn in turns) / 1e9 for way in (0, 1)]
    return f"{rates[0]:4.0f} {rates[1]:4.0f} {statistics.median(one / other for one, other in turns):5.2f}"


def rates(outputs: int, inputs: int, rows: int) -> str:
    """Return what is found of a layer's outputs, gradients of its inputs, and gradients of its weight."""
    x, weight, grad = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    operations = 2 * rows * outputs * inputs
    found = (
        compared(lambda: _onednn_linear(x, laid_out), lambda: linear(x, weight), operations),
        compared(lambda: _onednn_linear(grad, weight.t()), lambda: grad @ weight, operations),
        compared(lambda: _onednn_linear(grad.t(), x.t()), lambda: grad.t() @ x, operations),
    )
    return " | ".join(found)


@torch.no_grad()
def main() -> None:
    """Print a line for each shape and number of rows."""
    torch.set_num_threads(1)
    print("GFLOP/s of oneDNN and PyTorch, oneDNN's share of its time; outputs | of inputs | of weights")
    for name, (outputs, inputs) in SHAPES.items():
        for rows in ROWS:
            print(f"{name:12} {rows:5} rows: {rates(outputs, inputs, rows)}", flush=True)


if __name__ == "__main__":
    main()
