"""Responses to requests: an array of messages, each of which is validated by itself."""

from collections.abc import Iterator
from typing import Any

from vectors.raw import Raw, cbor, head
from vectors.world import ALICE, BOB

Rows = Iterator[tuple[str, str | None, bytes]]
"""Name, the rule that refuses the response, and its bytes."""


def cases() -> Rows:
    """Yield every response of this file."""
    messages = [ALICE.certificate(), BOB.certificate()]
    yield "no messages", None, cbor([])
    yield "two messages", None, cbor(messages)
    yield "messages that are none", None, cbor([b"", b"\xff"])
    yield "8,191 messages", None, cbor([b""] * 8191)
    wrong: dict[str, Any] = {"a map": {}, "a number": 0, "bytes": b"", "text": ""}
    for name, value in wrong.items():
        yield f"{name} for the array", "R1.0.15", cbor(value)
        if name != "bytes":
            yield f"{name} for a message", "R1.0.15", cbor([*messages, value])
    yield "an array for a message", "R1.0.15", cbor([*messages, []])
    yield "nothing", "R1.0.2", b""
    yield "8,193 values", "R1.0.1", cbor([b""] * 8192)
    yield "noise for a message", "R1.0.3", cbor([messages[0], Raw(b"\xff")])
    yield "more messages than bytes", "R1.0.9", head(4, 3) + b"\x40\x40"
    yield "a byte more", "R1.0.11", cbor(messages) + b"\x00"
