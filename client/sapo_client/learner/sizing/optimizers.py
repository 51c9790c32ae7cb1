"""Optimizers and learning rates by the setting and the model's size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import torch
from torch import Tensor

from sapo_client import extras
from sapo_client.errors import ExitCode

OptimizerName = Literal["adamw", "adamw8bit"]

ADAPTER_RATE: Final = 10.0
"""Factor of the learning rate of low-rank adapters ("LoRA without regret": the best one is ten times as large
as that of full training, whatever the rank)."""

MOMENT_BYTES: Final = {"adamw": 8.0, "adamw8bit": 2.1}
"""Of one parameter's two moments; 8-bit ones have a scale per 256 values."""


def make_optimizer(
    parameters: Sequence[Tensor], rate: float, name: OptimizerName = "adamw"
) -> torch.optim.Optimizer:
    """Return AdamW without weight decay; ``adamw8bit`` keeps its moments in 8 bits.

    Raises:
        SapoError: bitsandbytes is missing.
    """
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0, fused=True)
    extras.require(extras.QUANTISED, instead="set learner.optimizer = adamw", exit_code=ExitCode.CONFIG)
    from bitsandbytes.optim.adamw import AdamW8bit

    optimizer: torch.optim.Optimizer = AdamW8bit(  # type: ignore[no-untyped-call]
        parameters, lr=rate, weight_decay=0.0
    )
    return optimizer
