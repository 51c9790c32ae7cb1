"""Long run of a small swarm: memory, open files and disk usage of its nodes over time.

The nodes are ordinary `sapo join` processes with small batches and short epochs, so that growth per epoch is
visible within minutes. All figures are read from ``/proc`` and the data directories.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Final

from sapo_client import keystore
from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.tasks import NANO_TASKS
from sapo_client.paths import DataDir
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.testnet.processes import ChildProcess, free_ports, python, sapo, spawn, stop, wait_until
from sapo_client.units import KIB, MIB
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.manifest_file import manifest_to_json

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0

_LIMITS: Final = Limits(slots_per_epoch=100_000, max_completions=8, points_per_epoch=512)
"""Limits with more slots than a node can use, so that no node waits for the next epoch."""

_SETTINGS: Final = """
identity = {identity}
data_dir = {data}
[swarm]
manifest = {manifest}
listen = [{listen}]
bootstrap = [{bootstrap}]
listen_before_signing_seconds = 0.0
[learner]
model = {model}
seed = {seed}
local_groups = 2
external_groups = 2
completions = 4
max_new_tokens = 16
[canary]
every_rounds = 200
[observe]
events_max_bytes = {events}
events_keep = 2
log_max_bytes = 65536
log_keep = 2
"""


@dataclass(frozen=True, slots=True)
class EnduranceTerms:
    """Settings of a long run.

    Attributes:
        seconds: its length.
        epoch_seconds: length of an epoch by the nodes' clock.
        sample_seconds: interval between two samples.
        speed: seconds of the nodes' clock per real second.
    """

    nodes: int = 2
    seconds: float = 1800.0
    speed: float = 1.0
    epoch_seconds: int = 10
    sample_seconds: float = 10.0
    model: str = "bundled"
    events_bytes: int = MIB


@dataclass(frozen=True, slots=True)
class EnduranceSample:
    """One node at one moment.

    Attributes:
        seconds: time since the start.
        step: training step of its policy.
        accepted: number of others' rollouts that it has admitted.
        node_bytes: resident memory of its own process.
        learner_bytes: resident memory of its child processes, learner and checkers.
        files: number of open file descriptors of its own process.
        database_bytes: size of its databases with their logs.
        events_bytes: size of its event files and logs.
        folder_bytes: size of its data directory.
    """

    node: int
    seconds: float
    step: int
    accepted: int
    node_bytes: int
    learner_bytes: int
    files: int
    database_bytes: int
    events_bytes: int
    folder_bytes: int


@dataclass(frozen=True, slots=True)
class EnduranceTrend:
    """Trend of one node's figure in the second half of a run.

    Attributes:
        first: value at the start of that half.
        last: value at the end.
        per_hour: slope of the regression line over time.
        per_thousand_steps: slope of the regression line over steps.
    """

    figure: str
    node: int
    first: int
    last: int
    per_hour: float
    per_thousand_steps: float


def endure(
    folder: Path, terms: EnduranceTerms, note: Callable[[EnduranceSample], None]
) -> list[EnduranceSample]:
    """Run a swarm of nodes; return all samples.

    Args:
        note: called with each sample when it is taken.
    """
    samples: list[EnduranceSample] = []
    with _swarm(folder, terms) as nodes:
        started = time.monotonic()
        while (seconds := time.monotonic() - started) < terms.seconds:
            for number, (child, data) in enumerate(nodes):
                if child.exit_code() is not None:
                    raise RuntimeError(f"node {number} ended: {child.log_tail()}")
                samples.append(look(number, seconds, child.pid, data))
                note(samples[-1])
            time.sleep(terms.sample_seconds)
    return samples


def trends(samples: Sequence[EnduranceSample]) -> list[EnduranceTrend]:
    """Return the trend of every figure of every node over the second half of a run."""
    figures = ("node_bytes", "learner_bytes", "files", "database_bytes", "events_bytes", "folder_bytes")
    end = max(sample.seconds for sample in samples)
    late = [sample for sample in samples if sample.seconds >= end / 2]
    found = []
    for node in sorted({sample.node for sample in late}):
        mine = [sample for sample in late if sample.node == node]
        hours, steps = [each.seconds / 3600 for each in mine], [each.step / 1000 for each in mine]
        for figure in figures:
            values = [getattr(each, figure) for each in mine]
            found.append(
                EnduranceTrend(
                    figure=figure,
                    node=node,
                    first=values[0],
                    last=values[-1],
                    per_hour=linear_regression(hours, values).slope,
                    per_thousand_steps=linear_regression(steps, values).slope,
                )
            )
    return found


def look(node: int, seconds: float, pid: int, data: DataDir) -> EnduranceSample:
    """Return a sample of a running node."""
    status = _status(data)
    below = list(children(pid))
    sizes = {path: size for path in data.root.rglob("*") if (size := _size(path))}
    databases = sum(size for path, size in sizes.items() if ".sqlite" in path.name)
    logs = sum(size for path, size in sizes.items() if "events.jsonl" in path.name or ".log" in path.name)
    return EnduranceSample(
        node=node,
        seconds=round(seconds, 1),
        step=int(status.get("step", 0)),
        accepted=int(status.get("accepted", 0)),
        node_bytes=resident_bytes(pid),
        learner_bytes=sum(map(resident_bytes, below)),
        files=open_files(pid),
        database_bytes=databases,
        events_bytes=logs,
        folder_bytes=sum(sizes.values()),
    )


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * KIB
    return 0


def open_files(pid: int) -> int:
    """Return the number of open file descriptors of a process; 0 if it has ended."""
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


def children(pid: int) -> Iterator[int]:
    """Yield the ids of all descendants of a process."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from children(child)


