"""Whether this processor multiplies bfloat16 matrices in hardware.

PyTorch emulates them elsewhere, which made a pretraining step five times as long as one in float32.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")

_FEATURES: Final = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)
_MATRIX_PRODUCTS: Final = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Linux's names on x86-64 (the first two) and on ARM."""


def has_bfloat16(cpuinfo: str | None = None) -> bool:
    """Whether every core of the processor has instructions for bfloat16 products.

    Args:
        cpuinfo: text of Linux's ``/proc/cpuinfo``; None reads it, and systems without it have none.
    """
    return _this_processor_has() if cpuinfo is None else _all_cores_have(cpuinfo)


@cache
def _this_processor_has() -> bool:
    try:
        return _all_cores_have(CPUINFO.read_text("utf-8"))
    except OSError:
        return False


def _all_cores_have(cpuinfo: str) -> bool:
    cores = [_MATRIX_PRODUCTS & set(features.split()) for features in _FEATURES.findall(cpuinfo)]
    return bool(cores) and all(cores)
