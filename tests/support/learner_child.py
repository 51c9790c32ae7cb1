"""A learner that a test drives by frames, as the node does: a process, or one in the test's own process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message, pack, read_frame, take_frames


class DrivenLearner(Protocol):
    """A learner whose calls a test makes.

    Attributes:
        about: its reply to the start.
    """

    about: Message

    def call(self, name: str, /, **arguments: Any) -> Message:
        """Return the result of a call."""
        ...


class LearnerHere:
    """A learner of one rank without a process of its own, whose start costs seconds of a processor."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._service = Service(settings)
        self.about = _by_frame(self._service.about())

    def call(self, name: str, /, **arguments: Any) -> Message:
        """Return the result of a call."""
        return _by_frame(self._service.call(name, _by_frame(arguments)))


def _by_frame(message: Message) -> Message:
    """Return a message as its receiver reads it."""
    [received] = take_frames(bytearray(pack(message)))
    return received


class LearnerChild:
    """A started learner.

    Attributes:
        process: of rank 0.
        about: its reply to the start.
    """

    def __init__(self, process: subprocess.Popen[bytes], settings: LearnerSettings) -> None:
        self.process = process
        self._numbers = count(1)
        self.about = self.call("start", **settings.to_message())

    def call(self, name: str, /, **arguments: Any) -> Message:
        """Return the result of a call.

        Raises:
            EOFError: the process ended before it replied.
            AssertionError: it refused.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(pack({"id": next(self._numbers), "call": name, "arguments": arguments}))
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise EOFError from error
        reply = read_frame(cast(BinaryIO, self.process.stdout))
        if reply is None:
            raise EOFError
        assert "result" in reply, reply["error"]["text"]
        result: Message = reply["result"]
        return result


@contextmanager
def learner_child(
    settings: LearnerSettings, environment: Mapping[str, str] | None = None
) -> Iterator[LearnerChild]:
    """Start a learner, which logs to ``learner.log`` in its directory, and end it."""
    settings.directory.mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join(path for path in sys.path if path)
    with (settings.directory / "learner.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sapo_client.learner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
        )
    with process:
        try:
            yield LearnerChild(process, settings)
        except EOFError:
            print((settings.directory / "learner.log").read_text(encoding="utf-8", errors="replace"))
            raise
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def other_ranks(pid: int) -> list[int]:
    """Return the process ids of the ranks that a learner's process has started."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sorted(int(child) for each in threads for child in (each / "children").read_text().split())
