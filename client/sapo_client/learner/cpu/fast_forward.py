"""Log-probabilities of completions for training Llama-style models on a CPU, with their own derivatives.

Reasons for the speed: a prompt is computed once for all of its completions; sequences of any lengths are
packed one after another without padding, and only attention arranges them in rectangles; everything between
two matrix products is one autograd function with its own derivative, instead of a dozen small ones that all
keep their results; query, key and value are one projection, gate and up another; products are oneDNN's
(``cpu/linear.py``).

Shapes: R completions of G different prompts; P longest prompt; T longest completion without its last token,
which predicts nothing; N packed tokens, prompts first, padding last; H heads, K key-value heads, Q = H / K
queries of a key-value head, D head dimension, W = H + 2 K heads of the fused projection, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import embedding, pad, silu

from sapo_client.learner.cpu.fused_layers import (
    additive_mask,
    as_complex,
    fuse_layer,
    head_dim,
    is_llama_style,
    rotary_embedding,
)
from sapo_client.learner.cpu.linear import fast_linear

Row = tuple[Sequence[int], Sequence[int]]
"""A prompt's token ids and a completion's token ids."""

_ROW_MULTIPLE: Final = 64
"""Products have a multiple of so many rows: oneDNN compiles a new kernel for each new number of rows."""


def is_fast(model: Any) -> bool:
    """Whether ``fast_logprobs`` can compute this model in its present state."""
    return (
        is_llama_style(model)
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and not getattr(model.model.layers[0], "gradient_checkpointing", False)
        and not torch.is_autocast_enabled("cpu")
    )


def fast_logprobs(model: Any, rows: Sequence[Row], pad_id: int, temperature: float) -> Tensor:
    """Return the log-probability of every completion token under the tempered policy; differentiable.

    Args:
        model: one that ``is_fast`` accepts.
        rows: prompt and completion of each row; equal prompts are computed once.
        pad_id: id of the tokens that pad products; it affects no result.
        temperature: the logits are divided by it.

    Returns:
        (R, T + 1), float32; zero beyond a completion's end.
    """
    config, base, dim = model.config, model.model, head_dim(model.config)
    layout = _pack(rows, pad_id, config.num_attention_heads, config.num_key_value_heads)
    rope = rotary_embedding(model, layout.positions)[:, None]
    unique = base.embed_tokens(layout.unique_ids)
    hidden = embedding(layout.inverse, unique)  # `unique[inverse]` with a faster derivative
    for number, layer in enumerate(base.layers):
        weights = fuse_layer(layer, dim)
        # the first layer's projections depend on the token id alone: computed once for each distinct id
        normed = _rms_norm(hidden if number else unique, layer.input_layernorm)
        qkv = fast_linear(normed, *weights.qkv)
        qkv = qkv if number else embedding(layout.inverse, qkv)
        attended = _Attention.apply(qkv, rope, layout)  # type: ignore[no-untyped-call]
        hidden = fast_linear(attended, *weights.out).add_(hidden)
        gate_up = fast_linear(_rms_norm(hidden, layer.post_attention_layernorm), *weights.gate_up)
        gated = _SwiGlu.apply(gate_up)  # type: ignore[no-untyped-call]
        hidden = fast_linear(gated, *weights.down).add_(hidden)
    normed = _rms_norm(embedding(layout.logit_tokens, hidden), base.norm) * base.norm.weight
    logits = fast_linear(normed, model.lm_head.weight)
    if temperature != 1.0:
        logits = logits / temperature
    result: Tensor = _TargetLogprobs.apply(logits, layout)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True, slots=True)
class _AttentionBlock:
    """Rectangles of prompts or of completions for attention: indices of rows of a table of heads.

    The table has W rows for a packed token, or H in the case of ``outputs``. Shorter sequences are padded
    with the rows of the padding token after the last sequence.

    Attributes:
        queries: queries of each key-value head, (sequences K, Q length).
        keys: keys that they may attend to, (sequences K, attended length).
        values: the values of these keys, (sequences K, attended length).
        outputs: where attention's results belong, shaped as ``queries``.
        mask: added to attention scores, 0 or minus infinity; (sequences, 1, length, attended length).
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor
    mask: Tensor

    @property
    def sources(self) -> tuple[Tensor, Tensor, Tensor]:
        """(queries, keys, values)."""
        return self.queries, self.keys, self.values


