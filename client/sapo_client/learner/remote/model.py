"""Stand-in for a model whose weights are on a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final

import torch
from torch import Tensor

from sapo_client.learner.cpu.packing import Row

Forward = Callable[[Sequence[Row]], list[Tensor]]
"""Returns the log-probabilities of each row's completion tokens, at temperature 1."""

CPU: Final = torch.device("cpu")


class RemoteModel(torch.nn.Module):
    """Stands for a model on a server where a transformers model stands otherwise; it has no parameters.

    Args:
        forward: computes log-probabilities on the server, without gradients.

    Attributes:
        config: without a context window, which the server checks.
        device: of the loss.
    """

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self._forward = forward
        self._given: list[Tensor] | None = None
        self.config = SimpleNamespace(max_position_embeddings=None)
        self.device = CPU

    @contextmanager
    def given(self, logprobs: list[Tensor]) -> Iterator[None]:
        """Return these differentiable log-probabilities for the rows of the next call, in their order."""
        self._given = logprobs
        try:
            yield
        finally:
            self._given = None

    def completion_logprobs(self, rows: Sequence[Row]) -> Tensor:
        """Return log-probabilities of the rows' completions, (rows, longest), zero beyond their ends."""
        found = self._forward(rows) if self._given is None else self._given
        return torch.nn.utils.rnn.pad_sequence(found, batch_first=True)
