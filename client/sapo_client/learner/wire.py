"""Messages between node and learner: frames of four length bytes, big-endian, and one CBOR map.

Both ends are processes of one user on one machine, so floats are allowed and there is no schema beside the
code.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, Final

import cbor2

HEADER: Final = struct.Struct(">I")

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """Encode a message as a frame."""
    body = cbor2.dumps(message)
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> Message:
    """Decode a frame's body."""
    message: Message = cbor2.loads(body)
    return message


def read_frame(stream: BinaryIO) -> Message | None:
    """Read the next message of a blocking stream; return None once it has ended."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    body = stream.read(length)
    return unpack(body) if len(body) == length else None


def take_frames(buffer: bytearray) -> list[Message]:
    """Remove all complete frames from the front of a buffer and return their messages."""
    messages: list[Message] = []
    while len(buffer) >= HEADER.size:
        (length,) = HEADER.unpack_from(buffer)
        stop = HEADER.size + length
        if len(buffer) < stop:
            break
        messages.append(unpack(bytes(buffer[HEADER.size : stop])))
        del buffer[:stop]
    return messages
