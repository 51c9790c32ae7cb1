"""`python -m sapo_client.lab.worker EXPERIMENT`: execute the runs named on standard input, one by one.

Each input line is an arm and a seed. Each output line is a JSON object: a finished round, the end of the run,
or its error. The worker exits with its parent, at the latest at the end of a round, when its output pipe is
closed; the run's lock makes a new worker wait until then.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from sapo_client.errors import SapoError
from sapo_client.lab.arms import known_arms
from sapo_client.lab.plan import Run
from sapo_client.lab.simulate import simulate
from sapo_client.lab.store import ExperimentStore


def main() -> None:
    """Execute runs until the input ends."""
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # output of libraries goes to the log
    store = ExperimentStore(Path(sys.argv[1]))
    for line in sys.stdin:
        wanted = json.loads(line)
        _do(store, Run(store.plan(), known_arms()[wanted["arm"]], wanted["seed"]), replies)


def _do(store: ExperimentStore, run: Run, replies: TextIO) -> None:
    try:
        with _held(store.folder(run) / "lock"):
            if not store.is_whole(run):
                _simulate(store, run, replies)
    except SapoError as error:
        _say(replies, error=error.text, hint=error.hint, exit_code=error.exit_code)
    else:
        _say(replies, done=True)


def _simulate(store: ExperimentStore, run: Run, replies: TextIO) -> None:
    started = time.process_time()
    rows = simulate(run, store.manifest(), store.work(run), lambda number: _say(replies, round=number))
    store.finish(run, rows, time.process_time() - started)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a run; waits until a worker whose parent was killed has exited."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(replies: TextIO, **message: Any) -> None:
    replies.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()
