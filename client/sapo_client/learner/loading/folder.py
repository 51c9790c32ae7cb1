"""What loading would refuse in a folder, told without its weights: from the headers of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sapo_client.learner.loading.reading import read_model, refusal
from sapo_client.learner.loading.weights import UNREADABLE

_HINT: Final = "give a folder with a transformers model"


def check_folder(name: str, quantisation: Any) -> None:
    """Read a model as the learner does, but for its tensors' values.

    What only values show is not found: whether the model is causal, and damage inside a tensor. Of quantised
    weights the sizes are not compared.

    Args:
        name: a folder; a hub's model is not downloaded, and passes.
        quantisation: ``quantization_config`` of its configuration; None for floats.

    Raises:
        SapoError: the learner would refuse it.
    """
    if not Path(name).is_dir():
        return
    if quantisation:
        _check_quantised(name, quantisation)
    else:
        read_model(name, hint=_HINT, device_map="meta")


def _check_quantised(name: str, quantisation: Any) -> None:
    """Look for what the weights' method needs, and read the headers; transformers needs values for more."""
    from safetensors import SafetensorError, safe_open
    from transformers.quantizers import AutoHfQuantizer

    try:
        AutoHfQuantizer.from_config(quantisation, pre_quantized=True).validate_environment(device_map=None)
        for file in sorted(Path(name).glob("*.safetensors")):
            with safe_open(file, framework="pt"):
                pass
    except (*UNREADABLE, SafetensorError) as error:
        raise refusal(name, error, hint=_HINT) from error
