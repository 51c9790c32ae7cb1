"""Serving of a node's requests, one after another."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

from sapo_client.errors import SapoError
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message, pack


class Calls(Protocol):
    """Interface of the handler of the node's calls: a service, or the leader of several ranks."""

    def about(self) -> Message:
        """Return the reply to the start of a learner."""
        ...

    def call(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return the result of a call by its name."""
        ...


def quiet_libraries() -> None:
    """Switch progress bars, informational messages and telemetry of libraries off."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def serve(
    waiting: queue.SimpleQueue[Message], replies: BinaryIO, open_calls: Callable[[LearnerSettings], Calls]
) -> None:
    """Answer requests one after another; the first one opens the handler."""
    service: Calls | None = None
    while True:
        request = waiting.get()
        try:
            if service is None:
                service = open_calls(LearnerSettings.from_message(request["arguments"]))
                result = service.about()
            else:
                result = service.call(request["call"], request["arguments"])
        except SapoError as error:
            _write(replies, {"id": request["id"], "error": refusal_message(error)})
            continue
        _write(replies, {"id": request["id"], "result": result})


def _write(replies: BinaryIO, message: Message) -> None:
    """Write a whole frame to an unbuffered pipe, which may take it in parts."""
    frame = memoryview(pack(message))
    while frame:
        frame = frame[replies.write(frame) :]


def refusal_message(error: SapoError) -> Message:
    """Return a ``SapoError`` as plain values, from which it can be restored."""
    return {
        "text": error.text,
        "hint": error.hint,
        "exit_code": error.exit_code,
        "transient": error.transient,
        "finding": error.finding,
    }
