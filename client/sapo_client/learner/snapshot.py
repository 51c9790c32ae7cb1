"""Copies of weights, and of a trainer's state before a step, to undo it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copies of trained parameters and of the optimizer's state."""

    parameters: Sequence[Tensor]
    optimizer: dict[str, Any]

    @classmethod
    def take(cls, parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> Snapshot:
        """Return a copy of the present state."""
        return cls(copies(parameters), copy.deepcopy(optimizer.state_dict()))

    def restore(self, parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
        """Write the copied state back."""
        write(self.parameters, parameters)
        optimizer.load_state_dict(self.optimizer)


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of the values."""
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def write(values: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    """Write values into tensors of the same shapes, in place."""
    for tensor, value in zip(into, values, strict=True):
        tensor.copy_(value)
