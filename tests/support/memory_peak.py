"""Peaks of memory, measured in a separate process.

In a worker of the test suite other threads' memory would count. And CPython 3.11 may end with a segmentation
fault where a measurement begins or ends while they allocate.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from support.swarm import moment
from support.verdicts import reason_of
from support.verification_harness import VerificationHarness

from sapo_client.ledger.answers import BadAnswer
from sapo_client.ledger.endpoints import connect
from sapo_protocol.decoding import decode
from sapo_protocol.errors import Reason

T = TypeVar("T")


@contextmanager
def other_process() -> Iterator[ProcessPoolExecutor]:
    """Yield a process that runs the functions below."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def refusal(data: bytes) -> tuple[Reason | None, int]:
    """Return why bytes are not decoded, and the peak of what is allocated meanwhile, in bytes."""
    return _with_peak(lambda: reason_of(decode, data))


def restart(arguments: dict[str, Any]) -> tuple[tuple[int, int], int]:
    """Return the sizes of pool and audit queue of a node that is opened again, and the peak in bytes.

    Args:
        arguments: of ``VerificationHarness``.
    """
    node = VerificationHarness(**arguments)
    _, peak_bytes = _with_peak(lambda: node.engine.restore(moment(node.manifest)))
    return (len(node.pool), len(node.engine.audits)), peak_bytes


def answer(url: str, max_bytes: int) -> tuple[str, int]:
    """Return why an endpoint's answer is refused, and the peak of what is allocated meanwhile, in bytes."""

    def ask() -> str:
        try:
            return str(connect(url, max_bytes=max_bytes).eth.block_number)
        except BadAnswer as error:
            return str(error)

    return _with_peak(ask)


def _with_peak(work: Callable[[], T]) -> tuple[T, int]:
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
