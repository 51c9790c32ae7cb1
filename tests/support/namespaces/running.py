"""Common code of the programs of this package: they need root, a new folder, and an orderly end."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from support.namespaces import kernel


def start_in(folder: Path) -> Path | None:
    """Create the folder of a run and return its full path; print why and return None if impossible."""
    reason = kernel.why_not()
    if reason is None and folder.exists():
        reason = f"{folder} exists; name a new folder"
    if reason is not None:
        print(f"cannot run: {reason}", file=sys.stderr)
        return None
    folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is taken down
    os.environ["SAPO_LOCKS_DIR"] = str(folder.resolve() / "locks")
    return folder.resolve()


def say(text: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
