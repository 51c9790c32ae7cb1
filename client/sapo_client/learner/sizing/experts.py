"""Planned memory of a mixture's experts, as if all tokens went through the first expert.

transformers multiplies all experts' tokens by one grouped product, which PyTorch computes for tensors without
memory in bfloat16 alone. But what autograd keeps of it does not depend on who gets a token: the token's
states once for each expert that it goes to, and what lies between that expert's products. So all tokens go
through the first expert.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor

FIRST_EXPERT: Final = "sapo_first_expert"
"""Name under which transformers finds ``through_first_expert``."""


def register_first_expert() -> str:
    """Let transformers know the implementation, and return its name."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(FIRST_EXPERT, through_first_expert)
    return FIRST_EXPERT


def through_first_expert(experts: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Return states of the shape that a mixture returns, and keep for the backward pass what it keeps.

    Args:
        experts: transformers' module with the weights of all experts.
        hidden: states of T tokens, (T, hidden).
        chosen: the experts of each token, (T, K).
        weights: of these, (T, K).
    """
    count = chosen.shape[-1]
    # grouped products have the weights' type, under autocast too, which there is none of on `meta`
    plain = nullcontext() if hidden.is_meta else torch.autocast(hidden.device.type, enabled=False)
    with plain:
        states = hidden.repeat_interleave(count, 0)
        states = _product(experts, "gate_up_proj" if experts.has_gate else "up_proj", states)
        states = experts._apply_gate(states) if experts.has_gate else experts.act_fn(states)
        states = _product(experts, "down_proj", states)
    if experts.has_post_expert_norm:
        states = experts.post_expert_norm(states)
    weighted = states * weights.reshape(-1, 1)
    return weighted.view(len(hidden), count, -1).sum(1).to(hidden.dtype)


def _product(experts: Any, name: str, states: Tensor) -> Tensor:
    """Return the first expert's product: (T K, inputs) to (T K, outputs)."""
    weight: Tensor = getattr(experts, name)[0]
    found = states.to(weight.dtype) @ (weight if experts.is_transposed else weight.t())
    return found + getattr(experts, f"{name}_bias")[0] if experts.has_bias else found
