"""Layers shaped like Llama's, as few and as wide products as they allow; sampling and training both use them.

Query, key and value are one product, gate and up another. A norm's weight is part of the product that reads
what was normed, attention's scale part of the queries. Numbers that rotate together lie side by side, so that
a rotation is one complex product.

Shapes: H heads, K key-value heads, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import torch
from torch import Tensor

Affine = tuple[Tensor, Tensor | None]
"""A linear layer's weight, (M, N), and its bias, (M,)."""

LLAMA_SHAPED: Final = frozenset({"llama", "qwen2"})
"""Model types whose layers these are; the exactness tests cover each."""


Product = TypeVar("Product")


@dataclass(frozen=True, slots=True)
class FusedLayer(Generic[Product]):
    """One layer's products: what multiplies, or the weights that it multiplies by.

    Attributes:
        qkv: to (H + 2 K) D.
        out: from H D.
        gate_up: to 2 x inner.
        down: from inner.
    """

    qkv: Product
    out: Product
    gate_up: Product
    down: Product


def is_llama_shaped(model: Any) -> bool:
    """Whether its layers are what ``fused`` makes of them."""
    config = model.config
    return (
        config.model_type in LLAMA_SHAPED
        and type(model).__name__ in ("LlamaForCausalLM", "Qwen2ForCausalLM")
        and config.hidden_act == "silu"
        and not getattr(config, "use_sliding_window", False)
        and config.rope_parameters.get("rope_type", "default") in ("default", "linear", "llama3")
        and not getattr(config, "quantization_config", None)
    )


def head_width(config: Any) -> int:
    """D."""
    width: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return width


def fused(layer: Any, width: int) -> FusedLayer[Affine]:
    """Weights of a layer of transformers', its heads so wide; differentiable with regard to its own."""
    attention, mlp = layer.self_attn, layer.mlp
    qkv, gate_up = (attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate_proj, mlp.up_proj)
    return FusedLayer(
        qkv=(
            _paired([part.weight for part in qkv], width) * layer.input_layernorm.weight,
            None if qkv[0].bias is None else _paired([part.bias for part in qkv], width),
        ),
        out=(attention.o_proj.weight, attention.o_proj.bias),
        gate_up=(
            torch.cat([part.weight for part in gate_up]) * layer.post_attention_layernorm.weight,
            None if gate_up[0].bias is None else torch.cat([part.bias for part in gate_up]),
        ),
        down=(mlp.down_proj.weight, mlp.down_proj.bias),
    )


def rotations(model: Any, positions: Tensor) -> Tensor:
    """Rotary embeddings of positions, (places,), as rotations of pairs, (places, D / 2), complex."""
    cos, sin = model.model.rotary_emb(model.lm_head.weight, positions[None])
    half = cos.shape[-1] // 2
    return torch.complex(cos[0, :, :half], sin[0, :, :half])


def pairs(heads: Tensor) -> Tensor:
    """Numbers that rotate together as complex ones, without a copy: (..., D) to (..., D / 2)."""
    return torch.view_as_complex(heads.view(*heads.shape[:-1], -1, 2))


def barred(where: Tensor) -> Tensor:
    """Minus infinity there, 0 elsewhere, to be added to attention scores."""
    return torch.zeros(where.shape, device=where.device).masked_fill_(where, -torch.inf)


def _paired(parts: Sequence[Tensor], width: int) -> Tensor:
    """Rows of query, key and value as one; of the first two, a head's i and i + D / 2 become neighbours."""
    query, key = (
        part.view(-1, 2, width // 2, *part.shape[1:]).transpose(1, 2).reshape(part.shape)
        for part in parts[:2]
    )
    return torch.cat([query * width**-0.5, key, parts[2]])
