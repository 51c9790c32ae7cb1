"""Bytes that autograd keeps per row with 16-bit products, as on a GPU; from ``config.json`` alone.

Autocast keeps some tensors in 16 bits and others in float32, and a 16-bit copy of every float32 weight that
is multiplied. A model without memory on the ``meta`` device cannot show that, because autocast passes it by.
So the forward pass runs on PyTorch's fake tensors: they have a device, here the CPU, whose autocast casts the
same products as CUDA's does, and no values either. One and two layers are enough where all are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from sapo_client.learner.adapters import base_model
from sapo_client.learner.memory import RowCost, fit_row_cost
from sapo_client.learner.sizing.skeleton import kept_bytes, make_thin_skeleton, without_values


@dataclass(frozen=True, slots=True)
class SavedCosts:
    """Bytes that autograd keeps, without parameters and head.

    Attributes:
        row: of one row.
        batch: of a micro-batch beside its rows: 16-bit copies of weights.
    """

    row: RowCost
    batch: float


@lru_cache(maxsize=16)
def saved_costs(model: str, layers: int, *, lora_rank: int, half_base: bool) -> SavedCosts:
    """Return the bytes that autograd keeps of a forward pass through a model's first layers under autocast.

    Args:
        model: as for ``load_policy``.
        layers: how many; what stands before and after them is left out.
        lora_rank: rank of adapters; 0 trains all parameters.
        half_base: whether the base has 16 bits, which needs adapters.

    Raises:
        SapoError: the model's configuration cannot be read.
        NoForwardPass: it cannot be told.
    """
    kind = torch.bfloat16 if half_base else torch.float32
    with without_values():
        one, two = (make_thin_skeleton(model, count, lora_rank=lora_rank, dtype=kind) for count in (1, 2))
        with FakeTensorMode(allow_non_fake_inputs=True):
            _fill(one)
            _fill(two)
            row, batch = fit_row_cost(lambda width: layers * (_saved(two, width) - _saved(one, width)))
    return SavedCosts(row, batch)


def _fill(skeleton: Any) -> None:
    """Replace parameters and buffers on the meta device by ones on a CPU; fake tensors must be on."""
    parameters: dict[int, nn.Parameter] = {}  # tied ones stay one
    for module in skeleton.modules():
        for name, old in module._parameters.items():
            if old is not None and id(old) not in parameters:
                values = torch.empty(old.shape, dtype=old.dtype)
                parameters[id(old)] = nn.Parameter(values, requires_grad=old.requires_grad)
            module._parameters[name] = None if old is None else parameters[id(old)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def _saved(skeleton: Any, width: int) -> float:
    """Return the bytes that autograd keeps of a row."""
    base = base_model(skeleton)

    def forward() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            base.base_model(input_ids=torch.zeros((1, width), dtype=torch.long), use_cache=False)

    return kept_bytes(forward, list(skeleton.parameters()))
