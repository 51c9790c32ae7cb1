"""Learners that begin as copies of a process that has imported their libraries.

The imports take nearly four of the four and a half processor seconds of a learner that trains some steps of
a tiny model. Such a learner is the real program: it runs the main function of `sapo_client.learner` in a
process and a session of its own, with the pipes, environment, folder and limits that it would have had. Only
`python -m` is left out. Tests of the learner's process, and all that drive the command `sapo`, start theirs
with it.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, cast

import trio

from sapo_client.learner.ranks.serving import quiet_libraries

Start = Callable[[IO[bytes]], Awaitable[trio.Process]]

_MAX_BYTES: Final = 2**20
"""Of a request, which holds the environment."""

_READ_BY_IMPORTS: Final = ("PYTHON", "LD_", "OMP_", "MKL_", "TORCH", "TRANSFORMERS_", "HF_")
"""Beginnings of the variables that must not differ from the template's."""

_SET_HERE: Final = ("HF_HUB_DISABLE_", "HF_HUB_VERBOSITY")
"""Of those that commands and learners set for all that follows in the tests' own process; they are about what
is printed and reported."""

_MODULES: Final = (
    "torch._dynamo",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "sapo_client.learner.__main__",
    "sapo_client.learner.ranks.opening",
)
"""What a learner of one process on a CPU imports until its first step is taken."""

_LIMITS: Final = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]

_STATUS: Final = struct.Struct("=i")


class WarmLearners:
    """Starts learners for one process of the tests, from a template that starts with the first of them.

    Args:
        environment: of the template. A learner for which variables differ that libraries read when they are
            imported is started by ``start``.
        start: starts a learner by ``python -m``.
    """

    def __init__(self, environment: Mapping[str, str], start: Start) -> None:
        self._environment = dict(environment)
        self._start = start
        self._requests: socket.socket | None = None

    async def open(self, log: IO[bytes]) -> trio.Process:
        """Start a learner that writes errors to a log; it has what the learner's node uses of a process."""
        if _read_by_imports(os.environ) != _read_by_imports(self._environment):
            return await self._start(log)
        read, stdin = os.pipe()
        stdout, write = os.pipe()
        status, done = os.pipe()
        inherited = {
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
            "limits": [(number, *resource.getrlimit(number)) for number in _LIMITS],
        }
        request = json.dumps(inherited).encode()
        socket.send_fds(self._connected(), [request], [read, write, log.fileno(), done])
        for descriptor in (read, write, done):
            os.close(descriptor)
        waiting = trio.lowlevel.FdStream(status)
        [pid] = _STATUS.unpack(await waiting.receive_some(_STATUS.size))
        child = _Child(pid, trio.lowlevel.FdStream(stdin), trio.lowlevel.FdStream(stdout), waiting)
        return cast(trio.Process, child)

    def close(self) -> None:
        """End the template; learners end with their pipes."""
        if self._requests is not None:
            self._requests.close()

    def _connected(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                subprocess.run(
                    [sys.executable, "-m", "support.warm_learners", str(theirs.fileno())],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    check=True,
                )
        return self._requests


class _Child:
    """A learner that the template started, with the part of ``trio.Process`` that a node uses."""

    def __init__(
        self,
        pid: int,
        stdin: trio.lowlevel.FdStream,
        stdout: trio.lowlevel.FdStream,
        status: trio.lowlevel.FdStream,
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._status = status
        self._turn = trio.Lock()

    async def wait(self) -> int:
        """Return the exit code once it has ended."""
        async with self._turn:
            if self.returncode is None:
                self._ended(bytes(await self._status.receive_some(_STATUS.size)))
                await self._status.aclose()
        assert self.returncode is not None
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        if self.returncode is None:
            with suppress(BlockingIOError):
                self._ended(os.read(self._status.fileno(), _STATUS.size))
        return self.returncode

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _ended(self, status: bytes) -> None:
        [code] = _STATUS.unpack(status) if status else (signal.SIGKILL,)  # the template was killed
        self.returncode = os.waitstatus_to_exitcode(code)


def _read_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what of an environment must not differ from the template's."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_BY_IMPORTS) and not name.startswith(_SET_HERE)
    }


def _serve(requests: socket.socket) -> None:
    """Fork a learner for each request until there are no more; report their exit statuses."""
    running: dict[int, int] = {}
    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(4096)
                _report_ended(running)
            if requests not in ready:
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, _MAX_BYTES, 4)
            if not request:
                return
            *streams, done = descriptors
            pid = os.fork()
            if pid == 0:
                for other in (requests, woken, wakes):
                    other.close()
                selector.close()
                for descriptor in running.values():
                    os.close(descriptor)
                _run(json.loads(request), streams, done)
            for descriptor in streams:
                os.close(descriptor)
            running[pid] = done


def _report_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        done = running.pop(pid)
        _write(done, status)
        os.close(done)


def _write(descriptor: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for this learner any more
        os.write(descriptor, _STATUS.pack(number))


def _run(request: dict[str, Any], streams: list[int], started: int) -> None:
    """Be a learner until it ends, and end with it; report the process id once all is as for a new process."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for descriptor, place in zip(streams, (0, 1, 2), strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        os.chdir(request["folder"])
        for number, soft, hard in request["limits"]:
            resource.setrlimit(number, (soft, hard))
        os.environ.clear()
        os.environ.update(request["environment"])
        _write(started, os.getpid())
        os.close(started)
        gc.enable()
        from sapo_client.learner.__main__ import main

        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the template is no child of the tests' process: tests of the jail count those
    gc.disable()
    quiet_libraries()
    for module in _MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
