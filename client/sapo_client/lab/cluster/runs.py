"""Runs of an experiment on a Ray cluster: the same workers as for local runs, on other machines.

A machine of the cluster receives the run's files, executes the run with its own worker, and sends the changed
files back after each round. So the local folder is always the same as if the run were executed locally, and
the same command resumes a killed experiment, with or without a cluster. The machines need no shared disk.
``ray`` is an extra (``pip install sapo-swarm[ray]``), and every machine needs this release of
``sapo-swarm``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.campaign import (
    Progress,
    next_run,
    raise_first,
    request_worker,
    start_worker,
    unfinished,
)
from sapo_client.lab.cluster.folder import Changes, Files, FolderWatch, files_of
from sapo_client.lab.plan import Run
from sapo_client.lab.store import ExperimentStore, versions

LOCAL: Final = "local"
"""Address of a cluster that is started on this machine and ends with the command."""


def conduct_on_cluster(
    store: ExperimentStore, runs: Sequence[Run], progress: Progress, *, address: str, jobs: int | None
) -> None:
    """Execute the unfinished runs on a Ray cluster.

    Args:
        store: folder of the experiment on this machine.
        runs: all runs of the experiment.
        progress: called with a run and its number of finished rounds.
        address: address of the cluster, as in ``ray start``; ``local`` starts one on this machine.
        jobs: maximum number of concurrent runs; None: one per processor core of the cluster.

    Raises:
        SapoError: the cluster cannot be reached, or a run fails; results of finished runs are kept.
    """
    waiting = unfinished(store, runs, progress)
    ray = _joined(address)
    try:
        cores = int(ray.cluster_resources().get("CPU", 1))
        count = max(1, min(jobs or cores, waiting.qsize()))
        with ThreadPoolExecutor(count) as threads:
            raise_first([threads.submit(_serve, ray, store, waiting, progress) for _ in range(count)])
    finally:
        ray.shutdown()  # also ends the runs there


def execute(files: Files, folder: str, request: Mapping[str, Any], here: Mapping[str, str]) -> Iterator[Any]:
    """Execute a run on a machine of the cluster; yield a worker's replies, each with ``Changes``.

    Args:
        files: files of the experiment that the run needs.
        folder: folder of the run inside the experiment's.
        request: arm and seed.
        here: versions on the machine that started the experiment.
    """
    if versions() != here:
        different = sorted(name for name, value in versions().items() if here.get(name) != value)
        text = f"a machine of the cluster has another release of {', '.join(different)}"
        hint = "install the same releases on all machines"
        yield {"error": text, "hint": hint, "exit_code": int(ExitCode.CONFIG)}, None
        return
    with tempfile.TemporaryDirectory(prefix="sapo-lab-") as name:
        root = Path(name)
        Changes({}, files, ()).apply(root)
        watch = FolderWatch(root, root / folder)
        log = root / "worker.log"
        with log.open("w", encoding="utf-8") as errors, start_worker(root, errors) as process:
            try:
                for reply in request_worker(process, request):
                    yield reply, _changes(process, watch)
                    if "round" not in reply:
                        return
            finally:
                process.kill()
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "its log is empty"
        hint = f"{sys.executable} on that machine executes the runs; the same command resumes the experiment"
        yield {"error": f"a worker exited: {last}", "hint": hint, "exit_code": int(ExitCode.BUG)}, None


def _changes(process: subprocess.Popen[str], watch: FolderWatch) -> Changes:
    """Return the changes; the worker is stopped meanwhile, so that no checkpoint is partly removed."""
    process.send_signal(signal.SIGSTOP)
    try:
        return watch.changes()
    finally:
        process.send_signal(signal.SIGCONT)


def _serve(ray: Any, store: ExperimentStore, waiting: SimpleQueue[Run], progress: Progress) -> None:
    """Execute runs on the cluster, one after another, until none is waiting."""
    while (run := next_run(waiting)) is not None:
        _follow(ray, store, run, lambda rounds, run=run: progress(run, rounds))  # type: ignore[misc]


def _follow(ray: Any, store: ExperimentStore, run: Run, progress: Callable[[int], None]) -> None:
    """Execute one run on the cluster, and apply its changes to the local folder."""
    gpus = 1 if run.plan.device == "cuda" else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, num_returns="streaming", max_retries=0)(execute)
    request = {"arm": run.arm.name, "seed": run.seed}
    folder = store.folder(run).relative_to(store.root)
    try:
        for reference in task.remote(_sent(store, run), str(folder), request, versions()):
            reply, changes = ray.get(reference)
            if changes is not None:
                changes.apply(store.root)
            if "error" in reply:
                raise SapoError(reply["error"], hint=reply["hint"], exit_code=reply["exit_code"])
            if "round" in reply:
                progress(reply["round"])
    except ray.exceptions.RayError as error:
        raise SapoError(
            f"the cluster lost {run.name}: {str(error).splitlines()[0]}",
            hint="the same command resumes the experiment",
            exit_code=ExitCode.NETWORK,
        ) from error


def _joined(address: str) -> Any:
    """Return the module ``ray``, connected to a cluster.

    Raises:
        SapoError: it is not installed, or the cluster does not answer.
    """
    extras.require(extras.RAY, exit_code=ExitCode.CONFIG)
    import ray

    place = {} if address == LOCAL else {"address": address}
    try:
        ray.init(**place, include_dashboard=False if address == LOCAL else None, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SapoError(
            f"there is no Ray cluster at {address}: {str(error).splitlines()[0]}",
            hint="start one with `ray start --head`, or use --ray local",
            exit_code=ExitCode.NETWORK,
        ) from error
    return ray


def _sent(store: ExperimentStore, run: Run) -> dict[str, bytes]:
    """Return the files that a machine needs to execute or resume a run."""
    paths = [store.root / "experiment.json", store.root / "manifest.json", *files_of(store.folder(run))]
    return {str(path.relative_to(store.root)): path.read_bytes() for path in paths}
