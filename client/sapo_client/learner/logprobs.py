"""Log-probabilities of completions under a model, by one forward pass without a key-value cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sapo_client.learner.adapters import base_of
from sapo_client.learner.cpu.fast_forward import Row, fast_logprobs, is_fast

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def completion_logprobs(model: PreTrainedModel, rows: Sequence[Row], pad: int, temperature: float) -> Tensor:
    """Log-probability of every completion token under the tempered policy; differentiable.

    Rows are padded on the right. Attention is causal, so padding reaches no real position, and neither a mask
    nor position ids are needed on any architecture.

    Returns:
        (rows, longest completion), float32; zero beyond a completion's end.
    """
    if is_fast(model):
        return fast_logprobs(model, rows, pad, temperature)
    tokens, places, mask = _arranged(rows, pad, model.device)
    first, last = int(places.min()), int(places.max()) + 1
    # a row's last token predicts nothing that is asked for
    logits = _logits(model, tokens[:, :last], torch.arange(first, last, device=model.device)).float()
    if temperature != 1.0:
        logits = logits / temperature
    following = tokens[:, first + 1 : last + 1]  # what each kept position predicts, (rows, kept)
    values = -cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="none").view_as(following)
    return torch.where(mask, values.gather(1, places - first), 0.0)


def _arranged(rows: Sequence[Row], pad: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (rows, width); positions that predict completions, and which are real: (rows, longest)."""
    width = max(len(prompt) + len(completion) for prompt, completion in rows)
    tokens = torch.full((len(rows), width), pad)
    for index, (prompt, completion) in enumerate(rows):
        tokens[index, : len(prompt) + len(completion)] = torch.tensor([*prompt, *completion])
    starts = torch.tensor([len(prompt) - 1 for prompt, _ in rows])[:, None]
    lengths = torch.tensor([len(completion) for _, completion in rows])[:, None]
    steps = torch.arange(int(lengths.max()))[None, :]
    places = starts + torch.minimum(steps, lengths - 1)  # beyond the end: the last real place again
    return tokens.to(device), places.to(device), (steps < lengths).to(device)


def _logits(model: PreTrainedModel, tokens: Tensor, kept: Tensor) -> Tensor:
    """Logits at the kept positions; models that cannot leave the others out compute them all."""
    if "logits_to_keep" in inspect.signature(base_of(model).forward).parameters:
        result: Tensor = model(input_ids=tokens, use_cache=False, logits_to_keep=kept).logits
        return result
    everything: Tensor = model(input_ids=tokens, use_cache=False).logits
    return everything[:, kept]
