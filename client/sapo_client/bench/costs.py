"""What a step of a benchmark costs, and the memory that it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROCESS: Final = Path("/proc/self")
_RESET_PEAK: Final = "5"
"""Written to ``clear_refs``, it sets the peak to what the process holds now; see proc(5)."""


@dataclass(slots=True)
class StepCost:
    """What one step costs; None where a figure does not apply.

    Attributes:
        step: in words.
        message_bytes: the message, the answer or the call data.
        page_bytes: all pages of the message together.
        gas: of the transaction.
        seconds: processor time.
        grown_mebibytes: peak of the process's memory above what it held before the step; None where the
            system does not tell.
    """

    step: str
    message_bytes: int | None = None
    page_bytes: int | None = None
    gas: int | None = None
    seconds: float | None = None
    grown_mebibytes: float | None = None


@contextmanager
def measured(step: str) -> Iterator[StepCost]:
    """Yield the cost of a step, whose time and memory are those of the block."""
    cost, before, began = StepCost(step), reset_peak(), time.process_time()
    yield cost
    cost.seconds, after = time.process_time() - began, peak_mebibytes()
    cost.grown_mebibytes = None if before is None or after is None else max(0.0, after - before)


def reset_peak() -> float | None:
    """Begin to measure the peak anew; return what the process holds, None where the system does not tell."""
    if not _PROCESS.exists():
        return None
    (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
    return peak_mebibytes()


def peak_mebibytes() -> float | None:
    """Return the most memory that this process held since the last reset, None where nothing tells it."""
    if not _PROCESS.exists():
        return None
    lines = (_PROCESS / "status").read_text().splitlines()
    kibibytes = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kibibytes) / 1024
