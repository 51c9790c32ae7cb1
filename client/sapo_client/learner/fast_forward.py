"""Log-probabilities of completions for training, by models shaped like Llama on a CPU.

What makes the difference: a prompt is read once for all of its completions; what lies between two matrix
products is one function with a derivative of its own, not a dozen small ones whose results are all kept;
query, key and value are one product, gate and up another; products are oneDNN's (``products.py``).

Shapes: R completions of G different prompts; P longest prompt; T places of the longest completion that
predict something, for its last token predicts nothing; N = G P + R T places, prompts first, rounded up;
H heads, K key-value heads, Q = H / K queries of a key-value head, D head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import embedding, pad, silu

from sapo_client.learner.fast_decoder import barred, is_llama_shaped
from sapo_client.learner.products import FEWEST_ROWS, differentiable_product

Row = tuple[Sequence[int], Sequence[int]]
"""A prompt's tokens and a completion's tokens."""

_ROUND: Final = FEWEST_ROWS
"""Products are of a multiple of so many rows: for each new number of rows oneDNN makes a new program."""


def is_fast(model: Any) -> bool:
    """Whether ``fast_logprobs`` computes this model as it is now."""
    return (
        is_llama_shaped(model)
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and not getattr(model.model.layers[0], "gradient_checkpointing", False)
        and not torch.is_autocast_enabled("cpu")
    )


def fast_logprobs(model: Any, rows: Sequence[Row], filler: int, temperature: float) -> Tensor:
    """Log-probability of every completion token under the tempered policy; differentiable.

    Returns:
        (R, T + 1); zero beyond a completion's end.
    """
    layout, base, heads = _arranged(rows, filler), model.model, model.config.num_attention_heads
    cos, sin = _rotations(model, layout.places)
    hidden = base.embed_tokens(layout.tokens)
    for layer in base.layers:
        attention, mlp = layer.self_attn, layer.mlp
        read = _normed(hidden, layer.input_layernorm)
        each = _joint(read, attention.q_proj, attention.k_proj, attention.v_proj)
        mixed = _Attention.apply(each, cos, sin, layout, heads)  # type: ignore[no-untyped-call]
        hidden = _joint(mixed, attention.o_proj).add_(hidden)
        both = _joint(_normed(hidden, layer.post_attention_layernorm), mlp.gate_proj, mlp.up_proj)
        opened = _Gated.apply(both)  # type: ignore[no-untyped-call]
        hidden = _joint(opened, mlp.down_proj).add_(hidden)
    # `embedding` picks rows, and unlike an index's its derivative is fast
    logits = _joint(_normed(embedding(layout.kept, hidden), base.norm), model.lm_head)
    table = (logits if temperature == 1.0 else logits / temperature).log_softmax(-1)
    return torch.where(layout.mask, table[layout.predicting, layout.following], 0.0)


@dataclass(frozen=True, slots=True)
class _Part:
    """Texts of one length among the places.

    Attributes:
        span: of the places.
        texts: how many there are.
        mask: what is added to attention scores, 0 or minus infinity; (P, P) or (R, 1, 1, T, P + T).
    """

    span: slice
    texts: int
    mask: Tensor


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is computed, and where it is.

    Attributes:
        tokens: (N,).
        places: each token's position in its text, (1, N).
        owner: each completion's prompt, (R,).
        kept: the places whose logits are computed: prompts' last ones, then completions'; rounded up.
        predicting: which of these predicts each completion token, (R, T + 1).
        following: the completion tokens, (R, T + 1).
        mask: which of them are real, (R, T + 1).
    """

    tokens: Tensor
    places: Tensor
    prompts: _Part
    completions: _Part
    owner: Tensor
    kept: Tensor
    predicting: Tensor
    following: Tensor
    mask: Tensor


