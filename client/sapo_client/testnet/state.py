"""`testnet.json`: the processes of a testnet's directory, for `sapo testnet status` and `down`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from sapo_client.atomic_files import write_atomically
from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe.control_client import ControlClient
from sapo_client.observe.events import last_events
from sapo_client.testnet.plan import Layout
from sapo_client.testnet.processes import ChildProcess, kill_group, started_at, wait_until

Role = Literal["testnet", "chain", "node", "attacker", "page", "invitation"]

FORMAT: Final = "sapo/testnet/1"

PATIENCE_SECONDS: Final = 60.0
"""Seconds in which a node ends its round and saves its policy before it exits."""

_ORDER: Final[tuple[Role, ...]] = ("testnet", "page", "attacker", "invitation", "node", "chain")
"""Order of stopping: the chain last, since a draining node may still send transactions."""


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One process; pid and start time together identify it, even if the pid is reused."""

    name: str
    role: Role
    pid: int
    started: str | None
    argv: tuple[str, ...]
    log: str

    @property
    def runs(self) -> bool:
        """Whether this process, and not a later one with its pid, is alive."""
        return self.started is not None and started_at(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class TestnetState:
    """A testnet as the state file in its directory describes it."""

    rpc_url: str
    entries: tuple[ProcessEntry, ...]

    def of(self, role: Role) -> tuple[ProcessEntry, ...]:
        """Return the entries of one role."""
        return tuple(entry for entry in self.entries if entry.role == role)


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """State of one process, for display."""

    name: str
    role: Role
    state: str
    step: int | None
    command: str


def process_status(entry: ProcessEntry, layout: Layout) -> ProcessStatus:
    """Return the state of a process; a node that was started again by hand counts as the same node."""
    node = layout.node(entry.name) if entry.role == "node" else None
    steps = last_events(node.data.events, "step", 1) if node else []
    step = steps[0]["step"] if steps else None
    if entry.runs:
        shown = f"pid {entry.pid}"
    else:
        shown = "started again" if node and is_up(node.data.root) else "down"
    return ProcessStatus(
        name=entry.name,
        role=entry.role,
        state=shown,
        step=step if isinstance(step, int) else None,
        command=" ".join(entry.argv),
    )


def entry_of(child: ChildProcess, role: Role) -> ProcessEntry:
    """Return the entry of a child process."""
    return ProcessEntry(
        name=child.name,
        role=role,
        pid=child.pid,
        started=started_at(child.pid),
        argv=child.argv,
        log=str(child.log),
    )


def own_entry() -> ProcessEntry:
    """Return the entry of this process, which drives the testnet."""
    return ProcessEntry(
        name="testnet", role="testnet", pid=os.getpid(), started=started_at(os.getpid()), argv=(), log=""
    )


def keep(layout: Layout, state: TestnetState) -> None:
    """Write the state file."""
    document = {"format": FORMAT, "rpc_url": state.rpc_url, "processes": [asdict(e) for e in state.entries]}
    write_atomically(layout.state, json.dumps(document, indent=2) + "\n")


def read(layout: Layout) -> TestnetState:
    """Read the state file of a directory.

    Raises:
        SapoError: it holds no testnet.
    """
    try:
        document = json.loads(layout.state.read_text(encoding="utf-8"))
        entries = tuple(ProcessEntry(**{**e, "argv": tuple(e["argv"])}) for e in document["processes"])
        return TestnetState(document["rpc_url"], entries)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SapoError(
            f"{layout.root} holds no testnet",
            hint="name its directory with --data-dir; `sapo testnet up --keep --data-dir DIR` starts one",
            exit_code=ExitCode.DATA,
        ) from error


def end(layout: Layout, state: TestnetState) -> list[str]:
    """Stop all processes of a testnet, and return the names of those that were running."""
    ended = []
    for role in _ORDER:
        running = [entry for entry in state.of(role) if entry.runs]
        _end_all(running)
        ended += [entry.name for entry in running]
        if role == "node":
            ended += _end_restarted(layout, state.of("node"))
    return ended


def _end_all(entries: Iterable[ProcessEntry]) -> None:
    entries = list(entries)
    for entry in entries:
        os.kill(entry.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_SECONDS
    for entry in entries:
        wait_until(lambda entry=entry: not entry.runs, max(0.0, deadline - time.monotonic()))  # type: ignore[misc]
        if entry.role != "testnet":  # the driver's group is the user's shell
            kill_group(entry.pid)


def _end_restarted(layout: Layout, nodes: Iterable[ProcessEntry]) -> list[str]:
    """Stop nodes that were started again by hand: their control API answers."""
    ended = [node.name for node in nodes if stop_by_control(layout.node(node.name).data.root)]
    wait_until(lambda: not any(is_up(layout.node(name).data.root) for name in ended), PATIENCE_SECONDS)
    return ended


def is_up(data_dir: Path) -> bool:
    """Whether a node answers in a data directory."""
    from sapo_client.paths import DataDir

    return ControlClient(DataDir(data_dir)).answers()


def stop_by_control(data_dir: Path) -> bool:
    """Whether a node answered there and was asked to stop."""
    from sapo_client.paths import DataDir

    try:
        ControlClient(DataDir(data_dir)).stop(finish=False)
    except SapoError as error:
        if error.exit_code != ExitCode.NETWORK:
            raise
        return False
    return True
