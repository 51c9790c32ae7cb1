"""A model's weights under the names of its checkpoint, as an engine reads them.

transformers joins and renames weights while it loads a checkpoint (the experts of a layer become one tensor).
vLLM reads the checkpoint's own names, so weights that are sent to it get them back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

_LAYER: Final = re.compile(r".*?\.\d+(?=\.)")
"""Of a weight's name: the part up to the first index, which is that of the layer."""

_WITHOUT_HEAD: Final = frozenset({"gemma2", "gemma3n_text"})
"""Model types whose embedding is the head in vLLM, which refuses a head of its own."""


def checkpoint_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight with its name in the checkpoint.

    A tied head is among them although no checkpoint has it: an engine may hold it as a weight of its own,
    which would stay as it is.

    Layers come one after the other, so that converted weights, which are copies, need memory for one layer.

    Args:
        model: of transformers, without adapters.
    """
    layers: dict[str, dict[str, Tensor]] = {}
    for name, weight in _weights(model):
        layer = _LAYER.match(name)
        layers.setdefault(layer[0] if layer else "", {})[name] = weight
    for weights in layers.values():
        yield from revert_weight_conversion(model, weights).items()


def _weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight with its name in transformers, a tied head last."""
    names = set()
    for name, parameter in model.named_parameters():
        names.add(name)
        yield name, parameter.detach()
    if model.config.get_text_config().model_type in _WITHOUT_HEAD:
        return
    head = model.get_output_embeddings()
    for module_name, module in model.named_modules():
        if module is head and f"{module_name}.weight" not in names:
            yield f"{module_name}.weight", module.weight.detach()
