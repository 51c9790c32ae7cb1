"""All runs of an experiment: one worker process per core, with one compute thread each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.plan import Run
from sapo_client.lab.store import ExperimentStore

ENVIRONMENT: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Items are equal across processes only under this hash seed; more threads on one core are slower."""

Progress = Callable[[Run, int], None]
"""Takes a run and its number of finished rounds; called from several threads."""


def execute_runs(store: ExperimentStore, runs: Sequence[Run], jobs: int, progress: Progress) -> None:
    """Execute the unfinished runs, in order.

    Raises:
        SapoError: one of them fails; the results of finished runs are kept.
    """
    waiting = unfinished(store, runs, progress)
    jobs = min(jobs, waiting.qsize())
    processes: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(max(1, jobs)) as threads, _ended(processes, waiting):
        futures = [
            threads.submit(partial(_serve, store, waiting, number, processes, progress))
            for number in range(jobs)
        ]
        raise_first(futures)


def unfinished(store: ExperimentStore, runs: Sequence[Run], progress: Progress) -> SimpleQueue[Run]:
    """Return the unfinished runs in order; report the finished ones."""
    waiting: SimpleQueue[Run] = SimpleQueue()
    for run in runs:
        if store.is_whole(run):
            progress(run, run.plan.rounds)
        else:
            waiting.put(run)
    return waiting


def raise_first(futures: list[Future[None]]) -> None:
    """Wait for threads; raise the first error at once."""
    for future in wait(futures, return_when=FIRST_EXCEPTION).done:
        future.result()


@contextmanager
def _ended(processes: list[subprocess.Popen[str]], waiting: SimpleQueue[Run]) -> Iterator[None]:
    """Kill the workers on any exit, so that their threads end as well."""
    try:
        yield
    finally:
        while next_run(waiting) is not None:
            pass  # a worker that starts now finds no run
        for process in processes:
            process.kill()


def _serve(
    store: ExperimentStore,
    waiting: SimpleQueue[Run],
    number: int,
    processes: list[subprocess.Popen[str]],
    progress: Progress,
) -> None:
    """Drive one worker until no run is waiting."""
    log = store.root / f"worker-{number}.log"
    with log.open("w", encoding="utf-8") as errors, start_worker(store.root, errors) as process:
        processes.append(process)
        while (run := next_run(waiting)) is not None:
            _do(process, run, log, partial(progress, run))


def start_worker(root: Path, errors: Any) -> subprocess.Popen[str]:
    """Start a process that executes runs of an experiment; it logs to a file."""
    return subprocess.Popen(  # noqa: S603  # our own interpreter
        [sys.executable, "-m", "sapo_client.lab.worker", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )


def next_run(waiting: SimpleQueue[Run]) -> Run | None:
    """Return the next waiting run, or None if there is none."""
    try:
        return waiting.get_nowait()
    except Empty:
        return None


def _do(process: subprocess.Popen[str], run: Run, log: Path, progress: Callable[[int], None]) -> None:
    """Let a worker execute one run to its end."""
    for message in request_worker(process, {"arm": run.arm.name, "seed": run.seed}):
        if "error" in message:
            raise SapoError(message["error"], hint=message["hint"], exit_code=message["exit_code"])
        if "done" in message:
            return
        progress(message["round"])
    raise SapoError(
        f"the worker exited during {run.name}: {_last_line(log)}",
        hint=f"its log is {log}; the same command resumes the experiment",
        exit_code=ExitCode.BUG,
    )


def request_worker(process: subprocess.Popen[str], request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Send a request to the worker, and yield its replies until it exits."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return
    for line in process.stdout:
        yield json.loads(line)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"
