"""How a model's logits are computed in training, by its configuration alone.

If they are its head's product with the hidden states and nothing more, blocks of them are enough
(``losses/chunked_head.py``). If they are capped or scaled after it, all exist at once.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor, nn

from sapo_client.learner.losses.plain_head import is_plain_head
from sapo_client.learner.sizing.skeleton import make_sample, without_values

_TOKENS: Final = 61
"""Of the sample's vocabulary, so that its logits are told from tensors of a usual width."""

_POSITIONS: Final = 3

_PARAMETERS: Final = 2**28


@dataclass(frozen=True, slots=True)
class HeadKind:
    """How a model's logits are computed.

    Attributes:
        in_blocks: whether all logits never exist at once.
        saved: tensors as large as the logits that autograd keeps of what is done after the head.
        keeps_few: whether only the logits of completions' tokens are computed, and not those of prompts.
    """

    in_blocks: bool = True
    saved: int = 0
    keeps_few: bool = True


@lru_cache(maxsize=16)
def head_kind(model: str) -> HeadKind:
    """Return how the logits of a model of a large vocabulary are computed, found with a model of no layer.

    Args:
        model: as for ``load_policy``.

    Raises:
        SapoError: its configuration cannot be read.
        NoForwardPass: its architecture does not compute anything in this way.
    """
    sample = make_sample(model, layers=0, vocabulary=_TOKENS, parameters=_PARAMETERS)
    head = None if sample is None else sample.get_output_embeddings()
    if sample is None or not isinstance(head, nn.Linear):
        return HeadKind()
    with without_values():
        if is_plain_head(sample, head):
            return HeadKind()
        keeps_few = "logits_to_keep" in inspect.signature(sample.forward).parameters
        return HeadKind(in_blocks=False, saved=_saved(sample), keeps_few=keeps_few)


def _saved(sample: Any) -> int:
    """Return how many tensors as large as the logits autograd keeps of a forward pass."""
    found: dict[int, Tensor] = {}

    def record(tensor: Tensor) -> Tensor:
        if tensor.numel() == _POSITIONS * _TOKENS and tensor.shape[-1] == _TOKENS:
            found[tensor.data_ptr()] = tensor
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        sample(input_ids=torch.zeros((1, _POSITIONS), dtype=torch.long), use_cache=False)
    return len(found)
