"""Low-rank adapters (LoRA, arXiv 2106.09685) by peft: a hundredth of the parameters is trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError

if TYPE_CHECKING:
    from sapo_client.learner.policy import Policy


def with_adapters(policy: Policy, rank: int) -> Policy:
    """The policy with adapters on every linear layer but the head; only they are trained.

    Raises:
        SapoError: the architecture has no such layers.
    """
    extras.require(extras.LORA, exit_code=ExitCode.CONFIG)
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    try:
        model = get_peft_model(policy.model, config)
    except ValueError as error:
        raise SapoError(
            f"no adapters fit this model: {error}",
            hint="leave learner.lora_rank at 0 to train all parameters",
            exit_code=ExitCode.CONFIG,
        ) from error
    return replace(policy, model=model.eval())


def has_adapters(model: Any) -> bool:
    """Whether a model has adapters."""
    return hasattr(model, "disable_adapter")


@contextmanager
def starting_model(model: Any) -> Iterator[Any]:
    """The model as it was before its adapters were trained, for as long as the context lasts."""
    with model.disable_adapter():
        yield model


def merged(model: Any) -> Any:
    """A plain transformers model, the adapters added to its weights; without adapters the model itself."""
    return copy.deepcopy(model).merge_and_unload() if has_adapters(model) else model


def base_of(model: Any) -> Any:
    """The transformers model under the adapters, or the model itself."""
    return model.get_base_model() if has_adapters(model) else model