@dataclass(frozen=True, slots=True)
class _Layout:
    """Indices of a packed micro-batch.

    Attributes:
        unique_ids: the distinct token ids, padded.
        inverse: index into ``unique_ids`` of each packed token, (N,).
        positions: each token's position in its sequence, (N,).
        num_tokens: packed tokens without padding.
        heads: H.
        kv_heads: K.
        blocks: of completions, of prompts.
        prompt_index: index of each completion's prompt, (R,).
        output_index: where each (token, head) row is in the concatenated outputs of both blocks, (N H,).
        qkv_index: where each (token, head) row is in the concatenated gradients of both blocks' ``sources``,
            (N W,).
        logit_tokens: packed tokens whose logits are computed: each prompt's last one, then all completion
            tokens but the last ones; padded.
        mask: which of (R, T + 1) are tokens.
        logit_index: index into ``logit_tokens`` of the token that predicts each completion token, (tokens,).
        targets: the completion tokens' ids, (tokens,).
    """

    unique_ids: Tensor
    inverse: Tensor
    positions: Tensor
    num_tokens: int
    heads: int
    kv_heads: int
    blocks: tuple[_AttentionBlock, _AttentionBlock]
    prompt_index: Tensor
    output_index: Tensor
    qkv_index: Tensor
    logit_tokens: Tensor
    mask: Tensor
    logit_index: Tensor
    targets: Tensor

    def rotating(self, table: Tensor) -> Tensor:
        """View queries and keys of a table, (N, W, D), as complex pairs, (N, H + K, D / 2)."""
        return as_complex(table[:, : self.heads + self.kv_heads])


def _pack(rows: Sequence[Row], pad_id: int, heads: int, kv_heads: int) -> _Layout:
    """Lay out prompts and completions one after another and index what attention and the head need."""
    numbers: dict[tuple[int, ...], int] = {}
    prompt_index = torch.tensor([numbers.setdefault(tuple(prompt), len(numbers)) for prompt, _ in rows])
    prompt_lengths = torch.tensor([len(prompt) for prompt in numbers])
    completion_lengths = torch.tensor([len(completion) for _, completion in rows])
    tokens = _concatenated([*numbers, *(completion[:-1] for _, completion in rows)])
    first, num_tokens = int(prompt_lengths.sum()), len(tokens)
    # rectangles refer to a padding token, so there is at least one
    tokens = _padded(torch.cat([tokens, tokens.new_tensor([pad_id])]), pad_id)
    prompts = _rectangle(prompt_lengths, start=0, filler=num_tokens)
    completions = _rectangle(completion_lengths - 1, start=first, filler=num_tokens)
    (prompt_count, prompt_width), (row_count, width) = prompts.shape, completions.shape
    unique_ids, inverse = torch.unique(tokens, return_inverse=True)
    positions = torch.zeros_like(tokens)
    positions[prompts] = torch.arange(prompt_width)
    positions[completions] = prompt_lengths[prompt_index, None] + torch.arange(width)
    # a completion token attends to its whole prompt and to its completion up to itself
    prompt_padding = (prompts == num_tokens)[prompt_index, None].expand(-1, width, -1)
    masked = torch.cat([prompt_padding, _causal_mask(width).expand(row_count, -1, -1)], 2)
    blocks = (
        _attention_block(
            completions,
            attended=torch.cat([prompts[prompt_index], completions], 1),
            mask=additive_mask(masked),
            heads=heads,
            kv_heads=kv_heads,
        ),
        _attention_block(
            prompts,
            attended=prompts,
            mask=additive_mask(_causal_mask(prompt_width)).expand(prompt_count, -1, -1),
            heads=heads,
            kv_heads=kv_heads,
        ),
    )
    mask = torch.arange(width + 1) < completion_lengths[:, None]
    logit_tokens = torch.cat([prompt_lengths.cumsum(0) - 1, torch.arange(first, num_tokens)])
    return _Layout(
        unique_ids=_padded(unique_ids, pad_id),
        inverse=inverse,
        positions=positions,
        num_tokens=num_tokens,
        heads=heads,
        kv_heads=kv_heads,
        blocks=blocks,
        prompt_index=prompt_index,
        output_index=_inverse_index((block.outputs for block in blocks), len(tokens) * heads),
        qkv_index=_inverse_index(
            (index for block in blocks for index in block.sources), len(tokens) * (heads + 2 * kv_heads)
        ),
        logit_tokens=_padded(logit_tokens, 0),
        mask=mask,
        logit_index=torch.cat([prompt_index[:, None], completions - first + len(prompt_lengths)], 1)[mask],
        targets=_concatenated([completion for _, completion in rows]),
    )


