"""A policy's weights as vLLM's trainer engine reads them; imported only where vLLM is installed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
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

    @cached_property
    def _parameters(self) -> list[ParamMeta]:
        """Name, type and shape of every weight, in the order of iteration; they never change."""
        return [ParamMeta(name, weight.dtype, tuple(weight.shape)) for name, weight in self._present()]

    def _present(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the present weights."""
        return checkpoint_weights(self._model)

    if hasattr(WeightSource, "iter_full"):  # vLLM 0.33 and later

        @cached_property
        def metadata(self) -> list[ParamMeta]:
            """Names, types and shapes of the weights that ``iter_full`` yields."""
            return self._parameters

        def iter_full(self) -> Iterator[tuple[str, Tensor]]:
            """Yield the present weights."""
            return self._present()

    else:

        def metadata(self) -> list[ParamMeta]:
            """Return names, types and shapes of the weights that iteration yields."""
            return self._parameters

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            """Yield the present weights."""
            return self._present()
