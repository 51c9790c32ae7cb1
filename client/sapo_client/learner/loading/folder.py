"""Check of a model's folder without loading its weights, from small files and the headers of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sapo_client.learner.loading.causality import RAISED_BY_MODELS, not_computing, require_causal
from sapo_client.learner.loading.reading import read_model, refusal
from sapo_client.learner.loading.weights import UNREADABLE, UnusedWeights
from sapo_client.learner.sizing.skeleton import make_sample

_HINT: Final = "give a folder with a transformers model"

_SAMPLE_TOKENS: Final = 64
_SAMPLE_PARAMETERS: Final = 2**28
"""A layer of a model of seven billion parameters, in 1 GiB; encoders are smaller."""


def check_folder(name: str, quantisation: Any) -> UnusedWeights | None:
    """Read a model as the learner does, but for its tensors' values.

    What only values show is not found: damage inside a tensor. Whether the model is causal is tested with a
    small sample with random values. Of quantised weights the sizes are not compared.

    Args:
        name: folder or hub name; a hub's model is not downloaded, and its architecture alone is looked at.
        quantisation: ``quantization_config`` of its configuration; None for floats.

    Returns:
        Weights that the learner would not use; None if there are none, or if that was not looked at.

    Raises:
        SapoError: the learner would refuse it.
    """
    unused = None
    if quantisation and Path(name).is_dir():
        _check_quantised(name, quantisation)
    elif Path(name).is_dir():
        unused = read_model(name, hint=_HINT, device_map="meta", attn_implementation="eager").unused
    require_causal_sample(name)
    return unused


def require_causal_sample(name: str) -> None:
    """Raise if a sample of a model is not causal, or computes nothing, as the learner would of the whole.

    Some architectures cannot be cut to one layer, and some layers are too large: the samples are tried one
    after the other until one computes something. If none does, the learner alone finds out.

    Args:
        name: folder or hub name.

    Raises:
        SapoError: the learner would refuse it.
    """
    for narrow in (False, True):
        errors = []
        for layers in (1, 2, None):
            sample = make_sample(
                name, layers=layers, vocabulary=_SAMPLE_TOKENS, parameters=_SAMPLE_PARAMETERS, narrow=narrow
            )
            try:
                if sample is not None:
                    require_causal(name, sample)
                    return
            except RAISED_BY_MODELS as error:
                errors.append(error)
        # one sample may compute nothing because it was cut, a narrow one because its widths do not fit
        if len(errors) > 1 and not narrow:
            raise not_computing(name, errors[0])


def _check_quantised(name: str, quantisation: Any) -> None:
    """Check the files that the weights' method needs, and their headers; more needs the values."""
    from safetensors import SafetensorError, safe_open
    from transformers.quantizers import AutoHfQuantizer

    try:
        AutoHfQuantizer.from_config(quantisation, pre_quantized=True).validate_environment(device_map=None)
        for file in sorted(Path(name).glob("*.safetensors")):
            with safe_open(file, framework="pt"):
                pass
    except (*UNREADABLE, SafetensorError) as error:
        raise refusal(name, error, hint=_HINT) from error
