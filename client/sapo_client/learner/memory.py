"""How much memory a training step takes, measured before the first one, and what to do if it was too little.

What a backward pass needs is what the forward pass keeps for it. Autograd says what that is, so three short
rows through the real model tell it for every architecture: per row of T tokens a T + b T^2 bytes, the second
part being attention scores where attention is computed eagerly, and c bytes however small the batch is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.errors import ExitCode, SapoError

GIB: Final = 2**30

PROBE_WIDTHS: Final = (16, 32, 48)
"""Equally far apart, and too short for places to be rounded up."""

ACTIVATION_MARGIN: Final = 1.5
"""Gradients of activations live for a moment beside what is kept, and allocators round up."""

USABLE_SHARE: Final = 0.8
"""Of what is free now; others want some of it later."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of settings in glibc's malloc.h."""

_BYTES_PER_TRAINED: Final = 12
"""A float32 gradient and AdamW's two moments."""


@dataclass(frozen=True, slots=True)
class RowCost:
    """Bytes that one row takes in a forward and backward pass: linear T + quadratic T^2."""

    linear: float
    quadratic: float

    def of(self, width: int) -> float:
        """Bytes of a row of so many tokens."""
        return self.linear * width + self.quadratic * width * width

    def tokens_within(self, budget_bytes: float, width: int) -> int:
        """The most tokens of a micro-batch whose widest row has so many; one row at least."""
        return max(width, int(budget_bytes / self.of(width)) * width)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What there is and what it is for.

    Attributes:
        budget_bytes: free for rows' activations once all else has its place.
        row: what a row takes.
        batch_bytes: what a micro-batch takes beside its rows; out of the budget already.
    """

    budget_bytes: float
    row: RowCost
    batch_bytes: float = 0.0


def plan_memory(kept: Callable[[int], float], *, trained: int, available: float, copies: bool) -> MemoryPlan:
    """The plan for a model that is loaded.

    Args:
        kept: bytes that autograd keeps for one row of so many tokens.
        trained: how many numbers are trained.
        available: bytes that are free beside the model.
        copies: a snapshot is taken before each step.

    Raises:
        SapoError: gradients, moments and one short row do not fit.
    """
    row, batch = _fitted(kept)
    fixed = trained * (2 if copies else 1) * _BYTES_PER_TRAINED + batch
    budget = USABLE_SHARE * available - fixed
    if budget < row.of(PROBE_WIDTHS[-1]):
        needed = (fixed + row.of(PROBE_WIDTHS[-1])) / USABLE_SHARE
        raise SapoError(
            f"training takes {needed / GIB:.2f} GiB beside the model, and {available / GIB:.2f} are free",
            hint="set learner.lora_rank = 16 and learner.gradient_checkpointing = true, or a smaller model",
            exit_code=ExitCode.CONFIG,
        )
    return MemoryPlan(budget, row, batch)


def available_bytes(device: torch.device) -> float:
    """Memory that is free on a device now, the limits of a container included."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    free = _line_of(Path("/proc/meminfo"), "MemAvailable:")
    limits = Path("/sys/fs/cgroup")
    limit, used = (_number(limits / name) for name in ("memory.max", "memory.current"))
    bounds = [free, limit - used if limit is not None and used is not None else None]
    return min((bound for bound in bounds if bound is not None), default=4.0 * GIB)


def keep_freed_memory() -> None:
    """Has what one step frees serve the next one, where the C library is glibc.

    By default it gives large pieces back to the kernel at once and takes them again zeroed, page by page: a
    tenth of a small model's training step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_M_MMAP_THRESHOLD, GIB)


def give_back_freed_memory() -> None:
    """The reverse, once: others than malloc need some of it."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an allocation failed, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def halved(tokens: int, widest: int) -> int:
    """Half of a micro-batch, at least one row.

    Raises:
        SapoError: it was one row already.
    """
    if tokens <= widest:
        raise SapoError(
            f"one row of {widest} tokens does not fit into memory",
            hint="lower learner.max_new_tokens, or set learner.gradient_checkpointing = true",
            exit_code=ExitCode.CONFIG,
        )
    return max(widest, tokens // 2)


def kept_bytes(compute: Callable[[], Tensor], parameters: list[Tensor]) -> int:
    """Bytes that autograd keeps for the backward pass of a computation, parameters left out."""
    known = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    sizes: dict[int, int] = {}
    held: list[Any] = []  # a freed storage's address may be taken by the next one

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known and tensor.device.type != "meta":
            sizes[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = compute()
    del result
    return sum(sizes.values())


def _fitted(kept: Callable[[int], float]) -> tuple[RowCost, float]:
    """The cost through three measured widths: of a row, and of a batch however small."""
    short, middle, wide = PROBE_WIDTHS
    at_short, at_middle, at_wide = (ACTIVATION_MARGIN * kept(width) for width in PROBE_WIDTHS)
    bend = at_wide - 2 * at_middle + at_short
    quadratic = max(0.0, bend / (2 * (wide - middle) ** 2))
    linear = (at_wide - at_short) / (wide - short) - quadratic * (wide + short)
    row = RowCost(max(1.0, linear), quadratic)
    return row, max(0.0, at_wide - row.of(wide))


def _line_of(path: Path, name: str) -> float | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or "max"
        return None
