"""The pipe between node and learner: frames of four length bytes, big-endian, and one CBOR map.

Both ends are processes of one user on one machine, so floats are welcome and schemas are the two ends' code.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, Final

import cbor2

HEADER: Final = struct.Struct(">I")

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """A message as a frame."""
    body = cbor2.dumps(message)
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> Message:
    """A frame's body as a message."""
    message: Message = cbor2.loads(body)
    return message


def read_frame(stream: BinaryIO) -> Message | None:
    """The next message of a blocking stream; None once it has ended."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    body = stream.read(length)
    return unpack(body) if len(body) == length else None
