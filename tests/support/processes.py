"""Processes of a machine with Linux's ``/proc``."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
