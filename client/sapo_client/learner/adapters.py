"""Low-rank adapters (LoRA, arXiv 2106.09685) by peft: a hundredth of the parameters is trained."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError

_ADAPTER: Final = "default"
_WRAPPED: Final = "base_model.model."
"""Prefix that peft adds to the names of a model's modules."""

_MAMBA_KINDS: Final = frozenset({"falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"})
"""Model types to whose layers of the names below peft adds no adapters, ``dt_proj`` aside."""

_MAMBA_WEIGHTS: Final = frozenset({"conv1d", "dt_proj", "out_proj"})
"""Layers of a state space model whose weights are given to its kernels."""


def add_adapters(model: Any, rank: int) -> Any:
    """Return the model with trained adapters on every linear layer of its decoder; all else is frozen.

    The head and layers for images and sound get none, for no task reaches the latter; neither do layers whose
    weights are used without calling them, or that return more than a product.

    Raises:
        SapoError: the architecture has no such layers.
    """
    extras.require(extras.LORA, exit_code=ExitCode.CONFIG)
    # peft imports bitsandbytes, if it is installed; their output does not help a node's operator
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        exclude_modules=_without_adapters(model) or None,
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
            return get_peft_model(model, config).eval()
    except ValueError as error:
        raise SapoError(
            f"no adapters fit this model: {error}",
            hint="leave learner.lora_rank at 0 to train all parameters",
            exit_code=ExitCode.CONFIG,
        ) from error


def _without_adapters(model: Any) -> list[str]:
    """Return the linear layers without adapters, by their whole names or the last part of them."""
    routers = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "Router" in type(module).__name__
    }
    used = _MAMBA_WEIGHTS if model.config.model_type in _MAMBA_KINDS else frozenset()
    return sorted(routers | used | _outside_decoder(model))


def _outside_decoder(model: Any) -> set[str]:
    """Return the names of a multimodal model's linear layers that are not in its language model."""
    from transformers import PreTrainedModel

    decoder = model.get_decoder()
    if not isinstance(decoder, PreTrainedModel):  # ModernBERT calls the layer before its head so
        return set()
    inside = set(decoder.modules())
    return {
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module not in inside
    }


def has_adapters(model: Any) -> bool:
    """Whether a model has adapters."""
    return hasattr(model, "disable_adapter")


@contextmanager
def adapters_disabled(model: Any) -> Iterator[Any]:
    """Yield the model with its adapters switched off, which is the model before they were trained."""
    with model.disable_adapter():
        yield model


def merge_adapters(model: Any) -> Any:
    """Return a copy with the adapters added to its weights, or the model itself if it has none.

    The copy of a quantised base is in floating point, since quantising it again would change the policy.

    Raises:
        SapoError: the base is quantised in a way that transformers cannot undo.
    """
    if not has_adapters(model):
        return model
    if getattr(base_model(model), "is_quantized", False):
        return _merged_in_floats(model)
    return copy.deepcopy(model).merge_and_unload()


def _merged_in_floats(model: Any) -> Any:
    """Return adapters merged into a quantised base as a floating-point model."""
    from peft.tuners.lora import LoraLayer

    base = copy.deepcopy(model).unload()
    try:
        base = base.dequantize()
    except NotImplementedError as error:
        raise SapoError(
            f"adapters cannot be merged into this model's weights: {error}",
            hint="export from adapters on a floating-point model, or on a 4-bit one of bitsandbytes",
            exit_code=ExitCode.CONFIG,
        ) from error
    # transformers would try to write the weights quantised as they were read, and cannot
    base._weight_conversions = None
    with torch.no_grad():
        for name, layer in model.named_modules():
            if isinstance(layer, LoraLayer):
                weight = base.get_submodule(name.removeprefix(_WRAPPED)).weight
                weight.add_(layer.get_delta_weight(_ADAPTER).to(weight))
    return base


def base_model(model: Any) -> Any:
    """Return the transformers model under the adapters, or the model itself."""
    return model.get_base_model() if has_adapters(model) else model


def adapter_rank(model: Any) -> int:
    """Return the rank of a model's adapters."""
    return int(model.peft_config[_ADAPTER].r)


def save_adapters(model: Any, folder: Path) -> None:
    """Write the adapters alone, as peft and vLLM read them: a file of weights and one of settings."""
    model.save_pretrained(folder)
