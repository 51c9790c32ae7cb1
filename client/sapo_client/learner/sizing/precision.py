"""Data types: of a frozen base, of matrix products in training, of vLLM's engine.

Trained parameters, their gradients and moments are always float32. bfloat16 has float32's range; float16 is
more exact and overflows, so that its gradients are scaled (``loss_scale.py``). Tensor cores compute bfloat16
from compute capability 8.0 (Ampere) on; a T4 (7.5) has float16 alone, and vLLM refuses bfloat16 there. A CPU
has a 16-bit type only if it multiplies bfloat16 in hardware (AVX512_BF16, AMX, ARM's BF16).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import torch

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.cpu.bfloat16 import has_bfloat16

BaseName = Literal["auto", "float32", "bfloat16", "float16", "nf4"]

_BFLOAT16_CAPABILITY: Final = (8, 0)

_TYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def half_type(capability: tuple[int, int]) -> torch.dtype:
    """Return the 16-bit type that tensor cores of a CUDA compute capability multiply."""
    return torch.bfloat16 if capability >= _BFLOAT16_CAPABILITY else torch.float16


def device_half_type(device: torch.device) -> torch.dtype | None:
    """Return the 16-bit type that a device's hardware multiplies, or None for a CPU that has none."""
    if device.type != "cuda":
        return torch.bfloat16 if has_bfloat16() else None
    return half_type(torch.cuda.get_device_capability(device))


def base_type(name: BaseName, device: torch.device) -> torch.dtype:
    """Return the data type of a frozen base; with ``nf4``, of its layers that are not quantised.

    ``auto`` is the device's 16-bit type on CUDA, and float32 on a CPU.
    """
    if name in _TYPES:
        return _TYPES[name]
    return (device_half_type(device) if device.type == "cuda" else None) or torch.float32


def product_type(device: torch.device, bfloat16: bool | None) -> torch.dtype | None:
    """Return the type to which training's matrix products are cast, or None for the parameters' own.

    Args:
        device: of the policy.
        bfloat16: the setting; None takes the device's 16-bit type, if it has one.
    """
    if bfloat16 is None:
        return device_half_type(device)
    return torch.bfloat16 if bfloat16 else None


def type_names(base: BaseName, bfloat16: bool | None, device: torch.device) -> list[str]:
    """Return the names of the types of a frozen base and of training's products on a device."""
    products = product_type(device, bfloat16)
    return [str(base_type(base, device)), "the parameters' own" if products is None else str(products)]


def require_equal_types(names: Sequence[list[str]]) -> None:
    """Raise unless all ranks of a learner have the same types: they shard one model, and add gradients up.

    Args:
        names: of each rank, from ``type_names``.

    Raises:
        SapoError: their hardware has different ones.
    """
    if different := [each for each in names if each != names[0]]:
        one, other = (f"{base} with products in {products}" for base, products in (names[0], different[0]))
        raise SapoError(
            f"the learner's ranks have different data types: {one}, and {other}",
            hint="set learner.bfloat16 = false and, with adapters, learner.base = float32, or take equal"
            " hardware",
            exit_code=ExitCode.CONFIG,
        )


def sampling_type(device: torch.device, bfloat16: bool | None) -> torch.dtype | None:
    """Return the type of the own sampler's products, or None for the model's own.

    On a CPU it is training's, whose first pass takes results of sampling; on a GPU it is the model's.
    """
    return product_type(device, bfloat16) if device.type == "cpu" else None


def engine_type(device: torch.device) -> str:
    """Return vLLM's name of the type that its engine computes in."""
    if device.type == "cpu":
        return "float32"
    return str(device_half_type(device)).removeprefix("torch.")


def loading_options(name: BaseName, device: torch.device) -> dict[str, Any]:
    """Return transformers' options for loading a base of this name.

    Raises:
        SapoError: bitsandbytes is missing.
    """
    kind = base_type(name, device)
    if name != "nf4":
        return {"dtype": kind}
    extras.require(
        extras.QUANTISED, instead="set learner.base to bfloat16 or float16", exit_code=ExitCode.CONFIG
    )
    from transformers import BitsAndBytesConfig

    quantisation = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=kind,
    )
    return {"dtype": kind, "quantization_config": quantisation, "device_map": {"": str(device)}}


def keep_differentiable(model: torch.nn.Module) -> None:
    """Keep 4-bit layers from a product that has no derivative.

    On a processor that multiplies bfloat16 bitsandbytes 0.50 lays a layer's weights out anew at the first
    input without a gradient, for a product of sampling alone: a policy samples and trains in turn, and its
    next training pass fails.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]  # a flag, not a submodule


def require_float32_without_adapters(name: BaseName, lora_rank: int) -> BaseName:
    """Return the base of a policy: as set with adapters, float32 without.

    Raises:
        SapoError: another base is set, and all parameters would be trained.
    """
    if lora_rank or name in ("auto", "float32"):
        return name if lora_rank else "float32"
    raise SapoError(
        f"learner.base = {name} freezes the model, and nothing would be left to train",
        hint="set learner.lora_rank = 16 to train adapters, or leave learner.base at auto",
        exit_code=ExitCode.CONFIG,
    )
