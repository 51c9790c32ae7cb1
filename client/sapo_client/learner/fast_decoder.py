"""Key-value-cache decoding for models shaped like Llama, about twice as fast on a CPU as ``generate``.

What makes the difference: query, key and value weights (and gate and up) are one matrix product; a prompt
is read once for its whole group; the cache is preallocated; grouped queries fold into the length axis, so
that keys are never repeated; the head runs on the last position alone; rows that ended leave the batch.

Shapes: B rows, P longest prompt, N new tokens, S = P + N cache columns, H heads, K key-value heads,
D head width, V vocabulary. Prompts are padded on the left, so column P + t holds every row's t-th new token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

LLAMA_SHAPED: Final = frozenset({"llama", "qwen2"})
"""Model types whose layer this file computes; the exactness test covers each."""

END_CHECK_STEPS: Final = 4
"""Looking for ended rows costs a synchronisation and a copy of the cache, so not every step."""


def is_llama_shaped(model: Any) -> bool:
    """Whether ``FastDecoder`` computes this very model."""
    config = model.config
    return (
        config.model_type in LLAMA_SHAPED
        and type(model).__name__ in ("LlamaForCausalLM", "Qwen2ForCausalLM")
        and config.hidden_act == "silu"
        and not getattr(config, "use_sliding_window", False)
        and config.rope_parameters.get("rope_type", "default") in ("default", "linear", "llama3")
        and not getattr(config, "quantization_config", None)
    )


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights, fused."""

    qkv: Tensor  # ((H + 2K) D, hidden)
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    gate_up: Tensor  # (2 x inner, hidden)
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    norm_attention: Tensor
    norm_mlp: Tensor


