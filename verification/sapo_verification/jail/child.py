"""The jailed child: derives items, scores answers, and has nowhere else to go.

It lives for a bounded number of calls, so that whatever an answer might do to it is soon forgotten.
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
from sapo_verification.jail.walls import enter
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Underivable, derive, solution
from sapo_verification.tasks.scorers import score

REQUESTS, REPLIES = 3, 4
"""File descriptors; 0, 1 and 2 lead nowhere."""

_DESCRIPTORS: Final = 5

_WARM_UP_SEEDS: Final = 16
"""Enough to meet every task of a generator that has several, but for the rarest."""

_WARM_UP_COMPLETIONS: Final = (b"", b"1", b"<answer>1/2</answer>", "¬P ∧ Q".encode(), b"\xff")


def imprison(requests: int, replies: int, warden: int, work: Callable[[], None]) -> NoReturn:
    """Turn a freshly forked process into a jailed one that works and ends.

    Nothing that the work raises gets past here: the process ends without a word, and its warden counts that.
    """
    status = 1
    try:
        os.dup2(requests, REQUESTS)
        os.dup2(replies, REPLIES)
        enter(_DESCRIPTORS, warden)
        work()
        status = 0
    finally:
        os._exit(status)


def serve(families: tuple[Family, ...]) -> None:
    """Answer requests until the warden closes the pipe."""
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
    """Touch every code path once, before the fork: behind the walls nothing can be imported any more."""
    for place in range(len(families)):
        for seed in range(_WARM_UP_SEEDS):
            answer(families, Request(place, seed, _WARM_UP_COMPLETIONS))
        _solve_one(families[place])


def _solve_one(family: Family) -> None:
    """Score an honest answer: a stock scorer looks at nothing else, and imports what it needs on the way."""
    for seed in range(_WARM_UP_SEEDS):
        with contextlib.suppress(Underivable):
            item = derive(family, seed)
            if (text := solution(family, item)) is not None:
                score(family, text, item.entry)
                return


def _read_exactly(size: int) -> bytes:
    """So many bytes, or none when the pipe has ended before the first."""
    data = b""
    while len(data) < size:
        if not (piece := os.read(REQUESTS, size - len(data))):
            break
        data += piece
    return data


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(REPLIES, data) :]
