"""Activations from sampling, kept for the forward pass of the first update on the sampled text.

The sampler computes every token's projections once, with the very weights that the first update starts from.
A training step needs them again, as the tensors that its backward pass reads. So the sampler writes them into
tables, and training gathers rows of the tables instead of computing products: all of a layer's matrix
products but those of the head and of the first layer's attention inputs, which are few. Of narrow models only
gate and up and the layers' outputs are kept.

The tables are valid as long as no parameter was written since: PyTorch counts writes in ``_version``.

Shapes: N computed tokens of one sampling, prompts first; H, K, D, W as in ``fast_forward``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.learner.cpu.fused_layers import head_dim
from sapo_client.learner.cpu.mlp import KnownMlp

MAX_BYTES: Final = 256 * 2**20
"""Limit of the tables of one sampling call; beyond it nothing is kept, and training computes everything."""


MIN_WIDTH: Final = 256
"""Hidden size from which all results are kept.

One of them costs as many multiplications as the product's input is wide. In a narrow model that is no dearer
than writing and reading it, but for the two largest products of a layer (docs/results-history.md).
"""


@dataclass(frozen=True, slots=True)
class KnownLayer:
    """One layer's results of the tokens of a micro-batch; None for one that is to be computed.

    Attributes:
        qkv: queries, keys and values before the rotation, (N, W D).
        attended: (N, H D).
        middle: hidden state after attention, (N, hidden); N or fewer, see ``LayerStates.gather``.
        mlp: of what follows.
    """

    qkv: Tensor | None = None
    attended: Tensor | None = None
    middle: Tensor | None = None
    mlp: KnownMlp | None = None


@dataclass(frozen=True, slots=True)
class LayerStates:
    """Tables of one layer's results of every computed token; None for one that is not kept.

    Attributes:
        qkv: queries, keys and values before the rotation, (N, W D).
        attended: (N, H D).
        middle: hidden state after attention, (N, hidden).
        gate_up: (N, 2 x intermediate).
        hidden: hidden state after the layer, (N, hidden).
    """

    qkv: Tensor | None
    attended: Tensor | None
    middle: Tensor | None
    gate_up: Tensor
    hidden: Tensor

    def write(self, start: int, values: Sequence[Tensor]) -> None:
        """Write results of further tokens, in the order of the attributes, from row ``start`` on."""
        for table, value in zip(self._tables(), values, strict=True):
            if table is not None:
                flat = value.flatten(0, -2)
                table[start : start + len(flat)] = flat

    def gather(self, rows: Tensor, kept: Tensor | None = None) -> KnownLayer:
        """Return the results of some tokens: (n,) to tables of n rows; gate and up stay where they are.

        Args:
            rows: of the tokens in the tables.
            kept: indices of those whose results after attention are returned, (m,); None for all.
        """
        later = rows if kept is None else rows[kept]
        qkv, attended, middle = (
            None if table is None else table.index_select(0, wanted)
            for table, wanted in ((self.qkv, rows), (self.attended, rows), (self.middle, later))
        )
        return KnownLayer(
            qkv, attended, middle, KnownMlp(self.gate_up, later, self.hidden.index_select(0, later))
        )

    def _tables(self) -> tuple[Tensor | None, ...]:
        return self.qkv, self.attended, self.middle, self.gate_up, self.hidden


class KeptStates:
    """Tables of one sampling.

    Args:
        model: one that ``is_llama_style`` accepts.
        prompts: token ids.
        rows: completions.
        new_tokens: longest completion.
    """

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], rows: int, new_tokens: int) -> None:
        self._model = model
        self._width = max(len(prompt) for prompt in prompts)
        self._next = 0
        count = len(prompts) * self._width + rows * new_tokens
        self._layers = [_empty_layer(model.config, count) for _ in range(model.config.num_hidden_layers)]
        self._starts = [(index + 1) * self._width - len(prompt) for index, prompt in enumerate(prompts)]
        self._rows = torch.zeros((rows, new_tokens), dtype=torch.long)
        self._versions = _versions(model)

    @property
    def is_fresh(self) -> bool:
        """Whether the model's parameters are still those that sampled."""
        return self._versions == _versions(self._model)

    def write(self, layer: int, values: Sequence[Tensor]) -> None:
        """Write one layer's results of the tokens that are being computed."""
        self._layers[layer].write(self._next, values)

    def computed(self, count: int, active: Tensor | None = None, step: int = 0) -> None:
        """Count the tokens that were computed.

        Args:
            count: of tokens.
            active: rows whose completion token ``step`` they are; None for prompts.
            step: place in the completions.
        """
        if active is not None:
            self._rows[active, step] = torch.arange(self._next, self._next + count)
        self._next += count

    def rows_of_prompt(self, prompt: int, length: int) -> Tensor:
        """Return the table rows of a prompt's tokens."""
        return torch.arange(self._starts[prompt], self._starts[prompt] + length)

    def rows_of_completion(self, row: int, length: int) -> Tensor:
        """Return the table rows of a completion's first ``length`` tokens."""
        return self._rows[row, :length]

    def gather(self, layer: int, rows: Tensor, kept: Tensor | None = None) -> KnownLayer:
        """Return one layer's results of some tokens, see ``LayerStates.gather``."""
        return self._layers[layer].gather(rows, kept)


