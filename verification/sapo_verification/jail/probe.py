"""Test of the jail on this machine: each forbidden action is tried by a child process of its own.

That a restriction was accepted is not enough: a kernel may accept a filter, and a container may undo a limit.
"""

import ctypes
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sapo_verification.jail import child as jail_child
from sapo_verification.jail.sandbox import MEMORY_BYTES, Restriction

_DONE: Final = b"did it"


def probe() -> tuple[Restriction, ...]:
    """Return one restriction per forbidden action; it works if the action failed."""
    restrictions = tuple(_try(name, act) for name, act in ACTS.items())
    Path(os.fsdecode(_NEW_FILE)).unlink(missing_ok=True)
    return restrictions


# The C library's functions, loaded before the process is restricted: code that escaped from Python could call
# them.
_LIBC: Final = ctypes.CDLL(None)
_open, _socket, _fork, _execv, _kill = _LIBC.open, _LIBC.socket, _LIBC.fork, _LIBC.execv, _LIBC.kill

_PYTHON: Final = os.fsencode(sys.executable)
_NEW_FILE: Final = os.fsencode(Path(tempfile.gettempdir()) / f"sapo-probe-{os.getpid()}")
_REPORT_PROGRAM: Final = f"import os; os.write({jail_child.REPLIES}, b'did it')".encode()


def _read_a_file() -> None:
    _succeed(_open(_PYTHON, os.O_RDONLY))


def _create_a_file() -> None:
    _succeed(_open(_NEW_FILE, os.O_CREAT | os.O_WRONLY, 0o600))


def _open_a_socket() -> None:
    _succeed(_socket(socket.AF_INET, socket.SOCK_STREAM, 0))


def _start_a_process() -> None:
    _succeed(_fork())


def _run_a_program() -> None:
    arguments = (ctypes.c_char_p * 4)(_PYTHON, b"-c", _REPORT_PROGRAM, None)
    _succeed(_execv(_PYTHON, arguments))


def _signal_the_worker() -> None:
    _succeed(_kill(os.getppid(), 0))


def _allocate() -> None:
    bytearray(4 * MEMORY_BYTES)


def _succeed(result: int) -> None:
    if result < 0:  # pragma: no cover - in the child
        raise PermissionError("refused by the kernel")  # errno cannot be read in here


ACTS: Final[dict[str, Callable[[], None]]] = {
    "read a file": _read_a_file,
    "create a file": _create_a_file,
    "open a socket": _open_a_socket,
    "start a process": _start_a_process,
    "run a program": _run_a_program,
    "signal another process": _signal_the_worker,
    "take a gigabyte of memory": _allocate,
}


def _try(name: str, act: Callable[[], None]) -> Restriction:
    replies, child_replies = os.pipe()
    requests, nothing = os.pipe()
    worker = os.getpid()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - no figures can be written in the jail
        jail_child.run_jailed(requests, child_replies, worker, lambda: _attempt(act))
    for descriptor in (child_replies, requests, nothing):
        os.close(descriptor)
    with os.fdopen(replies, "rb") as stream:
        reported = stream.read(4096)
    return _verdict(name, reported, os.waitpid(pid, 0)[1])


def _attempt(act: Callable[[], None]) -> None:  # pragma: no cover - in the child
    try:
        act()
    except (OSError, MemoryError) as error:
        os.write(jail_child.REPLIES, (str(error) or type(error).__name__).encode())
    else:
        os.write(jail_child.REPLIES, _DONE)


def _verdict(name: str, reported: bytes, status: int) -> Restriction:
    if os.WIFSIGNALED(status):
        return Restriction(name, True, f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    if not reported or reported == _DONE:
        return Restriction(name, False, "a jailed process can do this here")
    return Restriction(name, True, reported.decode("utf-8", "replace"))
