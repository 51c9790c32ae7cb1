"""Log-probabilities of completions for training Llama-style models on a CPU, with their own derivatives.

Reasons for the speed: a prompt is computed once for all of its completions, and in the last layer nothing
after attention but of its last token; sequences of any lengths are
packed one after another without padding, and only attention arranges them in rectangles; everything between
two matrix products is one autograd function with its own derivative, instead of a dozen small ones that all
keep their results; query, key and value are one projection, gate and up another; products are oneDNN's
(``cpu/linear.py``).

Shapes: R completions of G different prompts; P longest prompt; T longest completion without its last token,
which predicts nothing; N packed tokens, prompts first, padding last; H heads, K key-value heads, Q = H / K
queries of a key-value head, D head dimension, W = H + 2 K heads of the fused projection, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import embedding

from sapo_client.learner.cpu.fused_layers import (
    Affine,
    FusedLayer,
    fuse_layer,
    head_dim,
    is_llama_style,
    rotary_embedding,
)
from sapo_client.learner.cpu.kept_states import KeptRow, KeptStates, KnownLayer, packed_rows
from sapo_client.learner.cpu.linear import fast_linear, known_linear
from sapo_client.learner.cpu.mlp import mlp
from sapo_client.learner.cpu.packing import PackedLayout, Row, pack
from sapo_client.learner.losses import chunked_head


def is_fast(model: Any) -> bool:
    """Whether ``fast_logprobs`` can compute this model in its present state."""
    return (
        is_llama_style(model)
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and not getattr(model.model.layers[0], "gradient_checkpointing", False)
        and _product_type() in (torch.float32, torch.bfloat16)
    )


def _product_type() -> torch.dtype:
    """Return the type of the layers' products: autocast's, where it is enabled."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


def fast_logprobs(
    model: Any,
    rows: Sequence[Row],
    pad_id: int,
    temperature: float,
    *,
    states: Sequence[KeptRow | None] | None = None,
) -> Tensor:
    """Return the log-probability of every completion token under the tempered policy; differentiable.

    Under autocast the layers' weights are multiplied in bfloat16, with float32 sums; everything else, the
    head and attention too, is computed in float32.

    Args:
        model: one that ``is_fast`` accepts.
        rows: prompt and completion of each row; equal prompts are computed once.
        pad_id: id of the tokens that pad products; it affects no result.
        temperature: the logits are divided by it.
        states: what sampling computed of each row; used if that is all of them, by the present weights.

    Returns:
        (R, T + 1), float32; zero beyond a completion's end.
    """
    products = _product_type()
    with torch.autocast("cpu", enabled=False):  # it would cast attention's products, too
        return _logprobs(model, rows, pad_id, temperature, states=states, products=products)


def _logprobs(
    model: Any,
    rows: Sequence[Row],
    pad_id: int,
    temperature: float,
    *,
    states: Sequence[KeptRow | None] | None,
    products: torch.dtype,
) -> Tensor:
    """Return what ``fast_logprobs`` says, by products of a type."""
    config, base, dim = model.config, model.model, head_dim(model.config)
    layout = pack(rows, pad_id, config.num_attention_heads, config.num_key_value_heads)
    rope = rotary_embedding(model, layout.positions)[:, None]
    unique = base.embed_tokens(layout.unique_ids)
    hidden = embedding(layout.inverse, unique)  # `unique[inverse]` with a faster derivative
    known = _known(rows, states, len(hidden))
    for number, layer in enumerate(base.layers):
        weights = fuse_layer(layer, dim, products)
        # the first layer's projections depend on the token id alone: computed once for each distinct id
        qkv = None if number else _distinct_qkv(layer, weights, unique, layout)
        # a prompt's tokens, but its last one, only have keys and values in the last layer
        kept = layout.logit_tokens if layer is base.layers[-1] else None
        known_layer = KnownLayer() if known is None else known[0].gather(number, known[1], kept)
        hidden = _layer(layer, weights, hidden, qkv=qkv, attend=(rope, layout), kept=kept, known=known_layer)
    normed = _rms_norm(hidden, base.norm) * base.norm.weight
    if len(model.lm_head.weight) >= chunked_head.MIN_VOCABULARY:
        values = chunked_head.target_logprobs(
            embedding(layout.logit_index, normed),
            model.lm_head.weight,
            layout.targets,
            temperature=temperature,
        )
        return torch.zeros(layout.mask.shape).masked_scatter(layout.mask, values)
    logits = fast_linear(normed, model.lm_head.weight)
    if temperature != 1.0:
        logits = logits / temperature
    result: Tensor = _TargetLogprobs.apply(logits, layout)  # type: ignore[no-untyped-call]
    return result


