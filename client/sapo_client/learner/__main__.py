"""`python -m sapo_client.learner`: the learner's process; the node starts it and talks over its pipes.

It ignores SIGINT and SIGTERM (the node drains and decides) and ends when its standard input does, which also
happens when the node is killed.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

from sapo_client.errors import SapoError
from sapo_client.learner.wire import Message, pack, read_frame


def main() -> None:
    """Answers calls until the node goes away."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    requests, replies = _own_pipes()
    _quiet_libraries()
    waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(requests, waiting), daemon=True).start()
    try:
        _serve(waiting, replies)
    except BrokenPipeError:
        sys.exit(0)  # the node is gone


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes, moved away from where libraries print: their standard output becomes the log."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, replies


def _quiet_libraries() -> None:
    """The log is for what went wrong, and nothing is told to anyone outside."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _read_all(requests: BinaryIO, waiting: queue.SimpleQueue[Message]) -> None:
    """Hands requests on; leaves at once when there can be no more, even in the middle of a step."""
    while (message := read_frame(requests)) is not None:
        waiting.put(message)
    os._exit(0)


def _serve(waiting: queue.SimpleQueue[Message], replies: BinaryIO) -> None:
    from sapo_client.learner.service import Service
    from sapo_client.learner.settings import LearnerSettings

    service: Service | None = None
    while True:
        request = waiting.get()
        try:
            if service is None:
                service = Service(LearnerSettings.from_message(request["arguments"]))
                result = service.about()
            else:
                result = service.call(request["call"], request["arguments"])
        except SapoError as error:
            refusal = {"text": error.text, "hint": error.hint, "exit_code": error.exit_code}
            _write(replies, {"id": request["id"], "error": refusal})
            continue
        _write(replies, {"id": request["id"], "result": result})


def _write(replies: BinaryIO, message: Message) -> None:
    frame = memoryview(pack(message))
    while frame:
        frame = frame[replies.write(frame) :]


if __name__ == "__main__":
    main()
