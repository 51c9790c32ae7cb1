"""The sandbox: layers of isolation that a checker's child process puts around itself and cannot remove.

They are independent, so that where one is missing (an old kernel, another system) the others remain:

1. nothing inherited but the two pipes;  2. no privileges, and another user if started by root;  3. limits on
memory, processes, files, file size, CPU;  4. Landlock: no file by path;  5. an audit hook: no Python function
that opens, connects or runs;  6. seccomp: no system calls except for memory and the pipes.

What runs in the child is left out of the coverage figures: it can write no file to report them.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_verification.jail import landlock as jail_landlock
from sapo_verification.jail import seccomp as jail_seccomp

MEMORY_BYTES: Final = 256 * 1024 * 1024
"""In addition to what the worker's image already maps: the heaviest honest check needs under 10 MiB."""

WORKER_BYTES: Final = 1024 * 1024 * 1024
"""Of data in a worker. It derives items before its first child exists, with settings from the manifest of a
stranger, which can ask for items of any size. A suite of the whole catalogue takes 181 MiB."""

CPU_SECONDS: Final = 600
"""Processor time of a child, for the case that its worker has ended and cannot enforce the deadline."""

NOBODY: Final = 65534
"""The user id that owns no files on most systems."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_MAX_FILES: Final = 4096
"""Descriptors above this are not inherited: the worker starts with three."""

_DENIED_EVENTS: Final = (
    *("open", "import", "socket.", "subprocess.", "os.", "shutil.", "ctypes.", "pty.", "glob.", "signal."),
    *("fcntl.", "mmap.", "syslog.", "tempfile.", "pathlib.", "sqlite3.", "urllib.", "ssl.", "webbrowser."),
)


@dataclass(frozen=True, slots=True)
class Restriction:
    """One restriction and whether it works on this machine; the detail states why not, or its effect."""

    name: str
    works: bool
    detail: str


def limit_worker() -> None:
    """Limit the data of the calling process, a worker, to ``WORKER_BYTES``; its children may lower the limit.

    Beyond it an allocation raises ``MemoryError``. Only Linux counts all of it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = WORKER_BYTES if hard == resource.RLIM_INFINITY else min(WORKER_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


def enter(descriptors: int, parent: int) -> tuple[Restriction, ...]:  # pragma: no cover - in the child
    """Put every layer that this machine supports around the calling process.

    Args:
        descriptors: how many stay open, counted from 0; the process never gets another.
        parent: the worker's process id; if the worker has ended already, this process ends.
    """
    mapped_bytes = _mapped_bytes()
    os.closerange(descriptors, _MAX_FILES)
    restrictions = (
        Restriction("descriptors", True, "nothing inherited but two pipes"),
        _apply("privileges", _drop_privileges, "none, and none can be gained"),
        _apply("lifetime", lambda: _tie_to(parent), "ends with its worker"),
        _apply("landlock", jail_landlock.install, "no file by any path"),
        _apply("limits", lambda: _limit(descriptors, mapped_bytes), "memory, processes, files, CPU"),
        _apply("seccomp", jail_seccomp.install, "memory and pipes are the only system calls left"),
        Restriction("audit hook", True, "no Python call that opens, connects or runs"),
    )
    sys.addaudithook(_refuse)
    return restrictions


def _apply(
    name: str, install: Callable[[], str | None], effect: str
) -> Restriction:  # pragma: no cover - in the child
    try:
        problem = install()
    except (OSError, ValueError) as error:
        problem = str(error)
    return Restriction(name, problem is None, effect if problem is None else problem)


def _drop_privileges() -> str | None:  # pragma: no cover - in the child
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return _prctl(_PR_SET_NO_NEW_PRIVS, 1) or _prctl(_PR_SET_DUMPABLE, 0)


def _tie_to(parent: int) -> str | None:  # pragma: no cover - in the child
    """Let the kernel kill this process when its parent ends; a change of user afterwards would undo it."""
    problem = _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    return problem


def _limit(descriptors: int, mapped_bytes: int) -> str | None:  # pragma: no cover - in the child
    limits = {
        "RLIMIT_AS": mapped_bytes + MEMORY_BYTES,
        "RLIMIT_CPU": CPU_SECONDS,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_NOFILE": descriptors,
    }
    for name, most in limits.items():
        if hasattr(resource, name):
            resource.setrlimit(getattr(resource, name), (most, most))
    return None


def _mapped_bytes() -> int:  # pragma: no cover - in the child
    """Return the bytes of address space that this process has mapped; 1 GiB if the system does not say."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    return 1024**3


def _prctl(option: int, value: int) -> str | None:  # pragma: no cover - in the child
    if sys.platform != "linux":
        return f"no prctl on {sys.platform}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        return os.strerror(ctypes.get_errno())
    return None


def _refuse(event: str, arguments: tuple[object, ...]) -> None:  # pragma: no cover - in the child
    if event.startswith(_DENIED_EVENTS):
        raise PermissionError(f"{event} is forbidden in a checker")
