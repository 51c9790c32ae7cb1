"""A policy's weights as vLLM's trainer engine reads them; imported only where vLLM is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from vllm.distributed.weight_transfer import ParamMeta, WeightSource

from sapo_client.learner.vllm.weights import checkpoint_weights


class CheckpointSource(WeightSource):  # type: ignore[misc]  # vLLM is not there when types are checked
    """A model's weights under the names of its checkpoint, a tied head included.

    vLLM's own ``ModuleSource`` sends neither: a server would keep the old head of a model whose head is tied,
    and would not find joined experts.

    Args:
        model: of transformers, without adapters; its present weights are sent.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._metadata: list[ParamMeta] | None = None

    def metadata(self) -> list[ParamMeta]:
        """Return name, type and shape of every weight, in the order of iteration; they never change."""
        if self._metadata is None:
            self._metadata = [
                ParamMeta(name, weight.dtype, tuple(weight.shape))
                for name, weight in checkpoint_weights(self._model)
            ]
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the present weights."""
        return checkpoint_weights(self._model)
