"""The warden: a warm process that forks jailed children, relays requests to them, and ends those that stray.

It imports ReasoningGYM once (seconds) and forks from there (milliseconds), so a killed child costs little.
It never looks into a completion, and believes of a child only a well-formed reply that came in time.
"""

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.jail import child as jail_child
from sapo_verification.jail.messages import (
    HEADER_BYTES,
    MAX_REPLY_BYTES,
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
"""Of one child: a fork spread over so many calls costs nothing, and a child gone wrong is soon gone."""


class Stray(Exception):
    """A child that did not answer as it should."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure


class JailChild:
    """One jailed process and the pipes to it."""

    def __init__(self, work: Callable[[], None]) -> None:
        child_requests, self._requests = os.pipe()
        self._replies, child_replies = os.pipe()
        warden = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            jail_child.imprison(child_requests, child_replies, warden, work)
        os.close(child_requests)
        os.close(child_replies)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._replies, False)
        self.calls = 0

    def call(self, body: bytes, deadline_seconds: float) -> bytes:
        """Return the body of the child's reply.

        Raises:
            Stray: it ended, took too long, announced too much, or answered something else.
        """
        self.calls += 1
        until = time.monotonic() + deadline_seconds
        if _is_ready(self._replies, select.POLLIN, 0):
            raise Stray(Failure.MALFORMED)  # it spoke, or ended, without being asked
        try:
            token = os.urandom(TOKEN_BYTES)
            self._write(frame(token + body), until)
            length = frame_length(self._read(HEADER_BYTES, until), TOKEN_BYTES + MAX_REPLY_BYTES)
            reply = self._read(length, until)
        except MalformedMessage as error:
            raise Stray(Failure.MALFORMED) from error
        except BrokenPipeError as error:
            raise Stray(Failure.CRASH) from error
        if not reply.startswith(token):
            raise Stray(Failure.MALFORMED)
        return reply[TOKEN_BYTES:]

    def end(self) -> None:
        """Kill and reap it."""
        os.kill(self._pid, signal.SIGKILL)  # it is ours and not yet reaped, so the id is no other's
        os.waitpid(self._pid, 0)
        os.close(self._requests)
        os.close(self._replies)

    def _write(self, data: bytes, until: float) -> None:
        while data:
            _wait(self._requests, select.POLLOUT, until)
            data = data[os.write(self._requests, data[: select.PIPE_BUF]) :]

    def _read(self, size: int, until: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            _wait(self._replies, select.POLLIN, until)
            if not (piece := os.read(self._replies, size - len(data))):
                raise Stray(Failure.CRASH)
            data += piece
        return bytes(data)


class Warden:
    """Requests in, replies out, whatever happens to the children.

    Args:
        families: the suite's.
        deadline_seconds: for one request.
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
            decode_reply(reply, completions)
        except Stray as stray:
            self._end_child()
            return encode_reply(stray.failure)
        except MalformedMessage:
            self._end_child()
            return encode_reply(Failure.MALFORMED)
        return reply

    def rest(self) -> None:
        """What can wait until the reply is on its way: replacing a child."""
        if self._child is not None and self._child.calls >= MAX_CALLS:
            self._end_child()
        if self._child is None:
            self._child = self._fork()

    def close(self) -> None:
        """End the child."""
        self._end_child()

    def _prove_one_call(self) -> None:
        """A jail in which nothing works is no jail to report ready."""
        reply = decode_reply(self.relay(encode_request(Request(0, 0, ()))), 0)
        if reply in (Failure.CRASH, Failure.TIMEOUT, Failure.MALFORMED):
            sys.exit(f"a jailed checker does not work on this machine ({reply})")

    def _fork(self) -> JailChild:
        return JailChild(lambda: jail_child.serve(self._families))

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


def _wait(descriptor: int, event: int, until: float) -> None:
    if not _is_ready(descriptor, event, until - time.monotonic()):
        raise Stray(Failure.TIMEOUT)


def _is_ready(descriptor: int, event: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(max(seconds, 0) * 1000))
