"""Memory of a training step: measurement before the first step, and handling of too little memory.

A backward pass needs the tensors that the forward pass saves for it. Autograd reports them, so three short
rows through the real model measure their size for every architecture: a T + b T^2 bytes per row of T tokens,
where the second term is attention scores (eager attention keeps them), and c bytes however small the batch
is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.ranks.shard import local_tensor

GIB: Final = 2**30

PROBE_WIDTHS: Final = (16, 32, 48)
"""Tokens of the measured rows: evenly spaced, and too few for the fast path to round up to full blocks."""

ACTIVATION_MARGIN: Final = 1.5
"""Factor for gradients of activations, which exist temporarily, and for rounding by allocators."""

USABLE_SHARE: Final = 0.8
"""Share of the free memory that is used; other processes may need some of it later."""

_VALUE_BYTES: Final = 4
"""Parameters, gradients and moments are float32."""


@dataclass(frozen=True, slots=True)
class RowCost:
    """Bytes that a row of T tokens takes in a forward and backward pass: linear T + quadratic T^2."""

    linear: float
    quadratic: float

    def of(self, width: int) -> float:
        """Return the bytes of a row of ``width`` tokens."""
        return self.linear * width + self.quadratic * width * width

    def tokens_within(self, budget_bytes: float, width: int) -> int:
        """Return the most tokens of a micro-batch with a longest row of ``width``; at least that row."""
        return max(width, int(budget_bytes / self.of(width)) * width)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory for activations.

    Attributes:
        budget_bytes: free for rows' activations, all else subtracted.
        row: cost of a row.
        batch_bytes: cost of a micro-batch beside its rows; already subtracted from the budget.
    """

    budget_bytes: float
    row: RowCost
    batch_bytes: float = 0.0


def plan_memory(
    saved_bytes: Callable[[int], float],
    *,
    trained: int,
    available: float,
    snapshot: bool,
    optimizers: int = 1,
    moment_bytes: float = 2 * _VALUE_BYTES,
) -> MemoryPlan:
    """Return the plan for a loaded model.

    Args:
        saved_bytes: bytes that autograd saves for one row of the given number of tokens.
        trained: number of trained parameters.
        available: bytes that are free beside the model.
        snapshot: whether parameters and the first optimizer's state are copied before each step.
        optimizers: number of AdamWs, each with two moments of every trained parameter.
        moment_bytes: of these two.

    Raises:
        SapoError: gradients, moments and one short row do not fit.
    """
    row, batch = fit_row_cost(lambda width: ACTIVATION_MARGIN * saved_bytes(width))
    # gradients and moments; a snapshot holds the parameters and the first optimizer's moments once more
    moments = moment_bytes * (optimizers + bool(snapshot))
    fixed = trained * ((1 + bool(snapshot)) * _VALUE_BYTES + moments) + batch
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
    """Return the bytes that are free on a device now, within the limits of a container (cgroup v2)."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    free = _meminfo_bytes(Path("/proc/meminfo"), "MemAvailable:")
    cgroup = Path("/sys/fs/cgroup")
    limit, used = (_number(cgroup / name) for name in ("memory.max", "memory.current"))
    bounds = [free, limit - used if limit is not None and used is not None else None]
    return min((bound for bound in bounds if bound is not None), default=4.0 * GIB)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an allocation failed, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def halved(tokens: int, widest: int) -> int:
    """Return half of a micro-batch's tokens, but at least its longest row.

    Raises:
        SapoError: the micro-batch is a single row already.
    """
    if tokens <= widest:
        raise SapoError(
            f"one row of {widest} tokens does not fit into memory",
            hint="lower learner.max_new_tokens, or set learner.gradient_checkpointing = true",
            exit_code=ExitCode.CONFIG,
        )
    return max(widest, tokens // 2)


def fit_row_cost(saved_bytes: Callable[[int], float]) -> tuple[RowCost, float]:
    """Fit a parabola through three measured widths: the cost of a row, and its constant, of a micro-batch."""
    short, middle, wide = PROBE_WIDTHS
    at_short, at_middle, at_wide = (saved_bytes(width) for width in PROBE_WIDTHS)
    second_difference = at_wide - 2 * at_middle + at_short
    quadratic = max(0.0, second_difference / (2 * (wide - middle) ** 2))
    linear = (at_wide - at_short) / (wide - short) - quadratic * (wide + short)
    row = RowCost(max(1.0, linear), quadratic)
    return row, max(0.0, at_wide - row.of(wide))


def saved_tensor_bytes(compute: Callable[[], Tensor], parameters: list[Tensor]) -> int:
    """Return the bytes that autograd saves for the backward pass of a computation, without the parameters.

    Parameters that are gathered from shards for the computation have storages of their own; they are freed
    again after each layer, and are recognised by their class.
    """
    known = {local_tensor(parameter).untyped_storage().data_ptr() for parameter in parameters}
    sizes: dict[int, int] = {}
    held: list[Any] = []  # keeps storages alive, because a freed one's address may be used again

    def record(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        is_parameter = isinstance(tensor if tensor._base is None else tensor._base, torch.nn.Parameter)
        if not is_parameter and storage.data_ptr() not in known and tensor.device.type != "meta":
            sizes[storage.data_ptr()] = storage.nbytes()
            held.append(tensor.detach())
        # an output that the graph holds itself would keep the graph alive in a reference cycle
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        result = compute()
    del result
    return sum(sizes.values())


def _meminfo_bytes(path: Path, name: str) -> float | None:
    """Return the value of a line of /proc/meminfo, which counts in KiB; None without such a file or line."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def _number(path: Path) -> float | None:
    """Return the number that a file holds; None for no file or no number."""
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or "max"
        return None
