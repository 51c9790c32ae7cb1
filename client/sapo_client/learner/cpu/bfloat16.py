"""Whether this processor multiplies bfloat16 matrices in hardware.

PyTorch emulates them elsewhere, which made a pretraining step five times as long as one in float32.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")

_FEATURES: Final = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)
_MATRIX_PRODUCTS: Final = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Linux's names on x86-64 (the first two) and on ARM."""

_WITHOUT: Final = frozenset(
    {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}
)
"""oneDNN's names of limits below bfloat16's instructions."""


def has_bfloat16(cpuinfo: str | None = None) -> bool:
    """Whether every core has instructions for bfloat16 products, and oneDNN may use them.

    ``ONEDNN_MAX_CPU_ISA`` limits oneDNN's instructions.

    Args:
        cpuinfo: text of Linux's ``/proc/cpuinfo``; None reads it, and systems without it have none.
    """
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _WITHOUT:
        return False
    return _all_cores_have(_own_cpuinfo() if cpuinfo is None else cpuinfo)


@cache
def _own_cpuinfo() -> str:
    try:
        return CPUINFO.read_text("utf-8")
    except OSError:
        return ""


@cache
def _all_cores_have(cpuinfo: str) -> bool:
    cores = [_MATRIX_PRODUCTS & set(features.split()) for features in _FEATURES.findall(cpuinfo)]
    return bool(cores) and all(cores)
