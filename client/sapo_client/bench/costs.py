"""Time, size, gas and peak memory of a benchmark's steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROCESS: Final = Path("/proc/self")
_RESET_PEAK: Final = "5"
"""Value that, written to ``clear_refs``, resets the peak to the process's current memory; see proc(5)."""


@dataclass(slots=True)
class StepCost:
    """Cost of one step; None for a figure that does not apply.

    Attributes:
        step: description of the step.
        message_bytes: size of the message, the answer or the call data.
        page_bytes: total size of the message's pages.
        gas: gas of the transaction.
        seconds: processor time.
        grown_mebibytes: peak of the process's memory minus its memory before the step; None if the system
            does not report it.
    """

    step: str
    message_bytes: int | None = None
    page_bytes: int | None = None
    gas: int | None = None
    seconds: float | None = None
    grown_mebibytes: float | None = None


@contextmanager
def measured(step: str) -> Iterator[StepCost]:
    """Yield the cost of a step; time and memory of the block are added at its end."""
    cost, before, began = StepCost(step), reset_peak(), time.process_time()
    yield cost
    cost.seconds, after = time.process_time() - began, peak_mebibytes()
    cost.grown_mebibytes = None if before is None or after is None else max(0.0, after - before)


def reset_peak() -> float | None:
    """Reset the peak; return the process's current memory, None if the system does not report it."""
    if not _PROCESS.exists():
        return None
    (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
    return peak_mebibytes()


def peak_mebibytes() -> float | None:
    """Return this process's peak memory since the last reset; None if the system does not report it."""
    if not _PROCESS.exists():
        return None
    lines = (_PROCESS / "status").read_text().splitlines()
    kibibytes = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kibibytes) / 1024
