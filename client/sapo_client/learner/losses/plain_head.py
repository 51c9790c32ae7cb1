"""Test whether a model's logits are exactly its head applied to the decoder's hidden states.

Some architectures cap or scale logits after the head, or insert a layer before it, and their settings for
that have no common names. So it is tested on the model itself, once, with a few tokens.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sapo_client.learner.losses.chunked_head import MIN_VOCABULARY

_PROBED: Final = 8
"""Tokens of the probe."""

_LARGE: Final = 1000.0
"""Largest logit of the probe, so that a cap (such as 30) has a visible effect on an untrained model."""

_TOLERANCE: Final = 1e-2
"""Relative to the largest value; 16-bit types round by up to a hundredth of that."""

_KNOWN: Final[WeakKeyDictionary[nn.Module, bool]] = WeakKeyDictionary()


def has_all_logits(base: Any) -> bool:
    """Whether all logits of a large vocabulary exist at once in training, and not blocks of them.

    Args:
        base: model of transformers, not sharded, without adapters.
    """
    head = base.get_output_embeddings()
    is_large = isinstance(head, nn.Linear) and len(head.weight) >= MIN_VOCABULARY
    return is_large and not is_plain_head(base, head)


def is_plain_head(base: Any, head: nn.Linear) -> bool:
    """Whether ``head(base.base_model(...).last_hidden_state)`` are the model's logits.

    Args:
        base: model of transformers, not sharded.
        head: its output embeddings.
    """
    if base not in _KNOWN:
        _KNOWN[base] = _probe(base, head)
    return _KNOWN[base]


@torch.no_grad()
def _probe(base: Any, head: nn.Linear) -> bool:
    """Compare the head's input with the hidden states, and its output with the logits."""
    if base.base_model is base:  # the model does not name its decoder
        return False
    seen: list[tuple[Tensor, Tensor]] = []

    def enlarge(_: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
        large: Tensor = logits * (_LARGE / logits.abs().max())
        seen.append((inputs[0], large))
        return large

    ids = (torch.arange(_PROBED, device=head.weight.device) % len(head.weight))[None]
    with torch.autocast(ids.device.type, enabled=False):
        hook = head.register_forward_hook(enlarge)
        try:
            logits = base(input_ids=ids, use_cache=False).logits
        finally:
            hook.remove()
        hidden = base.base_model(input_ids=ids, use_cache=False)[0]
    return len(seen) == 1 and _are_near(hidden, seen[0][0]) and _are_near(logits, seen[0][1])


def _are_near(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return bool((one.float() - other.float()).abs().max() <= _TOLERANCE * other.float().abs().max())
