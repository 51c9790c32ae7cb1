"""Packing of prompts and completions for the fast forward pass: one after another, each prompt once.

Shapes: as in ``fast_forward``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from sapo_client.learner.cpu.fused_layers import additive_mask, as_complex

Row = tuple[Sequence[int], Sequence[int]]
"""A prompt's token ids and a completion's token ids."""

_ROW_MULTIPLE: Final = 64
"""Products have a multiple of this many rows: oneDNN compiles a new kernel for each new number of rows."""


@dataclass(frozen=True, slots=True)
class AttentionBlock:
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
class PackedLayout:
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
    blocks: tuple[AttentionBlock, AttentionBlock]
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


def pack(rows: Sequence[Row], pad_id: int, heads: int, kv_heads: int) -> PackedLayout:
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
        _block(
            completions,
            attended=torch.cat([prompts[prompt_index], completions], 1),
            mask=additive_mask(masked),
            heads=heads,
            kv_heads=kv_heads,
        ),
        _block(
            prompts,
            attended=prompts,
            mask=additive_mask(_causal_mask(prompt_width)).expand(prompt_count, -1, -1),
            heads=heads,
            kv_heads=kv_heads,
        ),
    )
    mask = torch.arange(width + 1) < completion_lengths[:, None]
    logit_tokens = torch.cat([prompt_lengths.cumsum(0) - 1, torch.arange(first, num_tokens)])
    return PackedLayout(
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


def _block(tokens: Tensor, *, attended: Tensor, mask: Tensor, heads: int, kv_heads: int) -> AttentionBlock:
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

    return AttentionBlock(
        queries=table_rows(tokens, len(columns), queries),
        keys=table_rows(attended, len(columns), keys),
        values=table_rows(attended, len(columns), values),
        outputs=table_rows(tokens, heads, queries),
        mask=mask[:, None],
    )


def _inverse_index(parts: Iterable[Tensor], size: int) -> Tensor:
    """Return the inverse permutation: index of each (token, head) row in the concatenated parts, (size,).

    A prompt's keys occur in its completions' part and, later, in its own; the later index counts.
    """
    result, start = torch.zeros(size, dtype=torch.long), 0
    for part in parts:
        result[part.flatten()] = torch.arange(start, start + part.numel())
        start += part.numel()
    return result