def _size(path: Path) -> int:
    with suppress(OSError):  # rotated or replaced concurrently
        return path.stat().st_size if path.is_file() else 0
    return 0


def _status(data: DataDir) -> dict[str, int]:
    with suppress(OSError, ValueError):
        found: dict[str, int] = json.loads(data.status.read_text(encoding="utf-8"))
        return found
    return {}


@contextmanager
def _swarm(folder: Path, terms: EnduranceTerms) -> Iterator[list[tuple[ChildProcess, DataDir]]]:
    manifest = folder / "manifest.json"
    origin = int(time.time())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        manifest.write_text(manifest_to_json(_manifest(terms, origin)), encoding="utf-8")
    except OSError as error:
        raise SapoError(
            f"cannot write into {folder}: {error.strerror}",
            hint="name a new folder, or one that you may write into",
            exit_code=ExitCode.DATA,
        ) from error
    nodes: list[tuple[ChildProcess, DataDir]] = []
    first = ""
    try:
        for number in range(terms.nodes):
            home = folder / f"node-{number}"
            home.mkdir()
            identity = keystore.create(home / "identity.json", None)
            [port] = free_ports(1)
            listen = f"/ip4/127.0.0.1/tcp/{port}"
            facts = {
                "identity": str(identity.path),
                "data": str(home / "data"),
                "manifest": str(manifest),
                "listen": listen,
                "model": terms.model,
            }
            quoted = {name: json.dumps(text) for name, text in facts.items()}
            bootstrap = json.dumps(first) if first else ""
            settings = _SETTINGS.format(**quoted, bootstrap=bootstrap, seed=number, events=terms.events_bytes)
            (home / "config.toml").write_text(settings, encoding="utf-8")
            argv = _join(home / "config.toml", origin, terms.speed)
            child = spawn(f"node {number}", argv, folder=home, log=home / "log.txt")
            nodes.append((child, DataDir(home / "data")))
            first = first or f"{listen}/p2p/{peer_id_from_key(identity.node_id)}"
        for child, data in nodes:
            if not wait_until(lambda data=data: bool(_status(data).get("step")), _START_SECONDS):  # type: ignore[misc]
                raise RuntimeError(f"{child.name} does not train: {child.log_tail()}")
        yield nodes
    finally:
        stop([child for child, _ in nodes], _STOP_SECONDS)


def _join(config: Path, origin: int, speed: float) -> tuple[str, ...]:
    join = ("join", "--config", str(config))
    return (
        sapo(*join) if speed == 1 else python("sapo_client.bench.fast_clock", f"{origin}", f"{speed}", *join)
    )


def _manifest(terms: EnduranceTerms, origin: int) -> Manifest:
    return Manifest(
        name="endurance",
        genesis_seconds=origin,
        epoch_seconds=terms.epoch_seconds,
        suite=NANO_TASKS.suite(),
        limits=_LIMITS,
    )
