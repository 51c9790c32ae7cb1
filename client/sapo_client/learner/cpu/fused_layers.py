"""Fused weights of Llama-style layers, shared by sampling and training: few and wide matrix products.

Query, key and value are one projection, gate and up another. The weight of an RMSNorm is folded into the
projection that follows it, attention's scale into the queries. The two numbers that rotary position
embeddings (RoPE) rotate together are neighbours, so that a rotation is one complex product.

Shapes: H heads, K key-value heads, D head dimension, M outputs and N inputs of a projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import torch
from torch import Tensor

Affine = tuple[Tensor, Tensor | None]
"""A linear layer's weight, (M, N), and its bias, (M,)."""

LLAMA_STYLE: Final = frozenset({"llama", "qwen2"})
"""Model types with such layers; the exactness tests cover each."""


Projection = TypeVar("Projection")


@dataclass(frozen=True, slots=True)
class FusedLayer(Generic[Projection]):
    """The projections of one layer, either as weights or as functions of their inputs.

    Attributes:
        qkv: to (H + 2 K) D.
        out: from H D.
        gate_up: to 2 x intermediate size.
        down: from intermediate size.
    """

    qkv: Projection
    out: Projection
    gate_up: Projection
    down: Projection


def is_llama_style(model: Any) -> bool:
    """Whether ``fuse_layer`` and ``rotary_embedding`` describe the model exactly."""
    config = model.config
    return (
        config.model_type in LLAMA_STYLE
        and type(model).__name__ in ("LlamaForCausalLM", "Qwen2ForCausalLM")
        and config.hidden_act == "silu"
        and not getattr(config, "use_sliding_window", False)
        and config.rope_parameters.get("rope_type", "default") in ("default", "linear", "llama3")
        and not getattr(config, "quantization_config", None)
    )


def head_dim(config: Any) -> int:
    """Return D."""
    dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return dim


def fuse_layer(layer: Any, dim: int, products: torch.dtype) -> FusedLayer[Affine]:
    """Return the fused weights of one of transformers' decoder layers; differentiable.

    Args:
        layer: of transformers.
        dim: D.
        products: type of the weights, in which their products are computed.
    """
    attention, mlp = layer.self_attn, layer.mlp
    qkv, gate_up = (attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate_proj, mlp.up_proj)
    fused = (
        (
            _fuse_qkv([part.weight for part in qkv], dim) * layer.input_layernorm.weight,
            None if qkv[0].bias is None else _fuse_qkv([part.bias for part in qkv], dim),
        ),
        (attention.o_proj.weight, attention.o_proj.bias),
        (
            torch.cat([part.weight for part in gate_up]) * layer.post_attention_layernorm.weight,
            None if gate_up[0].bias is None else torch.cat([part.bias for part in gate_up]),
        ),
        (mlp.down_proj.weight, mlp.down_proj.bias),
    )
    return FusedLayer(
        *((weight.to(products), None if bias is None else bias.to(products)) for weight, bias in fused)
    )


def rotary_embedding(model: Any, positions: Tensor) -> Tensor:
    """Return the rotary embedding of positions, (T,), as complex factors of pairs, (T, D / 2)."""
    cos, sin = model.model.rotary_emb(model.lm_head.weight, positions[None])
    half = cos.shape[-1] // 2
    return torch.complex(cos[0, :, :half], sin[0, :, :half])


def as_complex(heads: Tensor) -> Tensor:
    """Return pairs of neighbours as complex numbers, without a copy: (..., D) to (..., D / 2)."""
    return torch.view_as_complex(heads.view(*heads.shape[:-1], -1, 2))


def additive_mask(masked: Tensor) -> Tensor:
    """Return what is added to attention scores: minus infinity where ``masked`` is true, 0 elsewhere."""
    return torch.zeros(masked.shape, device=masked.device).masked_fill_(masked, -torch.inf)


def _fuse_qkv(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate query, key and value rows.

    Rows i and i + D / 2 of a query or key head, which transformers rotates together, become neighbours.
    """
    query, key = (
        part.view(-1, 2, dim // 2, *part.shape[1:]).transpose(1, 2).reshape(part.shape) for part in parts[:2]
    )
    return torch.cat([query * dim**-0.5, key, parts[2]])