@dataclass(frozen=True, slots=True)
class KeptRow:
    """Where a sampled completion is in the tables of its sampling.

    Attributes:
        states: the tables.
        prompt: index of its prompt.
        row: index of the completion.
    """

    states: KeptStates
    prompt: int
    row: int


def kept_states_for(
    model: Any, prompts: Sequence[Sequence[int]], completions_per_prompt: int, new_tokens: int
) -> KeptStates | None:
    """Return tables for a sampling, or None where they would be too large or could not be used."""
    tokens = len(prompts) * (max(map(len, prompts)) + completions_per_prompt * new_tokens)
    if (
        state_bytes(model.config, tokens) > MAX_BYTES
        or model.device.type != "cpu"
        or model.dtype != torch.float32
    ):
        return None
    return KeptStates(model, prompts, len(prompts) * completions_per_prompt, new_tokens)


def state_bytes(config: Any, tokens: int) -> int:
    """Return the bytes of the tables of a number of computed tokens."""
    return int(4 * tokens * config.num_hidden_layers * sum(_widths(config)))


def packed_rows(
    kept: Sequence[KeptRow | None], prompts: Sequence[Sequence[int]], lengths: Sequence[int], padded: int
) -> tuple[KeptStates, Tensor] | None:
    """Return the tables and the rows in them of a packed micro-batch; None unless all of it was kept.

    Args:
        kept: of each row of the micro-batch.
        prompts: of each row; ``packing`` packs equal ones once, in the order of their first rows.
        lengths: of each row's completion without its last token.
        padded: packed tokens, padding included; padding gets any row.
    """
    first = kept[0]
    if first is None or not first.states.is_fresh:
        return None
    states, found = first.states, dict[tuple[int, ...], Tensor]()
    completions = []
    for each, prompt, length in zip(kept, prompts, lengths, strict=True):
        if each is None or each.states is not states:
            return None
        found.setdefault(tuple(prompt), states.rows_of_prompt(each.prompt, len(prompt)))
        completions.append(states.rows_of_completion(each.row, length))
    rows = torch.cat([*found.values(), *completions])
    return states, torch.nn.functional.pad(rows, (0, padded - len(rows)))


def _empty_layer(config: Any, count: int) -> LayerStates:
    *optional, gate_up, hidden = _widths(config)
    qkv, attended, middle = (torch.empty((count, width)) if width else None for width in optional)
    return LayerStates(qkv, attended, middle, torch.empty((count, gate_up)), torch.empty((count, hidden)))


def _widths(config: Any) -> tuple[int, int, int, int, int]:
    """Return the columns of a layer's tables, in the order of ``LayerStates``; 0 for none."""
    if config.hidden_size < MIN_WIDTH:
        return 0, 0, 0, 2 * config.intermediate_size, config.hidden_size
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, head_dim(config)
    return (
        (heads + 2 * kv_heads) * dim,
        heads * dim,
        config.hidden_size,
        2 * config.intermediate_size,
        config.hidden_size,
    )


def _versions(model: Any) -> tuple[int, ...]:
    return tuple(parameter._version for parameter in model.parameters())
