"""Copy of a trainer's state before a step, to undo the step."""

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
        copies = [parameter.detach().clone() for parameter in parameters]
        return cls(copies, copy.deepcopy(optimizer.state_dict()))

    @torch.no_grad()
    def restore(self, parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
        """Write the copied state back."""
        for parameter, value in zip(parameters, self.parameters, strict=True):
            parameter.copy_(value)
        optimizer.load_state_dict(self.optimizer)