def _arranged(rows: Sequence[Row], filler: int) -> _Layout:
    numbers: dict[tuple[int, ...], int] = {}
    owner = torch.tensor([numbers.setdefault(tuple(prompt), len(numbers)) for prompt, _ in rows])
    read, read_lengths = _rectangle(list(numbers), filler)
    following, lengths = _rectangle([completion for _, completion in rows], filler)
    (prompts, width), (texts, longest) = read.shape, following.shape
    first, steps = prompts * width, torch.arange(longest)
    stop = first + texts * (longest - 1)
    last_read = torch.arange(prompts) * width + read_lengths - 1
    written = torch.arange(first, stop)
    absent = (torch.arange(width) >= read_lengths[owner, None, None]).expand(-1, longest - 1, -1)
    later = _later(longest - 1).expand(texts, -1, -1)
    return _Layout(
        tokens=_rounded_up(torch.cat([read.flatten(), following[:, :-1].flatten()]), filler),
        places=_rounded_up(
            torch.cat(
                [torch.arange(width).repeat(prompts), (read_lengths[owner, None] + steps[:-1]).flatten()]
            ),
            0,
        )[None],
        prompts=_Part(slice(0, first), prompts, barred(_later(width))),
        completions=_Part(slice(first, stop), texts, barred(torch.cat([absent, later], -1))[:, None, None]),
        owner=owner,
        kept=_rounded_up(torch.cat([last_read, written]), 0),
        predicting=torch.cat([owner[:, None], (written - first + prompts).view(texts, -1)], 1),
        following=following,
        mask=steps < lengths[:, None],
    )


def _rectangle(texts: Sequence[Sequence[int]], filler: int) -> tuple[Tensor, Tensor]:
    """Texts filled up on the right, (texts, longest), and their lengths."""
    longest = max(map(len, texts))
    tokens = torch.tensor([[*text, *[filler] * (longest - len(text))] for text in texts])
    return tokens, torch.tensor([len(text) for text in texts])


def _rounded_up(values: Tensor, filler: int) -> Tensor:
    """Filled up to a length that is met again and again; few places are not worth it."""
    return values if len(values) < _ROUND else pad(values, (0, -len(values) % _ROUND), value=filler)


def _later(count: int) -> Tensor:
    """Which columns come after a row's own, (count, count)."""
    return torch.ones(count, count, dtype=torch.bool).triu(1)


