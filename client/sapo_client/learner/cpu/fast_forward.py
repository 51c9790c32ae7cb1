"""Log-probabilities of completions for training, by models shaped like Llama on a CPU.

What makes the difference: a prompt is read once for all of its completions; texts of whatever lengths lie one
after the other, and only attention sets them out in rectangles; what lies between two matrix products is one
function with a derivative of its own, not a dozen small ones whose results are all kept; query, key and value
are one product, gate and up another; products are oneDNN's (``cpu/linear.py``).

Shapes: R completions of G different prompts; P longest prompt; T places of the longest completion that
predict something, for its last token predicts nothing; N places, prompts' first, filled up; H heads, K
key-value heads, Q = H / K queries of a key-value head, W = H + 2 K, D head width, V vocabulary.
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

from sapo_client.learner.cpu.fused_layers import barred, fused, head_width, is_llama_shaped, pairs, rotations
from sapo_client.learner.cpu.linear import differentiable_product

Row = tuple[Sequence[int], Sequence[int]]
"""A prompt's tokens and a completion's tokens."""

_ROUND: Final = 64
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
    config, base, width = model.config, model.model, head_width(model.config)
    layout = _arranged(rows, filler, config.num_attention_heads, config.num_key_value_heads)
    turns = rotations(model, layout.positions)[:, None]
    words = base.embed_tokens(layout.words)
    hidden = embedding(layout.which, words)  # unlike an index's, its derivative is fast
    for number, layer in enumerate(base.layers):
        products = fused(layer, width)
        # the first layer reads the same of a word wherever it stands
        read = _normed(hidden if number else words, layer.input_layernorm)
        each = differentiable_product(read, *products.qkv)
        each = each if number else embedding(layout.which, each)
        mixed = _Attention.apply(each, turns, layout)  # type: ignore[no-untyped-call]
        hidden = differentiable_product(mixed, *products.out).add_(hidden)
        both = differentiable_product(_normed(hidden, layer.post_attention_layernorm), *products.gate_up)
        opened = _Gated.apply(both)  # type: ignore[no-untyped-call]
        hidden = differentiable_product(opened, *products.down).add_(hidden)
    read = _normed(embedding(layout.kept, hidden), base.norm) * base.norm.weight
    logits = differentiable_product(read, model.lm_head.weight)
    if temperature != 1.0:
        logits = logits / temperature
    result: Tensor = _Chosen.apply(logits, layout)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True, slots=True)
class _Part:
    """Prompts or completions as attention wants them: rectangles of rows of a table.

    Places after all texts fill them up.

    Attributes:
        queries: a key-value head's queries in a row, (texts K, Q places).
        keys: what these see, (texts K, places seen).
        values: likewise.
        results: as ``queries``, in a table of H rows for a place; in the others' there are W.
        mask: what is added to scores, 0 or minus infinity; (texts, 1, places, places seen).
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    results: Tensor
    mask: Tensor

    @property
    def sources(self) -> tuple[Tensor, Tensor, Tensor]:
        """What attention computes with."""
        return self.queries, self.keys, self.values


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is computed, and where it is.

    Attributes:
        words: the different tokens, filled up.
        which: of them is at each place, (N,).
        positions: each token's in its text, (N,).
        real: how many places there are before they are filled up.
        heads: H.
        kv_heads: K.
        parts: completions, prompts.
        owner: each completion's prompt, (R,).
        results: of each place and head, where it is among the completions' results and the prompts', (N H,).
        gradients: likewise among gradients of queries, keys and values, (N W,).
        kept: the places whose logits are computed: prompts' last ones, then completions'; filled up.
        mask: which of (R, T + 1) are tokens.
        predicting: which of the kept places predicts each of them, (tokens,).
        chosen: the tokens, (tokens,).
    """

    words: Tensor
    which: Tensor
    positions: Tensor
    real: int
    heads: int
    kv_heads: int
    parts: tuple[_Part, _Part]
    owner: Tensor
    results: Tensor
    gradients: Tensor
    kept: Tensor
    mask: Tensor
    predicting: Tensor
    chosen: Tensor

    def rotating(self, table: Tensor) -> Tensor:
        """Queries and keys of a table, (N, W, D), as pairs, (N, H + K, D / 2), complex."""
        return pairs(table[:, : self.heads + self.kv_heads])


def _arranged(rows: Sequence[Row], filler: int, heads: int, kv_heads: int) -> _Layout:
    numbers: dict[tuple[int, ...], int] = {}
    owner = torch.tensor([numbers.setdefault(tuple(prompt), len(numbers)) for prompt, _ in rows])
    read = torch.tensor([len(prompt) for prompt in numbers])
    written = torch.tensor([len(completion) for _, completion in rows])
    tokens = _flat([*numbers, *(completion[:-1] for _, completion in rows)])
    first, real = int(read.sum()), len(tokens)
    tokens = _filled(torch.cat([tokens, tokens.new_tensor([filler])]), filler)  # one filler at least
    seen, own = _places(read, 0, real), _places(written - 1, first, real)
    (prompts, width), (texts, longest) = seen.shape, own.shape
    words, which = torch.unique(tokens, return_inverse=True)
    positions = torch.zeros_like(tokens)
    positions[seen] = torch.arange(width)
    positions[own] = read[owner, None] + torch.arange(longest)
    absent = (seen == real)[owner, None].expand(-1, longest, -1)
    barred_own = torch.cat([absent, _later(longest).expand(texts, -1, -1)], 2)
    parts = (
        _part(own, torch.cat([seen[owner], own], 1), heads, kv_heads, barred(barred_own)),
        _part(seen, seen, heads, kv_heads, barred(_later(width)).expand(prompts, -1, -1)),
    )
    mask = torch.arange(longest + 1) < written[:, None]
    return _Layout(
        words=_filled(words, filler),
        which=which,
        positions=positions,
        real=real,
        heads=heads,
        kv_heads=kv_heads,
        parts=parts,
        owner=owner,
        results=_found((part.results for part in parts), len(tokens) * heads),
        gradients=_found(
            (each for part in parts for each in part.sources), len(tokens) * (heads + 2 * kv_heads)
        ),
        kept=_filled(torch.cat([read.cumsum(0) - 1, torch.arange(first, real)]), 0),
        mask=mask,
        predicting=torch.cat([owner[:, None], own - first + len(read)], 1)[mask],
        chosen=_flat([completion for _, completion in rows]),
    )


def _flat(texts: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor(list(chain.from_iterable(texts)))


def _filled(values: Tensor, filler: int) -> Tensor:
    """Filled up to a length that is met again and again; few are not worth it."""
    return values if len(values) < _ROUND else pad(values, (0, -len(values) % _ROUND), value=filler)


def _places(lengths: Tensor, first: int, beyond: int) -> Tensor:
    """Texts that lie one after the other as a rectangle, (texts, longest)."""
    steps = torch.arange(int(lengths.max()))
    starts = first + lengths.cumsum(0) - lengths
    return torch.where(steps < lengths[:, None], starts[:, None] + steps, beyond)


def _later(count: int) -> Tensor:
    """Which columns come after a row's own, (count, count)."""
    return torch.ones(count, count, dtype=torch.bool).triu(1)


