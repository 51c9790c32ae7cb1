"""Child processes that never outlive the testnet: logged, watched, and stopped in order."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_LOG = logging.getLogger(__name__)

_PR_SET_PDEATHSIG: Final = 1
"""From linux/prctl.h."""

_POLL_SECONDS: Final = 0.1

_LOG_TAIL_BYTES: Final = 2000

PORTS: Final = range(20_000, 32_768)
"""Range of ports to search: below those that Linux, macOS and Windows assign to a bind to port 0 or to a
connection. A node binds its port seconds after it was found; until then an assigned port could be in use."""

_KEPT_VARIABLES: Final = frozenset({"SAPO_LOCKS_DIR", "SAPO_KEYS_DIR"})
"""The user's other `SAPO_*` variables would override the settings of the testnet's nodes."""


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """One process of the testnet."""

    name: str
    argv: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id, which is its process group too."""
        return self.process.pid

    def exit_code(self) -> int | None:
        """Return its exit code; none while it runs."""
        return self.process.poll()

    def log_tail(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(OSError), self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            return stream.read().decode(errors="replace").strip()
        return ""


def free_ports(count: int) -> list[int]:
    """Return different free loopback ports outside the system's ephemeral range.

    Raises:
        OSError: fewer are free.
    """
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            if len(found) == count:
                break
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # the port is in use
                one.bind(("127.0.0.1", port))
                found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRNOTAVAIL, f"of {len(PORTS)} ports {len(found)} are free, not {count}")
    return found


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command line of a module under this interpreter."""
    return sys.executable, "-m", module, *arguments


def sapo(*arguments: str) -> tuple[str, ...]:
    """Return the command line of `sapo` as installed beside this interpreter."""
    script = Path(sys.executable).with_name("sapo")
    if script.exists():
        return str(script), *arguments
    return sys.executable, "-c", "from sapo_client.cli.app import main; main()", *arguments


def spawn(name: str, argv: Sequence[str], *, folder: Path, log: Path, tied: bool = True) -> ChildProcess:
    """Start a child in a process group of its own, so that Ctrl-C reaches it only through us, in order.

    Must be called from the main thread: the kernel ties the child to the thread that started it.

    Args:
        tied: the kernel sends it SIGTERM when this process dies, however it dies.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603  our own command lines
            argv,
            cwd=folder,
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_tie_to_parent() if tied else None,
        )
    _LOG.info("%s runs as process %d and logs to %s", name, process.pid, log)
    return ChildProcess(name, tuple(argv), log, process)


def stop(children: Iterable[ChildProcess], patience_seconds: float) -> None:
    """Stop children: SIGTERM to all of them, then SIGKILL to what is left of their process groups."""
    running = [child for child in children if child.exit_code() is None]
    for child in running:
        _signal(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_seconds
    for child in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
        kill_group(child.pid)
        _LOG.info("%s ended with code %s", child.name, child.process.wait())


def kill_group(pid: int) -> None:
    """Kill a process group, if it exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition became true in time; for files and processes, which cannot be awaited."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def started_at(pid: int) -> str | None:
    """Return the start time of a process as the kernel writes it; with the pid it identifies one process.

    None if there is no such process, or only a zombie of it.
    """
    if not Path("/proc/self/stat").exists():
        return _started_by_ps(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # field 3 and later: after the name, which may hold spaces
    return None if fields[0] == "Z" else fields[19]


def _started_by_ps(pid: int) -> str | None:
    """Return the start time by `ps`, where there is no /proc."""
    command = ("ps", "-o", "state=,lstart=", "-p", str(pid))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    state, _, start = done.stdout.strip().partition(" ")
    return None if not start or state.startswith("Z") else start.strip()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: text for name, text in own.items() if name in _KEPT_VARIABLES or not name.startswith("SAPO_")
    }
    # One thread each: the nodes share this machine's cores, and torch would take all of them for each.
    return kept | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _tie_to_parent() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    libc: Any = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: the child must not allocate
    parent = os.getpid()

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died in between
            os._exit(1)

    return tie
