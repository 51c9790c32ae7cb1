"""Adapters that are pushed into a running vLLM engine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final
from weakref import finalize

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.adapters import adapter_rank, save_adapters

ENGINE_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""vLLM's ``MaxLoRARanks``."""

_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder of our own is made in it


class AdapterPush:
    """Adapters that are pushed into a running vLLM engine: a few megabytes instead of a copy of the model.

    The engine loads the frozen base once, from the policy's source. Every push writes the adapters under a
    new id, because vLLM does not reload an adapter with a known id. One adapter is active at a time, since no
    sampling runs during a push. Written against vLLM 0.32 (``vllm.lora.request.LoRARequest``).

    Args:
        model: with adapters.

    Attributes:
        request: vLLM's ``LoRARequest`` of the last push; None before the first one.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._numbers = count(1)
        self._remove: Callable[[], object] = lambda: None
        self.request: Any = None

    def push(self) -> None:
        """Write the present adapters under a new id and remove the previous ones."""
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        folder = Path(
            tempfile.mkdtemp(prefix="sapo-adapters-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)
        )
        remove = finalize(self, shutil.rmtree, folder, ignore_errors=True)  # also when the process exits
        save_adapters(self._model, folder)
        self.request = LoRARequest(f"step-{number}", number, str(folder))
        self._remove()
        self._remove = remove


def engine_options(model: Any) -> dict[str, Any]:
    """Return the options of an engine that takes a model's adapters.

    Raises:
        SapoError: their rank is larger than the largest one of vLLM.
    """
    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": engine_rank(adapter_rank(model))}


def engine_rank(rank: int) -> int:
    """Return the smallest rank of vLLM's that holds adapters of this rank.

    Raises:
        SapoError: there is none.
    """
    fitting = [each for each in ENGINE_RANKS if each >= rank]
    if not fitting:
        raise SapoError(
            f"vLLM takes adapters up to rank {ENGINE_RANKS[-1]}, not {rank}",
            hint="lower learner.lora_rank, or use learner.backend = transformers",
            exit_code=ExitCode.CONFIG,
        )
    return fitting[0]
