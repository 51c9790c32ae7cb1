"""Number of fields of a gossip RPC, counted before it is parsed.

An empty submessage has two bytes on the wire and a hundred in memory, so an RPC of a megabyte would become
sixty. Each connection can send one, and forty of them at a time would be parsed to 2.4 GiB.
"""

from __future__ import annotations

from typing import Final

MAX_FIELDS: Final = 20_000
"""Fields of an RPC: 64 announcements of 256 ids each have 16,577."""

MIN_COUNTED_BYTES: Final = 32 * 1024
"""Shorter RPCs are not counted: what they become is bounded by their length."""

_MESSAGE, _CONTROL = 2, 3
"""Fields of an RPC whose own fields are counted, too."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES: Final = 10


class _MalformedError(ValueError):
    """The bytes are no protobuf message, or have more fields than counted."""


def has_few_fields(rpc: bytes) -> bool:
    """Whether an RPC has at most ``MAX_FIELDS`` fields; false as well if it is no protobuf message."""
    if len(rpc) < MIN_COUNTED_BYTES:
        return True
    try:
        count = 0
        pending = [(0, len(rpc), 0)]
        while pending:
            begin, end, depth = pending.pop()
            count += _count(rpc, begin, end, depth, MAX_FIELDS - count, pending)
    except _MalformedError:
        return False
    return True


def _count(rpc: bytes, at: int, end: int, depth: int, most: int, pending: list[tuple[int, int, int]]) -> int:
    """Return the number of fields between two places; add those that have fields of their own to ``pending``.

    Args:
        depth: 0 for fields of the RPC, 1 for those of its messages, 2 for those of its control part and 3 for
            those of a control message.

    Raises:
        _MalformedError: there are more than ``most``, or they are malformed.
    """
    count = 0
    while at < end:
        count += 1
        if count > most:
            raise _MalformedError
        tag, at = _varint(rpc, at, end)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(rpc, at, end)
        elif kind == _BYTES:
            length, at = _varint(rpc, at, end)
            if (inner := _inner_depth(depth, tag >> 3)) is not None:
                pending.append((at, at + length, inner))
            at += length
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:  # groups, which gossipsub does not use
            raise _MalformedError
    if at > end:
        raise _MalformedError
    return count


def _inner_depth(depth: int, field: int) -> int | None:
    if depth == 0:
        return {_MESSAGE: 1, _CONTROL: 2}.get(field)
    return 3 if depth == 2 else None


def _varint(rpc: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for place in range(at, min(at + _MAX_VARINT_BYTES, end)):
        byte = rpc[place]
        value |= (byte & 0x7F) << (7 * (place - at))
        if byte < 0x80:
            return value, place + 1
    raise _MalformedError