def _known(
    rows: Sequence[Row], states: Sequence[KeptRow | None] | None, padded: int
) -> tuple[KeptStates, Tensor] | None:
    """Return the tables of the rows' sampling and every packed token's row there, if all were kept."""
    if not states:
        return None
    lengths = [len(completion) - 1 for _, completion in rows]
    return packed_rows(states, [prompt for prompt, _ in rows], lengths, padded)


def _distinct_qkv(layer: Any, weights: FusedLayer[Affine], unique: Tensor, layout: PackedLayout) -> Tensor:
    """Return a first layer's queries, keys and values, computed once for each distinct token."""
    return embedding(layout.inverse, fast_linear(_rms_norm(unique, layer.input_layernorm), *weights.qkv))


def _layer(
    layer: Any,
    weights: FusedLayer[Affine],
    hidden: Tensor,
    *,
    qkv: Tensor | None,
    attend: tuple[Tensor, PackedLayout],
    kept: Tensor | None,
    known: KnownLayer,
) -> Tensor:
    """Return a layer's hidden states, (N, hidden), or those of the tokens to keep.

    Args:
        layer: of transformers.
        weights: its fused ones.
        hidden: the layer's input, (N, hidden).
        qkv: queries, keys and values, (N, W D), if they are computed already.
        attend: rotary embedding and layout.
        kept: indices of the tokens that are computed after attention; None computes all.
        known: results of sampling, which take the place of products.
    """
    if qkv is None:
        qkv = known_linear(_rms_norm(hidden, layer.input_layernorm), weights.qkv, known=known.qkv)
    attended = _Attention.apply(qkv, *attend, known.attended)  # type: ignore[no-untyped-call]
    if kept is not None:
        attended, hidden = embedding(kept, attended), embedding(kept, hidden)
    middle = known_linear(attended, weights.out, known=known.middle, residual=hidden)
    epsilon = layer.post_attention_layernorm.variance_epsilon
    return mlp(middle, epsilon, weights.gate_up, weights.down, known.mlp)


