"""The worker: a trusted process that forks jailed children, relays requests, and kills those that fail.

It imports ReasoningGYM once (seconds) and then forks (milliseconds), so replacing a child costs little.
It never reads a completion, and accepts from a child only a well-formed reply that came in time.
"""

import contextlib
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.jail import child as jail_child
from sapo_verification.jail.messages import (
    HEADER_BYTES,
    MAX_REPLY_BYTES,
    PATIENCE,
    TOKEN_BYTES,
    Failure,
    MalformedMessage,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    frame,
    frame_length,
)

MAX_CALLS: Final = 256
"""Calls per child: enough to make the cost of a fork negligible, few enough to replace a damaged child
soon."""


_OUR_OWN: Final = frozenset(Failure) - {Failure.UNDERIVABLE}
"""Failures that only the worker and the node can find; a child's reply with one of them is invalid."""

_SCHEDULER_CLOCK: Final = 2
"""``CPUCLOCK_SCHED`` of Linux: with it ``clock_getcpuclockid`` makes the id of a process's clock."""

LOOK_SECONDS: Final = 0.01
"""Shortest interval between two readings of a child's processor time."""


class ChildFailed(Exception):
    """Failure of a child to answer as it should."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure


class JailChild:
    """One jailed process and the pipes to it."""

    def __init__(self, work: Callable[[], None]) -> None:
        child_requests, self._requests = os.pipe()
        self._replies, child_replies = os.pipe()
        worker = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:  # pragma: no cover - no figures can be written in the jail
            jail_child.run_jailed(child_requests, child_replies, worker, work)
        os.close(child_requests)
        os.close(child_replies)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._replies, False)
        self._processor_seconds = _clock_of(self._pid)
        self.calls = 0

    def call(self, body: bytes, deadline_seconds: float) -> bytes:
        """Send a request to the child and return the body of its reply.

        Args:
            deadline_seconds: of the child's processor time, which does not depend on how busy the node is.

        Raises:
            ChildFailed: it ended, took too long, announced too long a reply, or did not answer this request.
        """
        self.calls += 1
        until = _Limits(self._processor_seconds, deadline_seconds)
        if _is_ready(self._replies, select.POLLIN, 0):
            raise ChildFailed(Failure.MALFORMED)  # it sent something, or ended, before the request
        try:
            token = os.urandom(TOKEN_BYTES)
            self._write(frame(token + body), until)
            length = frame_length(self._read(HEADER_BYTES, until), TOKEN_BYTES + MAX_REPLY_BYTES)
            reply = self._read(length, until)
        except MalformedMessage as error:
            raise ChildFailed(Failure.MALFORMED) from error
        except BrokenPipeError as error:
            raise ChildFailed(Failure.CRASH) from error
        if not reply.startswith(token):
            raise ChildFailed(Failure.MALFORMED)
        return reply[TOKEN_BYTES:]

    def end(self) -> None:
        """Kill and reap the child."""
        os.kill(self._pid, signal.SIGKILL)  # not yet reaped, so the id belongs to no other process
        os.waitpid(self._pid, 0)
        os.close(self._requests)
        os.close(self._replies)

    def _write(self, data: bytes, until: "_Limits") -> None:
        while data:
            until.wait(self._requests, select.POLLOUT)
            data = data[os.write(self._requests, data[: select.PIPE_BUF]) :]

    def _read(self, size: int, until: "_Limits") -> bytes:
        data = bytearray()
        while len(data) < size:
            until.wait(self._replies, select.POLLIN)
            if not (piece := os.read(self._replies, size - len(data))):
                raise ChildFailed(Failure.CRASH)
            data += piece
        return bytes(data)


class _Limits:
    """The limits of one call: processor time of the child, and ten times as much wall-clock time.

    Without the second limit a child that blocks would occupy its worker for ever.

    Args:
        processor_seconds: returns the processor time that the child has used since its start.
        deadline_seconds: most processor time that this call may use.
    """

    def __init__(self, processor_seconds: Callable[[], float], deadline_seconds: float) -> None:
        self._processor_seconds = processor_seconds
        self._max_used = processor_seconds() + deadline_seconds
        self._until = time.monotonic() + PATIENCE * deadline_seconds

    def wait(self, descriptor: int, event: int) -> None:
        """Return when a descriptor is ready.

        Raises:
            ChildFailed: a limit was reached before that.
        """
        while True:
            unused = self._max_used - self._processor_seconds()
            if unused <= 0:
                raise ChildFailed(Failure.TIMEOUT)
            left = self._until - time.monotonic()
            if _is_ready(descriptor, event, min(max(unused, LOOK_SECONDS), left)):
                return
            if left <= 0:
                raise ChildFailed(Failure.NODE_BUSY)


class JailWorker:
    """Relay of requests to jailed children, which answers every request even if a child fails.

    Args:
        families: the suite's.
        deadline_seconds: of processor time, for one request.
    """

    def __init__(self, families: tuple[Family, ...], deadline_seconds: float) -> None:
        self._families, self._deadline_seconds = families, deadline_seconds
        jail_child.warm_up(families)
        gc.freeze()  # a collection in the child would copy every page that it shares with us
        self._child: JailChild | None = self._fork()
        self._prove_one_call()

    def relay(self, body: bytes) -> bytes:
        """Return the body of the reply to one request."""
        completions = len(decode_request(body).completions)
        if self._child is None:
            self._child = self._fork()
        try:
            reply = self._child.call(body, self._deadline_seconds)
            if decode_reply(reply, completions) in _OUR_OWN:
                raise ChildFailed(Failure.MALFORMED)
        except ChildFailed as failed:
            self._end_child()
            return encode_reply(failed.failure)
        except MalformedMessage:
            self._end_child()
            return encode_reply(Failure.MALFORMED)
        return reply

    def rest(self) -> None:
        """Replace a child if necessary; called after the reply was sent, because it can wait."""
        if self._child is not None and self._child.calls >= MAX_CALLS:
            self._end_child()
        if self._child is None:
            self._child = self._fork()

    def close(self) -> None:
        """End the child."""
        self._end_child()

    def _prove_one_call(self) -> None:
        """End the process if not even an empty request works in the jail."""
        reply = decode_reply(self.relay(encode_request(Request(0, 0, ()))), 0)
        if reply in _OUR_OWN:
            sys.exit(f"a jailed checker does not work on this machine ({reply})")

    def _fork(self) -> JailChild:
        return JailChild(lambda: jail_child.serve(self._families))

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


def _clock_of(process: int) -> Callable[[], float]:
    """Return a clock of the processor time that a process has used, in seconds.

    If the system has no such clock that another process can read, it is the wall clock.
    """
    if sys.platform == "linux":
        clock = partial(time.clock_gettime, ~process << 3 | _SCHEDULER_CLOCK)
        with contextlib.suppress(OSError):  # an emulation of Linux may not have it
            clock()
            return clock
    return time.monotonic


def _is_ready(descriptor: int, event: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(max(seconds, 0) * 1000))
