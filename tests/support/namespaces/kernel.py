"""Network namespaces of the kernel: creation, use, deletion; needs root."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

PREFIX: Final = "sapo"
_FOLDER: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000  # from linux/sched.h
_TUNSETIFF: Final = 0x400454CA  # this and the flags from linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PROGRAMS: Final = ("ip", "nft")

_LIBC: Final[Any] = ctypes.CDLL(None, use_errno=True)

Answer = TypeVar("Answer")


def why_not() -> str | None:
    """Return why namespaces cannot be created here, or None if they can."""
    if missing := [program for program in _PROGRAMS if shutil.which(program) is None]:
        return f"no {' and no '.join(missing)}: install Debian's iproute2 and nftables"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "this kernel has no TUN devices"
    trial = name_of("trial")
    done = subprocess.run(("ip", "netns", "add", trial), capture_output=True, text=True, check=False)
    if done.returncode:
        return f"no network namespaces here: {done.stderr.strip()}"
    delete(trial)
    return None


def name_of(end: str) -> str:
    """Return the full name of a namespace of this process."""
    return f"{PREFIX}-{os.getpid()}-{end}"


def run(*words: str, text: str | None = None) -> None:
    """Run a command that must succeed.

    Raises:
        RuntimeError: it fails.
    """
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def add(name: str) -> None:
    """Make a namespace with a loopback interface that is up."""
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")


def delete(name: str) -> None:
    """Delete a namespace and its interfaces; one that is gone is no error."""
    if (_FOLDER / name).exists():
        run("ip", "netns", "delete", name)


def delete_left_over() -> None:
    """Delete the namespaces of this and of all ended processes that used this module."""
    for path in _FOLDER.glob(f"{PREFIX}-*-*"):
        owner = path.name.split("-")[1]
        if owner.isdigit() and (int(owner) == os.getpid() or not Path("/proc", owner).exists()):
            delete(path.name)


def inside(name: str, function: Callable[[], Answer]) -> Answer:
    """Call a function in a namespace, in a thread of its own; return its answer.

    What it opens stays in that namespace, whoever uses it later.

    Raises:
        Exception: what the function raises, or OSError if there is no such namespace.
    """
    answers: list[Answer] = []
    errors: list[Exception] = []

    def enter() -> None:
        try:
            with (_FOLDER / name).open("rb") as handle:
                if _LIBC.setns(handle.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")
            answers.append(function())
        except Exception as error:  # raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


def open_tun(name: str, interface: str) -> int:
    """Return the descriptor of a new interface in a namespace: its packets are read and written there.

    The interface exists until the descriptor is closed.
    """

    def attach() -> int:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        request = struct.pack("16sH22x", interface.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
        return descriptor

    return inside(name, attach)


def open_listener(name: str, host: str, port: int) -> socket.socket:
    """Return a listening TCP socket in a namespace."""
    return inside(name, lambda: socket.create_server((host, port)))