class FastDecoder:
    """One model's weights as they are now, ready to decode; make a new one after an update."""

    def __init__(self, model: Any, *, end: int, pad: int) -> None:
        config = model.config
        self._end, self._pad = end, pad
        self._layers = [_fused(layer) for layer in model.model.layers]
        self._embedding: Tensor = model.model.embed_tokens.weight
        self._norm: Tensor = model.model.norm.weight
        self._head: Tensor = model.lm_head.weight
        self._rotary = model.model.rotary_emb
        self._epsilon: float = config.rms_norm_eps
        self._heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._width: int = getattr(config, "head_dim", None) or config.hidden_size // self._heads

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        per_prompt: int,
        length: int,
        temperature: float,
        random: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Sampled tokens and their log-probabilities, both (prompts x per_prompt, length).

        Columns after a row's end token hold padding. Temperature 0 takes the likeliest token.
        """
        state = _State(self, prompts, per_prompt, length)
        rows = len(prompts) * per_prompt
        tokens = torch.full((rows, length), self._pad, device=self._embedding.device)
        logprobs = torch.zeros((rows, length), device=self._embedding.device)
        logits = state.prefill()
        for step in range(length):
            chosen, values = _choose(logits, temperature, random)
            tokens[state.alive, step], logprobs[state.alive, step] = chosen, values
            state.ended |= chosen == self._end
            if step + 1 == length or ((step + 1) % END_CHECK_STEPS == 0 and not state.drop_ended()):
                break
            # dropping rows keeps the order, so what was chosen is read back from the table
            logits = state.advance(tokens[state.alive, step])
        return tokens, logprobs

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        cache: list[tuple[Tensor, Tensor]],
        column: int,
        mask: Tensor | None,
    ) -> Tensor:
        """Hidden states (B, T, hidden) of T new tokens, written to the cache from ``column`` on."""
        hidden = self._embedding[ids]
        cos, sin = (part[:, None] for part in self._rotary(hidden, positions))  # (B, 1, T, D)
        for layer, (keys, values) in zip(self._layers, cache, strict=True):
            normed = self._normed(hidden, layer.norm_attention)
            hidden = hidden + self._attention(layer, normed, (cos, sin), (keys, values), column, mask)
            gate, up = linear(self._normed(hidden, layer.norm_mlp), layer.gate_up, layer.gate_up_bias).chunk(
                2, dim=-1
            )
            hidden = hidden + linear(silu(gate) * up, layer.down, layer.down_bias)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """(B, hidden) to (B, V), float32."""
        return linear(self._normed(hidden, self._norm), self._head).float()

    def empty_cache(self, rows: int, columns: int) -> list[tuple[Tensor, Tensor]]:
        """Room for keys and values of every layer, each (rows, K, columns, D)."""
        shape = (rows, self._kv_heads, columns, self._width)
        like = self._embedding
        return [(like.new_zeros(shape), like.new_zeros(shape)) for _ in self._layers]

    @property
    def pad(self) -> int:
        """Id that fills short prompts up."""
        return self._pad

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(hidden, (hidden.shape[-1],), weight, self._epsilon)

    def _attention(
        self,
        layer: _Layer,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor],
        cache: tuple[Tensor, Tensor],
        column: int,
        mask: Tensor | None,
    ) -> Tensor:
        rows, new, _ = hidden.shape
        heads, kv_heads, width = self._heads, self._kv_heads, self._width
        both = (
            linear(hidden, layer.qkv, layer.qkv_bias)
            .view(rows, new, heads + 2 * kv_heads, width)
            .transpose(1, 2)
        )
        query, key, value = torch.split(both, [heads, kv_heads, kv_heads], dim=1)
        stop = column + new
        cache[0][:, :, column:stop] = _rotated(key, *rotary)
        cache[1][:, :, column:stop] = value
        query = _rotated(query, *rotary)
        # a key-value head's group of queries moves to the length axis: (B, K, group x T, D)
        folded = query.reshape(rows, kv_heads, (heads // kv_heads) * new, width)
        mixed = scaled_dot_product_attention(
            folded,
            cache[0][:, :, :stop],
            cache[1][:, :, :stop],
            attn_mask=_folded_mask(mask, heads // kv_heads),
        )
        mixed = mixed.reshape(rows, heads, new, width).transpose(1, 2).reshape(rows, new, heads * width)
        return linear(mixed, layer.out, layer.out_bias)


class _State:
    """The rows still being written and their cache."""

    def __init__(
        self, decoder: FastDecoder, prompts: Sequence[Sequence[int]], per_prompt: int, length: int
    ) -> None:
        device = decoder._embedding.device
        self._decoder = decoder
        self._per_prompt = per_prompt
        self._prompt_width = max(len(prompt) for prompt in prompts)
        self._columns = self._prompt_width + length
        padded = [[decoder.pad] * (self._prompt_width - len(prompt)) + list(prompt) for prompt in prompts]
        self._ids = torch.tensor(padded, device=device)
        self._padding = torch.tensor([self._prompt_width - len(prompt) for prompt in prompts], device=device)
        self._ragged = bool((self._padding > 0).any())
        self._column = self._prompt_width
        self.alive = torch.arange(len(prompts) * per_prompt, device=device)
        self.ended = torch.zeros(len(prompts) * per_prompt, dtype=torch.bool, device=device)

    def prefill(self) -> Tensor:
        """Reads every prompt once, then gives each of its rows a copy of the cache; logits (B, V)."""
        width = self._prompt_width
        columns = torch.arange(width, device=self._ids.device)
        real = columns[None, :] >= self._padding[:, None]
        # a padded query sees itself, for a softmax over nothing is not a number
        mask = (columns[None, :] <= columns[:, None]) & (
            real[:, None, :] | torch.eye(width, dtype=torch.bool, device=real.device)
        )
        positions = (columns[None, :] - self._padding[:, None]).clamp_min(0)
        cache = self._decoder.empty_cache(len(self._ids), width)
        hidden = self._decoder.forward(self._ids, positions, cache, 0, mask[:, None])
        self._cache = self._decoder.empty_cache(len(self.alive), self._columns)
        for new, old in zip(self._cache, cache, strict=True):
            for target, source in zip(new, old, strict=True):
                target[:, :, :width] = source.repeat_interleave(self._per_prompt, 0)
        self._padding = self._padding.repeat_interleave(self._per_prompt)
        return self._decoder.logits(hidden[:, -1]).repeat_interleave(self._per_prompt, 0)

    def advance(self, chosen: Tensor) -> Tensor:
        """Reads one more token per row; logits (B, V)."""
        column = self._column
        positions = (column - self._padding)[:, None]
        mask = None
        if self._ragged:
            columns = torch.arange(column + 1, device=chosen.device)
            mask = (columns[None, :] >= self._padding[:, None])[:, None, None]
        hidden = self._decoder.forward(chosen[:, None], positions, self._cache, column, mask)
        self._column += 1
        return self._decoder.logits(hidden[:, 0])

    def drop_ended(self) -> bool:
        """Takes ended rows out once they are half of the batch; whether any row is left."""
        going = ~self.ended
        left = int(going.sum())
        if left == 0:
            return False
        if 2 * left <= len(self.alive):
            kept = going.nonzero().squeeze(1)
            self.alive, self.ended, self._padding = self.alive[kept], self.ended[kept], self._padding[kept]
            self._cache = [(keys[kept], values[kept]) for keys, values in self._cache]
        return True


def _choose(logits: Tensor, temperature: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """A token per row by the Gumbel-max trick, and its log-probability: (B,), (B,)."""
    logprobs = (logits / (temperature or 1.0)).log_softmax(-1)
    if temperature == 0:
        chosen = logprobs.argmax(-1)
    else:
        noise = torch.empty_like(logprobs).exponential_(generator=random)
        chosen = (logprobs - noise.log()).argmax(-1)
    return chosen, logprobs.gather(1, chosen[:, None]).squeeze(1)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, halves convention: (B, heads, T, D)."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def _folded_mask(mask: Tensor | None, group: int) -> Tensor | None:
    """(B, 1, T, S) for queries whose group was folded into the length axis: (B, 1, group x T, S)."""
    return None if mask is None else mask.repeat(1, 1, group, 1)


def _fused(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = (attention.q_proj, attention.k_proj, attention.v_proj)
    gate_up = (mlp.gate_proj, mlp.up_proj)
    return _Layer(
        qkv=torch.cat([part.weight for part in qkv]),
        qkv_bias=_joined([part.bias for part in qkv]),
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        gate_up=torch.cat([part.weight for part in gate_up]),
        gate_up_bias=_joined([part.bias for part in gate_up]),
        down=mlp.down_proj.weight,
        down_bias=mlp.down_proj.bias,
        norm_attention=layer.input_layernorm.weight,
        norm_mlp=layer.post_attention_layernorm.weight,
    )


def _joined(biases: list[Tensor | None]) -> Tensor | None:
    present = [bias for bias in biases if bias is not None]
    return torch.cat(present) if present else None