def _part(own: Tensor, seen: Tensor, heads: int, kv_heads: int, mask: Tensor) -> _Part:
    """Of places (texts, places) that see others (texts, places seen), but for a mask."""
    numbers = torch.arange(heads + 2 * kv_heads)
    queries, keys, values = torch.split(numbers, [heads, kv_heads, kv_heads])

    def rows(places: Tensor, per_place: int, which: Tensor) -> Tensor:
        each = places[:, None, None] * per_place + which.view(kv_heads, -1, 1)
        return each.flatten(2).flatten(0, 1)

    return _Part(
        queries=rows(own, len(numbers), queries),
        keys=rows(seen, len(numbers), keys),
        values=rows(seen, len(numbers), values),
        results=rows(own, heads, queries),
        mask=mask[:, None],
    )


def _found(parts: Iterable[Tensor], size: int) -> Tensor:
    """Where each row of a table is among these; what completions saw of their prompts is the prompts'."""
    result, start = torch.zeros(size, dtype=torch.long), 0
    for part in parts:
        result[part.flatten()] = torch.arange(start, start + part.numel())
        start += part.numel()
    return result


def _normed(x: Tensor, norm: Any) -> Tensor:
    result: Tensor = _Norm.apply(x, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return result


class _Norm(torch.autograd.Function):
    """Rows (N, hidden) divided by the root of their mean square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        size = vector_norm(x, dim=-1, keepdim=True)
        scale = size.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        unit: Tensor = x * scale
        ctx.save_for_backward(unit, scale)
        return unit

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        unit, scale = ctx.saved_tensors
        inward = (gradient * unit).mean(-1, keepdim=True)
        return torch.addcmul(gradient, unit, inward, value=-1).mul_(scale), None


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
    """Rotation and attention, of queries, keys and values side by side: (N, W D) to (N, H D).

    A prompt's places see what came before them, a completion's see its prompt, too.
    """

    @staticmethod
    def forward(ctx: Any, each: Tensor, turns: Tensor, layout: _Layout) -> Tensor:
        table = each.view(len(each), -1, 2 * turns.shape[-1])
        turned = torch.empty_like(table)  # values stay where they are
        torch.mul(layout.rotating(table), turns, out=layout.rotating(turned))
        table, turned = table.flatten(0, 1), turned.flatten(0, 1)
        found, rooms = _rooms([part.results for part in layout.parts], table)
        kept = []
        for part, room in zip(layout.parts, rooms, strict=True):
            query, keys = embedding(part.queries, turned), embedding(part.keys, turned)
            values = embedding(part.values, table)
            products = query @ keys.mT
            scores = products.view(len(part.mask), layout.heads, *part.mask.shape[-2:]).add_(part.mask)
            chances = scores.softmax(-1).view_as(products)
            torch.bmm(chances, values, out=room)
            kept += [query, keys, values, chances]
        ctx.save_for_backward(turns, *kept)
        ctx.layout = layout
        return embedding(layout.results, found).view(len(each), -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        turns, *kept = ctx.saved_tensors
        layout, table = ctx.layout, gradient.reshape(-1, 2 * turns.shape[-1])
        found, rooms = _rooms([each for part in layout.parts for each in part.sources], table)
        for number, part in enumerate(layout.parts):
            query, keys, values, chances = kept[4 * number : 4 * number + 4]
            of_query, of_keys, of_values = rooms[3 * number : 3 * number + 3]
            incoming = embedding(part.results, table)
            of_chances = incoming @ values.mT
            of_scores = torch.ops.aten._softmax_backward_data(of_chances, chances, -1, chances.dtype)
            torch.bmm(of_scores, keys, out=of_query)
            torch.bmm(of_scores.mT, query, out=of_keys)
            torch.bmm(chances.mT, incoming, out=of_values)
        _add_up(rooms[1], rooms[4], layout.owner)
        _add_up(rooms[2], rooms[5], layout.owner)
        result = embedding(layout.gradients, found).view(len(gradient), -1, found.shape[1])
        result[layout.real :] = 0
        layout.rotating(result).mul_(turns.conj_physical())
        return result.flatten(1), None, None


def _rooms(parts: Sequence[Tensor], like: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Room for a row (D,) of each row number, as one table and part by part."""
    whole = like.new_empty(sum(part.numel() for part in parts), like.shape[1])
    rooms = torch.split(whole, [part.numel() for part in parts])
    return whole, [room.view(*part.shape, like.shape[1]) for room, part in zip(rooms, parts, strict=True)]


def _add_up(of_completions: Tensor, of_prompts: Tensor, owner: Tensor) -> None:
    """Adds to prompts' gradients, (G K, P, D), what completions saw of them, (R K, P + T, D)."""
    kv_heads = len(of_completions) // len(owner)
    seen, total = (each.view(-1, kv_heads, *each.shape[1:]) for each in (of_completions, of_prompts))
    total.index_add_(0, owner, seen[:, :, : total.shape[2]])


class _Chosen(torch.autograd.Function):
    """Log-probabilities of the tokens that were chosen: logits (kept, V) to (R, T + 1)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, layout: _Layout) -> Tensor:
        table = logits.log_softmax(-1)
        cells = layout.predicting * table.shape[1] + layout.chosen
        ctx.save_for_backward(table, cells)
        ctx.layout = layout
        values = table.view(-1)[cells]
        return values.new_zeros(layout.mask.shape).masked_scatter_(layout.mask, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        table, cells = ctx.saved_tensors
        of_values = gradient[ctx.layout.mask]
        totals = table.new_zeros(len(table)).index_add_(0, ctx.layout.predicting, of_values)
        result = table.exp_().mul_(-totals[:, None])  # nobody needs the table again
        result.view(-1).index_add_(0, cells, of_values)
        return result, None
