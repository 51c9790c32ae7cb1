"""`python -m sapo_client.learner`: the learner's process, which the node starts and calls over pipes.

It ignores SIGINT and SIGTERM (the node decides when to stop) and ends when its standard input ends, which
also happens when the node is killed.
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
    """Answer calls until the node closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    requests, replies = _own_pipes()
    _quiet_libraries()
    waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(requests, waiting), daemon=True).start()
    try:
        _serve(waiting, replies)
    except BrokenPipeError:
        sys.exit(0)  # the node has ended


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the two pipes on new descriptors; what libraries print to standard output goes to the log."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    return requests, replies


def _quiet_libraries() -> None:
    """Switch progress bars, informational messages and telemetry of libraries off."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _read_all(requests: BinaryIO, waiting: queue.SimpleQueue[Message]) -> None:
    """Queue requests; end the process at once when the pipe ends, even in the middle of a step."""
    while (message := read_frame(requests)) is not None:
        waiting.put(message)
    os._exit(0)


def _serve(waiting: queue.SimpleQueue[Message], replies: BinaryIO) -> None:
    """Answer requests one after another; the first one starts the service."""
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
    """Write a whole frame to an unbuffered pipe, which may take it in parts."""
    frame = memoryview(pack(message))
    while frame:
        frame = frame[replies.write(frame) :]


if __name__ == "__main__":
    main()
