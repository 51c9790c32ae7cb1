"""A trainer's numbers before a step, to go back to."""

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
        """The state as it is now."""
        copies = [parameter.detach().clone() for parameter in parameters]
        return cls(copies, copy.deepcopy(optimizer.state_dict()))

    @torch.no_grad()
    def put_back(self, parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
        """The state as it was."""
        for parameter, value in zip(parameters, self.parameters, strict=True):
            parameter.copy_(value)
        optimizer.load_state_dict(self.optimizer)
