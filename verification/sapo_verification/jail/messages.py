"""Messages between a node, the jail's worker and the jailed child: framed, bounded JSON, parsed strictly.

A frame is four bytes of length, big-endian, then that much ASCII JSON. The child may be hostile: every
reply is checked against the request it answers, and the child that sent an invalid one is killed.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from sapo_protocol.suite import Family

HEADER_BYTES: Final = 4

TOKEN_BYTES: Final = 8
"""Between worker and child, a request begins with random bytes that its reply repeats. So a child can answer
the current request, but cannot prepare a reply to a later one."""

MAX_REQUEST_BYTES: Final = 256 * 1024
"""More than a group of 128 KiB, the largest that fits an envelope, takes in base64."""

MAX_REPLY_BYTES: Final = 64 * 1024
"""The longest prompt of the catalogue, ten grids of thirty by thirty, has under 20,000 characters."""

READY: Final = b"ready"
"""The first frame that a worker sends when it is ready; its next frame answers a request."""

MAX_SETUP_BYTES: Final = 1024 * 1024
"""64 families of a few KiB each."""


class MalformedMessage(Exception):
    """Error for bytes that are no message of this protocol."""


MAX_BRACKETS: Final = 4096
"""Bounds the nesting: the decoder recurses in C, and libraries of the node raise Python's recursion limit, so
that a hostile child's reply of 100,000 brackets would crash the node. Honest prompts hold a few hundred."""


PATIENCE: Final = 10
"""A check ends after this many deadlines of wall-clock time, if it has not used one of processor time."""


class Failure(StrEnum):
    """Reasons for which a check has no result."""

    TIMEOUT = "timeout"
    """It used up its deadline of processor time."""
    CRASH = "crash"
    MALFORMED = "malformed"
    UNDERIVABLE = "underivable"
    """The task has no item, on any node; the only failure that a child may report."""
    NODE_BUSY = "node_busy"
    """The node was too busy: ten deadlines of wall-clock time passed with less than one of processor time."""
    CLOSED = "closed"

    @property
    def decides_nothing(self) -> bool:
        """Whether only this node is the cause, so that the check may succeed elsewhere, or here later."""
        return self in (Failure.NODE_BUSY, Failure.CLOSED)


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings that a worker needs before its first request.

    Attributes:
        deadline_seconds: of processor time, for one request.
    """

    families: tuple[Family, ...]
    deadline_seconds: float
    scorer_modules: tuple[str, ...]

    @property
    def longest_seconds(self) -> float:
        """Wall-clock seconds after which a request ends in any case."""
        return PATIENCE * self.deadline_seconds


@dataclass(frozen=True, slots=True)
class Request:
    """Request to derive one item and score completions of it; without completions it is only derived."""

    family: int
    seed: int
    completions: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """A task's prompt and the reward, 0.0 or 1.0, of each completion."""

    prompt: str
    rewards: tuple[float, ...]


def frame(body: bytes) -> bytes:
    """Return a message with its length before it."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def frame_length(header: bytes, max_bytes: int) -> int:
    """Return the length that a header announces.

    Raises:
        MalformedMessage: it is more than ``max_bytes``.
    """
    length = int.from_bytes(header, "big")
    if length > max_bytes:
        raise MalformedMessage(f"a frame of {length} bytes, {max_bytes} allowed")
    return length


def encode_setup(setup: Setup) -> bytes:
    """Return a setup as a frame's body."""
    return _dump(asdict(setup))


def decode_setup(body: bytes) -> Setup:
    """Return the setup that a node sent."""
    fields = _load(body, {"families", "deadline_seconds", "scorer_modules"})
    families = tuple(Family(**family) for family in fields["families"])
    return Setup(families, float(fields["deadline_seconds"]), tuple(fields["scorer_modules"]))


def encode_request(request: Request) -> bytes:
    """Return a request as a frame's body."""
    completions = [b64encode(completion).decode("ascii") for completion in request.completions]
    return _dump({"family": request.family, "seed": request.seed, "completions": completions})


def decode_request(body: bytes) -> Request:
    """Return the request that a node sent."""
    fields = _load(body, {"family", "seed", "completions"})
    completions = tuple(b64decode(completion, validate=True) for completion in fields["completions"])
    return Request(fields["family"], fields["seed"], completions)


def encode_reply(reply: Checked | Failure) -> bytes:
    """Return a reply as a frame's body."""
    if isinstance(reply, Failure):
        return _dump({"failure": reply.value})
    return _dump({"prompt": reply.prompt, "rewards": [int(reward) for reward in reply.rewards]})


def decode_reply(body: bytes, completions: int) -> Checked | Failure:
    """Return the reply to a request with that many completions.

    Raises:
        MalformedMessage: it is neither a failure nor a prompt with one 0 or 1 per completion.
    """
    fields = _load(body)
    if fields.keys() == {"failure"}:
        return _failure(fields["failure"])
    if fields.keys() != {"prompt", "rewards"}:
        raise MalformedMessage("neither a result nor a failure")
    return Checked(_prompt(fields["prompt"]), _rewards(fields["rewards"], completions))


def _failure(value: object) -> Failure:
    try:
        return Failure(str(value))
    except ValueError as error:
        raise MalformedMessage("the failure is unknown") from error


def _prompt(value: object) -> str:
    if not isinstance(value, str):
        raise MalformedMessage("the prompt is not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedMessage("the prompt holds a lone surrogate") from error
    return value


def _rewards(value: object, count: int) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != count:
        raise MalformedMessage(f"not one reward for each of {count} completions")
    if not all(type(reward) is int and reward in (0, 1) for reward in value):
        raise MalformedMessage("a reward that is neither 0 nor 1")
    return tuple(float(reward) for reward in value)


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def _load(body: bytes, keys: Sequence[str] | set[str] = ()) -> dict[str, Any]:
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise MalformedMessage("more brackets than a message has")
    try:
        fields = json.loads(body.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("not JSON") from error
    if not isinstance(fields, dict) or (keys and fields.keys() != set(keys)):
        raise MalformedMessage("not the fields of this message")
    return fields
