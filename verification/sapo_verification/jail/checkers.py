"""The checker pool: the node's side of the jail.

Each worker is a process (``jail/worker.py``) with one jailed child. When a worker hangs, dies or
sends an invalid reply, its current check fails; the worker is killed and another one is started.
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Final, Self, cast

import trio

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.suite import Suite
from sapo_protocol.tasks import Task
from sapo_verification.jail.launch import command, environment
from sapo_verification.jail.messages import (
    HEADER_BYTES,
    MAX_REPLY_BYTES,
    READY,
    Checked,
    Failure,
    MalformedMessage,
    Request,
    Setup,
    decode_reply,
    encode_request,
    encode_setup,
    frame,
    frame_length,
)
from sapo_verification.tasks.generators import SEED_LIMIT

if TYPE_CHECKING:
    from trio.abc import ReceiveStream, SendStream
    from trio_typing import TaskStatus

_LOG = logging.getLogger(__name__)

START_SECONDS: Final = 120
"""Time for a worker to start: importing ReasoningGYM takes 3 s on an idle machine, much longer on a busy
one."""

RETRY_SECONDS: Final = 5
"""Pause after a replacement that did not start: the machine was too busy for it, or had no memory."""

GRACE_SECONDS: Final = 5
"""Time after the last limit of its child in which a worker may answer: it has to kill and reap that child."""

__all__ = ["CheckFailed", "Checked", "CheckerPool", "Failure"]


class CheckFailed(Exception):
    """Failure of one check, for a ``reason``; the pool continues unless it is closed."""

    def __init__(self, reason: Failure) -> None:
        super().__init__(f"the check ended without a result ({reason})")
        self.reason = reason


@dataclass(slots=True)
class _Job:
    request: Request
    done: trio.Event = field(default_factory=trio.Event)
    reply: Checked | Failure = Failure.CLOSED


class CheckerPool:
    """Pool of jailed processes that derive tasks and score untrusted completions.

    Args:
        suite: the swarm's; tasks name its families by index.
        workers: processes, each about 120 MB.
        deadline_seconds: processor time of one call; the call ends after ten times as much wall-clock time
            even if it got less processor time.
        scorer_modules: modules with more ``SCORERS``, for suites with additional families.
    """

    def __init__(
        self,
        suite: Suite,
        *,
        workers: int = 1,
        deadline_seconds: float = 2.0,
        scorer_modules: Sequence[str] = (),
    ) -> None:
        self._setup = Setup(suite.families, deadline_seconds, tuple(scorer_modules))
        self._workers = workers
        self._jobs, self._queue = trio.open_memory_channel[_Job](0)

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the workers running until cancelled; report the start when all of them are ready.

        Raises:
            LocalProtocolError: a first worker cannot be started. For one that replaces a failed worker,
                checks wait.
        """
        async with self._queue, trio.open_nursery() as nursery:
            for _ in range(self._workers):
                await nursery.start(self._supervise)
            task_status.started()

    async def prompt(self, task: Task) -> str:
        """Return the task's prompt.

        Raises:
            CheckFailed: it cannot be derived, or not in time.
        """
        return (await self.check(task, ())).prompt

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Return a task's prompt, and the reward of each completion.

        A call that got too little processor time on this busy node is made once more.

        Raises:
            CheckFailed: this call failed; the next one may succeed.
            LocalProtocolError: the suite has no such task.
        """
        if not (0 <= task.family < len(self._setup.families) and 0 <= task.seed < SEED_LIMIT):
            raise LocalProtocolError(f"{task} is not a task of this suite")
        request = Request(task.family, task.seed, tuple(completions))
        reply = await self._reply_to(request)
        if reply is Failure.NODE_BUSY:
            reply = await self._reply_to(request)
        if isinstance(reply, Failure):
            raise CheckFailed(reply)
        return reply

    async def _reply_to(self, request: Request) -> Checked | Failure:
        job = _Job(request)
        try:
            await self._jobs.send(job)
        except trio.BrokenResourceError:
            return Failure.CLOSED
        await job.done.wait()
        return job.reply

    async def _supervise(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Run a worker until it fails, and then another, until cancelled."""
        worker = await _Worker.start(self._setup)
        task_status.started()
        while True:
            async with aclosing(worker):
                await self._feed(worker)
            worker = await self._replacement()

    async def _replacement(self) -> "_Worker":
        """Return another worker; try until one starts, since one has started on this machine before."""
        while True:
            try:
                return await _Worker.start(self._setup)
            except LocalProtocolError as error:
                _LOG.warning("%s; trying again in %d s", error, RETRY_SECONDS)
                await trio.sleep(RETRY_SECONDS)

    async def _feed(self, worker: "_Worker") -> None:
        """Send jobs to a worker until it fails at one."""
        async for job in self._queue:
            try:
                job.reply = await worker.ask(job.request)
            except _Broken as broken:
                _LOG.info("replacing a checker worker (%s)", broken.failure)
                job.reply = broken.failure
                return
            finally:
                job.done.set()


class _Broken(Exception):
    """Failure of a worker that must be replaced."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure


class _Worker:
    """One worker process and the pipes to it."""

    def __init__(self, setup: Setup, process: trio.Process) -> None:
        self._setup, self._process = setup, process
        self._requests = cast("SendStream", process.stdin)  # both are pipes, see start
        self._replies = cast("ReceiveStream", process.stdout)
        self._unread = bytearray()

    @classmethod
    async def start(cls, setup: Setup) -> Self:
        """Start a worker and return it when it is ready.

        Raises:
            LocalProtocolError: it does not become ready, or the system starts no process.
        """
        try:
            process = await trio.lowlevel.open_process(
                command("serve"), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment(), cwd="/"
            )
        except OSError as error:
            raise LocalProtocolError(f"a checker worker did not start ({error.strerror})") from error
        worker = cls(setup, process)
        ready = b""
        try:
            ready = await worker._exchange(encode_setup(setup), START_SECONDS)
        except _Broken as broken:
            raise LocalProtocolError(f"a checker worker did not start ({broken.failure})") from broken
        finally:
            if ready != READY:
                await worker.aclose()
        _LOG.info("a checker worker runs as process %d", process.pid)
        return worker

    async def ask(self, request: Request) -> Checked | Failure:
        """Return the reply to one request.

        Raises:
            _Broken: no valid reply came in time.
        """
        body = await self._exchange(encode_request(request), self._setup.longest_seconds + GRACE_SECONDS)
        try:
            return decode_reply(body, len(request.completions))
        except MalformedMessage as error:
            raise _Broken(Failure.MALFORMED) from error

    async def aclose(self) -> None:
        """Kill the process, and with it its child."""
        with trio.CancelScope(shield=True):
            self._process.kill()
            await self._process.wait()
            await self._requests.aclose()
            await self._replies.aclose()

    async def _exchange(self, body: bytes, seconds: float) -> bytes:
        try:
            with trio.fail_after(seconds):
                await self._requests.send_all(frame(body))
                return await self._receive(frame_length(await self._receive(HEADER_BYTES), MAX_REPLY_BYTES))
        except trio.TooSlowError as error:
            raise _Broken(Failure.NODE_BUSY) from error
        except trio.BrokenResourceError as error:
            raise _Broken(Failure.CRASH) from error
        except MalformedMessage as error:
            raise _Broken(Failure.MALFORMED) from error

    async def _receive(self, size: int) -> bytes:
        while len(self._unread) < size:
            piece = await self._replies.receive_some(MAX_REPLY_BYTES)
            if not piece:
                raise _Broken(Failure.CRASH)
            self._unread += piece
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data
