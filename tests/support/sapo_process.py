"""The real `sapo` command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SAPO = os.environ.get("SAPO_COMMAND", str(Path(sys.executable).with_name("sapo")))
"""The installed command, or the program that ``SAPO_COMMAND`` names: one that runs another tree."""

TIMEOUT_SECONDS = 120  # a hang is a failure; the slowest command in these tests takes seconds

Run = Callable[..., subprocess.CompletedProcess[str]]


def home_in(folder: Path) -> dict[str, str]:
    """Return the environment of a user whose home is in a folder, and has no files yet."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return keep | {"HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}


def runner(home: Mapping[str, str], folder: Path) -> Run:
    """Return a function that runs `sapo` in a folder, without a terminal, to its end."""

    def run(*arguments: object, input: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SAPO, *map(str, arguments)],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={**home, **environment},
            timeout=TIMEOUT_SECONDS,
        )

    return run


@contextmanager
def running(command: Sequence[str], home: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command; kill it in the end, or when it hangs."""
    with subprocess.Popen(
        command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        overdue = threading.Timer(TIMEOUT_SECONDS, process.kill)
        overdue.start()
        try:
            yield process
        finally:
            overdue.cancel()
            process.kill()


@contextmanager
def trained(
    words: Sequence[str], home: Mapping[str, str], folder: Path, rounds: int
) -> Iterator[subprocess.Popen[str]]:
    """Run `sapo` with these words; yield it once it has shown a number of rounds, and kill it in the end."""
    process = subprocess.Popen(
        [SAPO, *words], cwd=folder, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    overdue = threading.Timer(2 * TIMEOUT_SECONDS, process.kill)
    overdue.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = (line for line in process.stdout if line.startswith("round "))
        shown = [line for _, line in zip(range(rounds), lines, strict=False)]
        assert len(shown) == rounds, process.stderr.read()
        yield process
    finally:
        overdue.cancel()
        process.kill()
        process.communicate()
