"""Detection of weights that cannot be trained: integers that encode floats, and NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.loading.weights import some

_COMPARED: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Types whose values PyTorch compares; 8-bit floats are of quantised weights."""


def require_floats(name: str, model: Any) -> None:
    """Raise if a folder's files hold integers where its model has floats; transformers casts them silently.

    Args:
        name: folder or hub name; only a folder is looked at.
        model: of transformers, as loaded or on the device ``meta``.

    Raises:
        SapoError: they do, and the configuration does not say how the weights are quantised.
    """
    if not Path(name).is_dir() or getattr(model.config, "quantization_config", None):
        return
    parameters = {parameter for parameter, _ in model.named_parameters()}
    prefix = f"{model.base_model_prefix}."
    found = [
        key
        for key in _integers(Path(name))
        if not parameters.isdisjoint({key, prefix + key, key.removeprefix(prefix)})
    ]
    if found:
        raise SapoError(
            f"the weights of {name!r} are integers, and its config.json does not say how they are quantised:"
            f" {some(found)}",
            hint="take the model in floats, or copy the folder again with the config.json that has its"
            " quantization_config",
            exit_code=ExitCode.CONFIG,
        )


def require_no_nan(name: str, model: Any) -> None:
    """Raise if a weight is NaN, also one of a token or an expert that few texts need.

    Args:
        name: folder or hub name.
        model: of transformers, with values.

    Raises:
        SapoError: one is.
    """
    with torch.no_grad():
        found = [
            parameter
            for parameter, values in model.named_parameters()
            if values.dtype in _COMPARED and values.numel() and bool(values.min().isnan())
        ]
    if found:
        raise SapoError(
            f"the model {name!r} has weights that are no numbers (NaN): {some(found)}",
            hint="copy the folder again, or take another model: each training step would be undone",
            exit_code=ExitCode.CONFIG,
        )


def _integers(folder: Path) -> list[str]:
    """Return the names of a folder's tensors of integers, from the headers of the files that are read."""
    from safetensors import safe_open

    found = []
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            found += [each for each in names if opened.get_slice(each).get_dtype()[0] in "IU"]
    return found
