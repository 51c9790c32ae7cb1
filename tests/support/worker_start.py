"""Processor time and memory of a checker worker that is ready: ``python tests/support/worker_start.py``."""

import os
import subprocess
from pathlib import Path
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.jail.launch import command, environment
from sapo_verification.jail.messages import HEADER_BYTES, READY, Setup, encode_setup, frame
from sapo_verification.suites.catalogue import FAMILIES, NAMES, NANO_DEFAULT, family

RUNS: Final = 3
EXTRA: Final = ("arc_agi", "zebra_puzzles")
SUITES: Final = {
    "nano, a small swarm's": tuple(family(name, "nano") for name in NANO_DEFAULT),
    "full, the paper's": tuple(family(name, "full") for name in FAMILIES),
    "full, all of the core": tuple(family(name, "full") for name in NAMES if name not in EXTRA),
}


def start(families: tuple[Family, ...]) -> tuple[float, int]:
    """Return the processor seconds of a worker until it is ready, and the MiB that it then occupies."""
    with subprocess.Popen(
        command("serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd="/"
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(frame(encode_setup(Setup(families, 10.0, ()))))
        worker.stdin.flush()
        assert worker.stdout.read(HEADER_BYTES + len(READY)).endswith(READY)
        process = Path(f"/proc/{worker.pid}")
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        pages = int((process / "statm").read_text().split()[1])
        worker.stdin.close()
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") // 2**20


if __name__ == "__main__":
    for name, families in SUITES.items():
        runs = [start(families) for _ in range(RUNS)]
        print(f"{name}: {min(seconds for seconds, _ in runs):.2f} s, {max(mib for _, mib in runs)} MiB")
