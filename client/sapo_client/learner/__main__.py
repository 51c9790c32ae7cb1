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

from sapo_client.imports import collector_paused
from sapo_client.learner.ranks.serving import quiet_libraries, serve
from sapo_client.learner.wire import Message, read_frame


def main() -> None:
    """Answer calls until the node closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    requests, replies = _own_pipes()
    with collector_paused():
        quiet_libraries()
    waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(requests, waiting), daemon=True).start()
    with collector_paused():
        from sapo_client.learner.ranks.opening import open_calls

    try:
        serve(waiting, replies, open_calls)
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


def _read_all(requests: BinaryIO, waiting: queue.SimpleQueue[Message]) -> None:
    """Queue requests; end the process at once when the pipe ends, even in the middle of a step."""
    while (message := read_frame(requests)) is not None:
        waiting.put(message)
    os._exit(0)


if __name__ == "__main__":
    main()
