"""Run every reproducer of this folder: one line each, its name and the fault that it found.

Exit status 0 if none found its fault.
"""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

import trio


def run_all() -> dict[str, str]:
    """Return the fault that each reproducer found, by the name of its file."""
    logging.disable()  # a fixed library logs warnings of what the reproducers do
    names = sorted(path.stem for path in Path(__file__).parent.glob("0*.py"))
    return {name: trio.run(importlib.import_module(name).reproduce) for name in names}


if __name__ == "__main__":
    found = run_all()
    for name, fault in found.items():
        print(f"{name}: {fault or '-'}")
    sys.exit(1 if any(found.values()) else 0)
