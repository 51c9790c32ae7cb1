"""``python -m sapo_verification.jail``: the checker process that a node starts.

``serve`` reads a setup frame and then requests from standard input, and writes one reply for each.
``restrictions`` prints, as JSON, what a jailed process on this machine can and cannot do.

The process that runs this module is trusted (``jail/worker.py``); its child is not (``jail/child.py``).
"""

import importlib
import json
import os
import signal
import sys
from dataclasses import asdict
from typing import BinaryIO

from sapo_verification.jail.messages import (
    HEADER_BYTES,
    MAX_REQUEST_BYTES,
    MAX_SETUP_BYTES,
    READY,
    Setup,
    decode_setup,
    frame,
    frame_length,
)
from sapo_verification.jail.sandbox import WORKER_BYTES, limit_worker


def main(arguments: list[str]) -> int:
    """Run a command; return the exit status."""
    if arguments == ["restrictions"]:
        return _print_restrictions()
    if arguments != ["serve"]:
        print("usage: python -m sapo_verification.jail serve|restrictions", file=sys.stderr)
        return 2
    requests, replies = _take_standard_streams()
    _serve(requests, replies)
    return 0


def _serve(requests: BinaryIO, replies: BinaryIO) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # the node handles them: it drains first and then ends this process
        signal.signal(number, signal.SIG_IGN)
    setup = decode_setup(_read_frame(requests, MAX_SETUP_BYTES) or b"")
    limit_worker()
    _import_scorers(setup)
    from sapo_verification.jail.worker import JailWorker

    try:
        worker = JailWorker(setup.families, setup.deadline_seconds)
    except MemoryError:
        sys.exit(f"tasks with the suite's settings need more than {WORKER_BYTES >> 20} MiB of memory")
    _send(replies, READY)
    while (body := _read_frame(requests, MAX_REQUEST_BYTES)) is not None:
        _send(replies, worker.relay(body))
        worker.rest()
    worker.close()


def _import_scorers(setup: Setup) -> None:
    from sapo_verification.tasks.scorers import SCORERS

    for name in setup.scorer_modules:
        SCORERS.update(importlib.import_module(name).SCORERS)


def _take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes to the node, and connect descriptors 0 and 1 to the null device."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null_device = os.open(os.devnull, os.O_RDWR)  # for what libraries print
    for descriptor in (0, 1):
        os.dup2(null_device, descriptor)
    os.close(null_device)
    return requests, replies


def _read_frame(stream: BinaryIO, max_bytes: int) -> bytes | None:
    """Read a frame and return its body; None at the end of the stream."""
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    return stream.read(frame_length(header, max_bytes))


def _send(stream: BinaryIO, body: bytes) -> None:
    stream.write(frame(body))
    stream.flush()


def _print_restrictions() -> int:
    from sapo_verification.jail.probe import probe

    print(json.dumps([asdict(restriction) for restriction in probe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