def _concatenated(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return all sequences one after another as one tensor."""
    return torch.tensor(list(chain.from_iterable(sequences)))


def _padded(values: Tensor, filler: int) -> Tensor:
    """Pad to a multiple of ``_ROW_MULTIPLE``; fewer values than that stay as they are."""
    if len(values) < _ROW_MULTIPLE:
        return values
    return pad(values, (0, -len(values) % _ROW_MULTIPLE), value=filler)


def _rectangle(lengths: Tensor, *, start: int, filler: int) -> Tensor:
    """Return packed indices of consecutive sequences, one per row, (sequences, longest), padded right.

    Args:
        lengths: of the sequences, (sequences,).
        start: packed index of the first one's first token.
        filler: packed index that pads rows.
    """
    steps = torch.arange(int(lengths.max()))
    starts = start + lengths.cumsum(0) - lengths
    return torch.where(steps < lengths[:, None], starts[:, None] + steps, filler)


def _causal_mask(count: int) -> Tensor:
    """Return which columns come after a row's own token and are hidden from it, (count, count)."""
    return torch.ones(count, count, dtype=torch.bool).triu(1)


def _attention_block(
    tokens: Tensor, *, attended: Tensor, mask: Tensor, heads: int, kv_heads: int
) -> _AttentionBlock:
    """Return the block in which tokens attend to others.

    Args:
        tokens: packed indices, (sequences, length).
        attended: packed indices of what they may attend to, (sequences, attended length).
        mask: added to attention scores, (sequences, length, attended length).
    """
    columns = torch.arange(heads + 2 * kv_heads)
    queries, keys, values = torch.split(columns, [heads, kv_heads, kv_heads])

    def table_rows(indices: Tensor, rows_per_token: int, columns: Tensor) -> Tensor:
        found = indices[:, None, None] * rows_per_token + columns.view(kv_heads, -1, 1)
        return found.flatten(2).flatten(0, 1)

    return _AttentionBlock(
        queries=table_rows(tokens, len(columns), queries),
        keys=table_rows(attended, len(columns), keys),
        values=table_rows(attended, len(columns), values),
        outputs=table_rows(tokens, heads, queries),
        mask=mask[:, None],
    )


def _inverse_index(parts: Iterable[Tensor], size: int) -> Tensor:
    """Return the inverse permutation: the place of each (token, head) row in the concatenated parts, (size,).

    A prompt's keys occur in its completions' part and, later, in its own; the later place counts.
    """
    result, start = torch.zeros(size, dtype=torch.long), 0
    for part in parts:
        result[part.flatten()] = torch.arange(start, start + part.numel())
        start += part.numel()
    return result


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


class _SwiGlu(torch.autograd.Function):
    """silu(gate) up, of both side by side: (N, 2 x intermediate) to (N, intermediate)."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        activated = silu(gate)
        ctx.save_for_backward(gate_up, activated)
        return activated * up

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        gate_up, activated = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        result = torch.empty_like(gate_up)
        grad_gate, grad_up = result.chunk(2, -1)
        torch.mul(grad_output, activated, out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grad_output * up, gate, grad_input=grad_gate)
        return result


class _Attention(torch.autograd.Function):
    """Rotary embedding and attention, of fused queries, keys and values: (N, W D) to (N, H D).

    A prompt's tokens attend to earlier tokens of the prompt, a completion's to its prompt as well.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, rope: Tensor, layout: _Layout) -> Tensor:
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
            torch.bmm(weights, values, out=output)
            saved += [queries, keys, values, weights]
        ctx.save_for_backward(rope, *saved)
        ctx.layout = layout
        return embedding(layout.output_index, outputs).view(len(qkv), -1)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
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
        return result.flatten(1), None, None


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
    def forward(ctx: Any, logits: Tensor, layout: _Layout) -> Tensor:
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
