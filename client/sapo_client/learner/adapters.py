"""Low-rank adapters (LoRA, arXiv 2106.09685) by peft: a hundredth of the parameters is trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError


def add_adapters(model: Any, rank: int) -> Any:
    """Return the model with adapters on every linear layer but the head; only they are trained.

    Raises:
        SapoError: the architecture has no such layers.
    """
    extras.require(extras.LORA, exit_code=ExitCode.CONFIG)
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    try:
        return get_peft_model(model, config).eval()
    except ValueError as error:
        raise SapoError(
            f"no adapters fit this model: {error}",
            hint="leave learner.lora_rank at 0 to train all parameters",
            exit_code=ExitCode.CONFIG,
        ) from error


def has_adapters(model: Any) -> bool:
    """Whether a model has adapters."""
    return hasattr(model, "disable_adapter")


@contextmanager
def adapters_disabled(model: Any) -> Iterator[Any]:
    """Yield the model with its adapters switched off, which is the model before they were trained."""
    with model.disable_adapter():
        yield model


def merge_adapters(model: Any) -> Any:
    """Return a copy with the adapters added to its weights, or the model itself if it has none."""
    return copy.deepcopy(model).merge_and_unload() if has_adapters(model) else model


def base_model(model: Any) -> Any:
    """Return the transformers model under the adapters, or the model itself."""
    return model.get_base_model() if has_adapters(model) else model
