"""Deterministic CBOR (RFC 8949, 4.2.1), the part of it that the protocol uses.

Five kinds of values and one encoding for each: unsigned integers below 2**64, byte strings,
text, arrays, and maps with ascending integer keys.
No floats, no tags, no negative numbers, no indefinite lengths, no simple values.
``decoding`` reads it.
"""

from collections.abc import Mapping

from sapo_protocol.constants import MAX_UINT64
from sapo_protocol.decoding import ARRAY, BYTES, MAP, TEXT, UINT, Value, decode
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError


def encode(value: Value) -> bytes:
    """Return the one encoding of a value.

    Raises:
        LocalProtocolError: the value is of a kind or shape that no decoder takes.
    """
    out = bytearray()
    _encode(value, out)
    encoded = bytes(out)
    try:
        decode(encoded)
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"the wire does not carry this: {error.detail}") from error
    return encoded


def _encode(value: Value, out: bytearray) -> None:
    match value:
        case bool():
            raise LocalProtocolError("the wire carries no booleans")
        case int():
            _encode_head(UINT, value, out)
        case bytes():
            _encode_string(BYTES, value, out)
        case str():
            _encode_string(TEXT, _utf8(value), out)
        case Mapping():
            _encode_map(value, out)
        case list() | tuple():
            _encode_head(ARRAY, len(value), out)
            for item in value:
                _encode(item, out)
        case _:
            raise LocalProtocolError(f"the wire carries no {type(value).__name__}")


def _encode_map(value: Mapping[int, Value], out: bytearray) -> None:
    if not all(isinstance(key, int) for key in value):
        raise LocalProtocolError("map keys are integers")
    _encode_head(MAP, len(value), out)
    for key in sorted(value):
        _encode(key, out)
        _encode(value[key], out)


def _encode_string(major: int, raw: bytes, out: bytearray) -> None:
    _encode_head(major, len(raw), out)
    out += raw


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError("the wire carries no lone surrogates") from error


def _encode_head(major: int, argument: int, out: bytearray) -> None:
    if not 0 <= argument <= MAX_UINT64:
        raise LocalProtocolError(f"{argument} is not an unsigned 64-bit integer")
    if argument < 24:
        out.append(major << 5 | argument)
        return
    size = 1 if argument < 1 << 8 else 2 if argument < 1 << 16 else 4 if argument < 1 << 32 else 8
    out.append(major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[size])
    out += argument.to_bytes(size, "big")