def _rotations(model: Any, places: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines for all heads of queries and keys, written out: (N, H + K, D).

    Attention's scale is in those of queries.
    """
    heads = (model.config.num_attention_heads, model.config.num_key_value_heads)
    cos, sin = (each[0, :, None] for each in model.model.rotary_emb(model.lm_head.weight, places))
    near, far = sin.chunk(2, -1)
    sin, scale = torch.cat([-near, far], -1), sin.shape[-1] ** -0.5
    both = ([scale * each] * heads[0] + [each] * heads[1] for each in (cos, sin))
    cos, sin = (torch.cat(each, 1) for each in both)
    return cos, sin


def _joint(x: Tensor, *layers: Any) -> Tensor:
    """Several linear layers' results side by side, by one product."""
    if len(layers) == 1:
        return differentiable_product(x, layers[0].weight, layers[0].bias)
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return differentiable_product(x, torch.cat([layer.weight for layer in layers]), bias)


def _normed(x: Tensor, norm: Any) -> Tensor:
    result: Tensor = _Norm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return result


class _Norm(torch.autograd.Function):
    """Root mean square norm, (N, hidden) and its weight (hidden,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        size = vector_norm(x, dim=-1, keepdim=True)
        scale = size.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        unit = x * scale
        ctx.save_for_backward(unit, scale, weight)
        result: Tensor = unit * weight
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        unit, scale, weight = ctx.saved_tensors
        along = gradient * unit
        inward = (along @ weight)[:, None] / unit.shape[-1]
        outward = (gradient * weight).addcmul_(unit, inward, value=-1).mul_(scale)
        return outward, along.sum(0), None


class _Gated(torch.autograd.Function):
    """silu(gate) up, of both side by side: (N, 2 inner) to (N, inner)."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, -1)
        opened = silu(gate)
        ctx.save_for_backward(both, opened)
        return opened * up

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        both, opened = ctx.saved_tensors
        gate, up = both.chunk(2, -1)
        result = torch.empty_like(both)
        of_gate, of_up = result.chunk(2, -1)
        torch.mul(gradient, opened, out=of_up)
        torch.ops.aten.silu_backward.grad_input(gradient * up, gate, grad_input=of_gate)
        return result


class _Attention(torch.autograd.Function):
    """Rotation and attention, of queries, keys and values side by side: (N, (H + 2 K) D) to (N, H D).

    A prompt's places see what came before them, a completion's see its prompt, too. Probabilities are kept
    for the derivative; the copies of a prompt's keys and values beside each completion's own are not.
    """

    @staticmethod
    def forward(ctx: Any, each: Tensor, cos: Tensor, sin: Tensor, layout: _Layout, heads: int) -> Tensor:
        each = each.view(len(each), -1, cos.shape[-1])
        turned = _turned(each[:, : cos.shape[1]], cos, sin)
        mixed = _blank(turned[:, :heads], layout)
        kept = []
        for part, query, keys, values in _facing(layout, turned, each, heads):
            products = query @ keys.transpose(2, 3)
            scores = products.view(*products.shape[:2], -1, *part.mask.shape[-2:]).add_(part.mask)
            kept.append(scores.softmax(-1).view_as(products))
            _rows(mixed, part, keys.shape[1]).copy_(_unfolded(kept[-1] @ values, heads))
        ctx.save_for_backward(each, turned, cos, sin, *kept)
        ctx.layout, ctx.heads = layout, heads
        return mixed.flatten(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        each, turned, cos, sin, *kept = ctx.saved_tensors
        layout, heads, start = ctx.layout, ctx.heads, cos.shape[1]
        gradient, result = gradient.view(len(each), heads, -1), _blank(each, layout)
        of_queries, of_keys, of_values = result[:, :heads], result[:, heads:start], result[:, start:]
        facing = list(_facing(layout, turned, each, heads))
        for (part, query, keys, values), chances in zip(facing, kept, strict=True):
            incoming = _folded(gradient, part, keys.shape[1])
            of_chances = incoming @ values.transpose(2, 3)
            of_scores = torch.ops.aten._softmax_backward_data(of_chances, chances, -1, chances.dtype)
            _rows(of_queries, part, keys.shape[1]).copy_(_unfolded(of_scores @ keys, heads))
            _hand_back(of_scores.transpose(2, 3) @ query, of_keys, part, layout)
            _hand_back(chances.transpose(2, 3) @ incoming, of_values, part, layout)
        result[:, :start] = _turned(result[:, :start], cos, sin, back=True)
        return result.flatten(1), None, None, None, None


def _facing(
    layout: _Layout, turned: Tensor, each: Tensor, heads: int
) -> Iterator[tuple[_Part, Tensor, Tensor, Tensor]]:
    """Each part with its queries and the keys and values that they see, (texts, K, places, D)."""
    kv_heads = turned.shape[1] - heads
    sources = (turned[:, :heads], turned[:, heads:], each[:, turned.shape[1] :])
    part = layout.prompts
    query, keys, values = (_folded(source, part, kv_heads) for source in sources)
    yield part, query, keys, values
    part = layout.completions
    if part.span.start < part.span.stop:
        query, own_keys, own_values = (_folded(source, part, kv_heads) for source in sources)
        yield (
            part,
            query,
            torch.cat([keys[layout.owner], own_keys], 2),
            torch.cat([values[layout.owner], own_values], 2),
        )


def _hand_back(found: Tensor, target: Tensor, part: _Part, layout: _Layout) -> None:
    """Puts what a part's keys or values get, (texts, K, places, D), in their places; prompts' is added."""
    seen = found.shape[2] - part.mask.shape[-2]
    _rows(target, part, found.shape[1]).copy_(_unfolded(found[:, :, seen:], found.shape[1]))
    if seen:
        of_prompts = found.new_zeros(layout.prompts.texts, found.shape[1], seen, found.shape[3])
        of_prompts.index_add_(0, layout.owner, found[:, :, :seen])
        _rows(target, layout.prompts, found.shape[1]).add_(_unfolded(of_prompts, found.shape[1]))


def _blank(like: Tensor, layout: _Layout) -> Tensor:
    """Room for something of each place; zero where places only fill up."""
    result = torch.empty(like.shape, dtype=like.dtype)
    result[layout.completions.span.stop :] = 0
    return result


def _rows(x: Tensor, part: _Part, kv_heads: int) -> Tensor:
    """A part of (N, K Q, D), seen as (texts, places, K, Q, D)."""
    _, heads, width = x.shape
    return x[part.span].view(part.texts, -1, kv_heads, heads // kv_heads, width)


def _folded(x: Tensor, part: _Part, kv_heads: int) -> Tensor:
    """A part of (N, K Q, D), a key-value head's queries in a row: (texts, K, Q x places, D)."""
    return _rows(x, part, kv_heads).permute(0, 2, 3, 1, 4).flatten(2, 3)


def _unfolded(x: Tensor, heads: int) -> Tensor:
    """The reverse, seen as (texts, places, K, Q, D)."""
    texts, kv_heads, _, width = x.shape
    return x.view(texts, kv_heads, heads // kv_heads, -1, width).permute(0, 3, 1, 2, 4)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, back: bool = False) -> Tensor:
    """Rotary position embedding, or its transpose, all (N, heads, D); see ``_rotations``."""
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, -1), sin, value=-1 if back else 1)