def _rms_norm(x: Tensor, norm: Any) -> Tensor:
    """Return RMSNorm without its weight, which the next projection contains."""
    result: Tensor = _RmsNorm.apply(x, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return result


class _RmsNorm(torch.autograd.Function):
    """Rows (N, hidden) divided by their root mean square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        size = vector_norm(x, dim=-1, keepdim=True)
        scale = size.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        normed: Tensor = x * scale
        ctx.save_for_backward(normed, scale)
        return normed

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        normed, scale = ctx.saved_tensors
        mean = (grad_output * normed).mean(-1, keepdim=True)
        return torch.addcmul(grad_output, normed, mean, value=-1).mul_(scale), None


class _Attention(torch.autograd.Function):
    """Rotary embedding and attention, of fused queries, keys and values: (N, W D) to (N, H D).

    A prompt's tokens attend to earlier tokens of the prompt, a completion's to its prompt as well.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, rope: Tensor, layout: PackedLayout, known: Tensor | None) -> Tensor:
        table = qkv.view(len(qkv), -1, 2 * rope.shape[-1])
        rotated = torch.empty_like(table)  # its values are never read: they come from `table`
        torch.mul(layout.rotating(table), rope, out=layout.rotating(rotated))
        table, rotated = table.flatten(0, 1), rotated.flatten(0, 1)
        outputs, block_outputs = _empty_rows([block.outputs for block in layout.blocks], table)
        saved = []
        for block, output in zip(layout.blocks, block_outputs, strict=True):
            queries, keys = embedding(block.queries, rotated), embedding(block.keys, rotated)
            values = embedding(block.values, table)
            products = queries @ keys.mT
            scores = products.view(len(block.mask), layout.heads, *block.mask.shape[-2:]).add_(block.mask)
            weights = scores.softmax(-1).view_as(products)
            if known is None:
                torch.bmm(weights, values, out=output)
            saved += [queries, keys, values, weights]
        ctx.save_for_backward(rope, *saved)
        ctx.layout = layout
        if known is not None:
            return known.view_as(known)
        return embedding(layout.output_index, outputs).view(len(qkv), -1)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        rope, *saved = ctx.saved_tensors
        layout, table = ctx.layout, grad_output.reshape(-1, 2 * rope.shape[-1])
        sources = [index for block in layout.blocks for index in block.sources]
        gradients, source_gradients = _empty_rows(sources, table)
        for number, block in enumerate(layout.blocks):
            queries, keys, values, weights = saved[4 * number : 4 * number + 4]
            grad_queries, grad_keys, grad_values = source_gradients[3 * number : 3 * number + 3]
            grad_attended = embedding(block.outputs, table)
            grad_weights = grad_attended @ values.mT
            grad_scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            torch.bmm(grad_scores, keys, out=grad_queries)
            torch.bmm(grad_scores.mT, queries, out=grad_keys)
            torch.bmm(weights.mT, grad_attended, out=grad_values)
        # keys are 1 (completions) and 4 (prompts), values 2 and 5
        _add_prompt_gradients(source_gradients[1], source_gradients[4], layout.prompt_index)
        _add_prompt_gradients(source_gradients[2], source_gradients[5], layout.prompt_index)
        result = embedding(layout.qkv_index, gradients).view(len(grad_output), -1, gradients.shape[1])
        result[layout.num_tokens :] = 0
        layout.rotating(result).mul_(rope.conj_physical())
        return result.flatten(1), None, None, None


def _empty_rows(parts: Sequence[Tensor], like: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return an empty row (D,) for every index of the parts: as one table, and as a view for each part."""
    table = like.new_empty(sum(part.numel() for part in parts), like.shape[1])
    views = torch.split(table, [part.numel() for part in parts])
    return table, [view.view(*part.shape, like.shape[1]) for view, part in zip(views, parts, strict=True)]


def _add_prompt_gradients(completions: Tensor, prompts: Tensor, prompt_index: Tensor) -> None:
    """Add to prompts' gradients, (G K, P, D), those that their completions have of them, (R K, P + T, D)."""
    kv_heads = len(completions) // len(prompt_index)
    addend, total = (each.view(-1, kv_heads, *each.shape[1:]) for each in (completions, prompts))
    total.index_add_(0, prompt_index, addend[:, :, : total.shape[2]])


class _TargetLogprobs(torch.autograd.Function):
    """Log-softmax at the completion tokens alone: logits (len(logit_tokens), V) to (R, T + 1)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, layout: PackedLayout) -> Tensor:
        table = logits.log_softmax(-1)
        cells = layout.logit_index * table.shape[1] + layout.targets
        ctx.save_for_backward(table, cells)
        ctx.layout = layout
        values = table.view(-1)[cells]
        return values.new_zeros(layout.mask.shape).masked_scatter_(layout.mask, values)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        table, cells = ctx.saved_tensors
        grad_values = grad_output[ctx.layout.mask]
        totals = table.new_zeros(len(table)).index_add_(0, ctx.layout.logit_index, grad_values)
        result = table.exp_().mul_(-totals[:, None])  # in place: the table is not needed again
        result.view(-1).index_add_(0, cells, grad_values)
        return result, None
