"""Start of jail processes: command line, clean environment, and the two commands that need no pool."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Final

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Family
from sapo_verification.jail.messages import (
    HEADER_BYTES,
    Checked,
    Failure,
    Request,
    Setup,
    decode_reply,
    encode_request,
    encode_setup,
    frame,
)
from sapo_verification.jail.sandbox import Restriction

SAMPLE_SEEDS: Final = tuple(place * 0x3C6EF372 % 2**31 for place in range(16))
"""Sixteen items of each family; not of neighbouring seeds, because items are seeded with seed + index."""

_COMMAND_SECONDS: Final = 120
"""The items of all families take 5 s on an idle machine, and much longer on a loaded one."""


def command(mode: str) -> list[str]:
    """Return the command line of a jail process; ``-P`` keeps its working folder off the import path."""
    return [sys.executable, "-P", "-s", "-m", "sapo_verification.jail", mode]


def environment() -> dict[str, str]:
    """Return the environment of a jail process: the import path, and settings that make it deterministic."""
    return {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "LC_ALL": "C",
        "TZ": "UTC",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


@cache
def sample_digest(families: tuple[Family, ...]) -> Digest:
    """Return the SHA-256 over sample prompts of every family, derived in the jail.

    Raises:
        LocalProtocolError: this machine's jail does not work.
    """
    requests = [Request(place, seed, ()) for place in range(len(families)) for seed in SAMPLE_SEEDS]
    setup = Setup(families, deadline_seconds=10.0, scorer_modules=())
    bodies = [encode_setup(setup), *map(encode_request, requests)]
    replies = _run("serve", b"".join(map(frame, bodies)))
    texts = [family.name for family in families]
    _ready, *answers = _unframe(replies)
    for request, answer in zip(requests, answers, strict=True):
        texts.append(_sample(decode_reply(answer, len(request.completions))))
    return Digest(sha256(json.dumps(texts).encode("ascii")).digest())


def _sample(reply: Checked | Failure) -> str:
    if isinstance(reply, Checked):
        return reply.prompt
    if reply is Failure.UNDERIVABLE:
        return ""
    raise LocalProtocolError(f"a checker derived no sample item: {reply}")


def describe() -> tuple[Restriction, ...]:
    """Return which restrictions work on this machine, each tested from inside a jailed process."""
    return tuple(Restriction(**fields) for fields in json.loads(_run("restrictions", b"")))


def _run(mode: str, stdin: bytes) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and module, no shell
            command(mode),
            input=stdin,
            capture_output=True,
            env=environment(),
            cwd="/",
            timeout=_COMMAND_SECONDS,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        last = (error.stderr or b"").decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise LocalProtocolError(f"the checker process failed: {last or error}") from error
    return done.stdout


def _unframe(stream: bytes) -> Sequence[bytes]:
    """Return the bodies of consecutive frames."""
    bodies, place = [], 0
    while place < len(stream):
        start = place + HEADER_BYTES
        place = start + int.from_bytes(stream[place:start], "big")
        bodies.append(stream[start:place])
    return bodies
