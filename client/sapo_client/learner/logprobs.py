"""Log-probabilities of completions under a model, by one forward pass without a key-value cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sapo_client.learner.adapters import base_model
from sapo_client.learner.cpu.fast_forward import fast_logprobs, is_fast
from sapo_client.learner.cpu.kept_states import KeptRow
from sapo_client.learner.cpu.packing import Row
from sapo_client.learner.losses import chunked_head
from sapo_client.learner.losses.plain_head import is_plain_head
from sapo_client.learner.remote.model import RemoteModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def completion_logprobs(
    model: PreTrainedModel,
    rows: Sequence[Row],
    pad: int,
    temperature: float,
    *,
    states: Sequence[KeptRow | None] | None = None,
) -> Tensor:
    """Return the log-probability of every completion token under the tempered policy; differentiable.

    Rows are padded on the right. Attention is causal, so padding affects no real position, and no
    architecture needs a mask or position ids.

    Args:
        model: a causal language model of transformers, with or without adapters.
        rows: prompt and completion of each row, as token ids.
        pad: id that pads rows.
        temperature: the logits are divided by it.
        states: what sampling computed of each row, if it was kept.

    Returns:
        (rows, longest completion), float32; zero beyond a completion's end.
    """
    if isinstance(model, RemoteModel):
        return model.completion_logprobs(rows)  # temperature 1 is the only one there
    if is_fast(model):
        return fast_logprobs(model, rows, pad, temperature, states=states)
    tokens, positions, mask = _padded(rows, pad, model.device)
    if (head := _plain_head(model)) is not None:
        return _chunked(model, head, tokens, positions, mask=mask, temperature=temperature)
    # only these positions predict completion tokens; a row's last token predicts none
    first, last = int(positions.min()), int(positions.max()) + 1
    logits = _logits(model, tokens[:, :last], torch.arange(first, last, device=model.device)).float()
    if temperature != 1.0:
        logits = logits / temperature
    targets = tokens[:, first + 1 : last + 1]  # the token that each kept position predicts, (rows, kept)
    values = -cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    return torch.where(mask, values.gather(1, positions - first), 0.0)


def _plain_head(model: PreTrainedModel) -> Any | None:
    """Return the model's head if its logits are a linear layer's, nothing more, of a large vocabulary."""
    base = base_model(model)
    head = base.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear) or len(head.weight) < chunked_head.MIN_VOCABULARY:
        return None
    if hasattr(head.weight, "full_tensor"):  # sharded: gathered only within the whole model's forward pass
        return None
    return head if is_plain_head(base, head) else None


def _chunked(
    model: PreTrainedModel,
    head: Any,
    tokens: Tensor,
    positions: Tensor,
    *,
    mask: Tensor,
    temperature: float,
) -> Tensor:
    """Return log-probabilities from hidden states, so that all logits never exist at once."""
    decoder = base_model(model).base_model
    hidden = decoder(input_ids=tokens[:, : int(positions.max()) + 1], use_cache=False).last_hidden_state
    rows = torch.arange(len(tokens), device=tokens.device)[:, None].expand_as(positions)[mask]
    predicting = positions[mask]
    values = chunked_head.target_logprobs(
        hidden[rows, predicting],
        head.weight,
        tokens[rows, predicting + 1],
        bias=head.bias,
        temperature=temperature,
    )
    return torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, values)


def _padded(rows: Sequence[Row], pad: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return token ids (rows, width), positions that predict completions, and a mask (rows, longest)."""
    width = max(len(prompt) + len(completion) for prompt, completion in rows)
    tokens = torch.full((len(rows), width), pad)
    for index, (prompt, completion) in enumerate(rows):
        tokens[index, : len(prompt) + len(completion)] = torch.tensor([*prompt, *completion])
    starts = torch.tensor([len(prompt) - 1 for prompt, _ in rows])[:, None]
    lengths = torch.tensor([len(completion) for _, completion in rows])[:, None]
    steps = torch.arange(int(lengths.max()))[None, :]
    positions = starts + torch.minimum(steps, lengths - 1)  # beyond the end the last real one is repeated
    return tokens.to(device), positions.to(device), (steps < lengths).to(device)


def _logits(model: PreTrainedModel, tokens: Tensor, kept: Tensor) -> Tensor:
    """Return logits (rows, kept, V) at the kept positions; some models can only compute all positions."""
    if "logits_to_keep" in inspect.signature(base_model(model).forward).parameters:
        result: Tensor = model(input_ids=tokens, use_cache=False, logits_to_keep=kept).logits
        return result
    logits: Tensor = model(input_ids=tokens, use_cache=False).logits
    return logits[:, kept]
