"""The jailed child process, which derives items, scores answers and can do nothing else.

It serves a bounded number of calls, so that any damage that an answer does to it ends soon.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from sapo_protocol.suite import Family
from sapo_verification.jail.messages import (
    HEADER_BYTES,
    MAX_REQUEST_BYTES,
    TOKEN_BYTES,
    Checked,
    Failure,
    Request,
    decode_request,
    encode_reply,
    frame,
    frame_length,
)
from sapo_verification.jail.sandbox import enter
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Underivable, derive, solution
from sapo_verification.tasks.scorers import score

REQUESTS, REPLIES = 3, 4
"""File descriptors; 0, 1 and 2 are the null device."""

_DESCRIPTORS: Final = 5

_WARM_UP_SEEDS: Final = 16
"""Seeds of the warm-up, enough to meet every variant of a generator's tasks, except for very rare ones."""

_WARM_UP_COMPLETIONS: Final = (b"", b"1", b"<answer>1/2</answer>", "¬P ∧ Q".encode(), b"\xff")


def run_jailed(
    requests: int, replies: int, worker: int, work: Callable[[], None]
) -> NoReturn:  # pragma: no cover - no figures can be written in the jail
    """Put a newly forked process into the jail, run its work there, and end it.

    An exception of the work ends the process without a message; its worker reports a crash.
    """
    status = 1
    try:
        os.dup2(requests, REQUESTS)
        os.dup2(replies, REPLIES)
        enter(_DESCRIPTORS, worker)
        work()
        status = 0
    finally:
        os._exit(status)


def serve(families: tuple[Family, ...]) -> None:
    """Answer requests until the worker closes the pipe."""
    while header := _read_exactly(HEADER_BYTES):
        message = _read_exactly(frame_length(header, TOKEN_BYTES + MAX_REQUEST_BYTES))
        token, body = message[:TOKEN_BYTES], message[TOKEN_BYTES:]
        _write_all(frame(token + encode_reply(answer(families, decode_request(body)))))


def answer(families: tuple[Family, ...], request: Request) -> Checked | Failure:
    """Return the reply to one request."""
    family = families[request.family]
    try:
        item = derive(family, request.seed)
    except Underivable:
        return Failure.UNDERIVABLE
    rewards = (_reward(family, completion, item.entry) for completion in request.completions)
    return Checked(item.prompt, tuple(rewards))


def _reward(family: Family, completion: bytes, entry: Mapping[str, Any]) -> float:
    return score(family, extract(family, completion), entry)


def warm_up(families: tuple[Family, ...]) -> None:
    """Run every code path once before the fork: inside the jail nothing can be imported any more."""
    for place in range(len(families)):
        for seed in range(_WARM_UP_SEEDS):
            answer(families, Request(place, seed, _WARM_UP_COMPLETIONS))
        _solve_one(families[place])


def _solve_one(family: Family) -> None:
    """Score an honest answer: a stock scorer runs, and imports what it needs, only for a well-formed one."""
    for seed in range(_WARM_UP_SEEDS):
        with contextlib.suppress(Underivable):
            item = derive(family, seed)
            if (text := solution(family, item)) is not None:
                score(family, text, item.entry)
                return


def _read_exactly(size: int) -> bytes:
    """Read a number of bytes, or fewer if the pipe ends."""
    data = b""
    while len(data) < size:
        if not (piece := os.read(REQUESTS, size - len(data))):
            break
        data += piece
    return data


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(REPLIES, data) :]
