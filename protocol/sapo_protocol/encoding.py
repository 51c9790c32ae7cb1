"""Deterministic CBOR (RFC 8949, 4.2.1), the part of it that the protocol uses.

Five kinds of values and one encoding for each: unsigned integers below 2**64, byte strings,
text, arrays, and maps with ascending integer keys.
No floats, no tags, no negative numbers, no indefinite lengths, no simple values.
The decoder refuses whatever the encoder would not have written, so ``encode(decode(x)) == x``,
and one value has one content id.
It allocates nothing before the bytes that were promised are known to be there, and it counts
values: an empty map is one byte on the wire and sixty-four in memory.
Objects with a schema are read by the same ``Reader`` in one pass, without building maps and arrays
first (``schema.Fields``).
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from sapo_protocol.constants import MAX_NESTING, MAX_UINT64, MAX_VALUES
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.rules import Rule

Value: TypeAlias = "int | bytes | str | Sequence[Value] | Mapping[int, Value]"

UINT: Final = 0
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5

_SHORTEST: Final = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
"""By the low bits of a head's first byte, the smallest argument that needs so many bytes."""


def decode(data: bytes, most_values: int = MAX_VALUES) -> Value:
    """Return the value of an encoding of at most so many values.

    Raises:
        RemoteProtocolError: the bytes are no deterministic encoding of anything (``NOT_CANONICAL``),
            or of more values than any object has (``OUT_OF_BOUNDS``).
    """
    reader = Reader(data, most_values)
    value = reader.value(MAX_NESTING)
    reader.require_end()
    return value


class Reader:
    """A place in a message, and how many values may still follow it."""

    __slots__ = ("_at", "_data", "_left")

    def __init__(self, data: bytes, most_values: int) -> None:
        self._data = data
        self._left = most_values
        self._at = 0

    def require_end(self) -> None:
        """Raise unless the message ends here."""
        if behind := len(self._data) - self._at:
            raise RemoteProtocolError(Rule.NOTHING_BEHIND, f"{behind} bytes after the value")

    def value(self, depth: int, *, kept: bool = True) -> Value:
        """Read the value that begins here, with at most ``depth`` levels of arrays and maps in it.

        Arrays and maps that are not to be kept come out empty.
        """
        major, argument = self._head()
        return self._content(major, argument, depth, kept=kept)

    def _head(self) -> tuple[int, int]:
        """Read major type and argument of one more value."""
        if self._left < 1:
            raise RemoteProtocolError(Rule.VALUE_COUNT, "more values than the object may have")
        self._left -= 1
        at = self._at
        if at >= len(self._data):
            raise RemoteProtocolError(Rule.BYTES_THERE, "the value stops early")
        first = self._data[at]
        self._at = at + 1
        argument = first & 0x1F
        return first >> 5, argument if argument < 24 else self._argument(argument)

    def _argument(self, low: int) -> int:
        """Read the argument behind the first byte of a head, whose low bits say how long it is."""
        if low > 27:
            raise RemoteProtocolError(Rule.DEFINITE_LENGTH, "indefinite or reserved length")
        data, begin = self._data, self._at
        self._at = end = begin + (1 << (low - 24))
        if end > len(data):
            raise RemoteProtocolError(Rule.BYTES_THERE, "the value stops early")
        argument = data[begin] if low == 24 else int.from_bytes(data[begin:end], "big")
        if argument < _SHORTEST[low]:
            raise RemoteProtocolError(Rule.SHORTEST_HEAD, "a number is written longer than it must be")
        return argument

    def _content(self, major: int, argument: int, depth: int, *, kept: bool) -> Value:
        """Read what follows a head."""
        match major:
            case 0:
                return argument
            case 2:
                return self._take(argument)
            case 3:
                return _decode_text(self._take(argument))
            case 4 | 5 if depth == 0:
                raise RemoteProtocolError(Rule.NESTING, f"nested deeper than {MAX_NESTING}")
            case 4:
                return self._array(argument, depth - 1, kept=kept)
            case 5:
                return self._map(argument, depth - 1, kept=kept)
            case _:
                raise RemoteProtocolError(Rule.MAJOR_TYPE, f"major type {major} is not used")

    def _array(self, length: int, depth: int, *, kept: bool) -> tuple[Value, ...]:
        self._require_items(length)
        if kept:
            return tuple([self.value(depth) for _ in range(length)])
        for _ in range(length):
            self.value(depth, kept=False)
        return ()

    def _map(self, length: int, depth: int, *, kept: bool) -> dict[int, Value]:
        self._require_items(2 * length)
        items: dict[int, Value] = {}
        key = -1
        for _ in range(length):
            key = self._key(key)
            value = self.value(depth, kept=kept)
            if kept:
                items[key] = value
        return items

    def _require_items(self, count: int) -> None:
        """Raise unless the bytes of so many values can be there."""
        if count > len(self._data) - self._at:
            raise RemoteProtocolError(Rule.ITEMS_THERE, "an array or map is longer than its bytes")

    def _key(self, last: int) -> int:
        """Read a map key that follows another."""
        major, key = self._head()
        if major != UINT:
            raise RemoteProtocolError(Rule.MAP_KEY_TYPE, "a map key is no integer")
        if key <= last:
            raise RemoteProtocolError(Rule.MAP_KEYS_ASCEND, "map keys do not ascend")
        return key

    def _take(self, length: int) -> bytes:
        begin = self._at
        end = begin + length
        if end > len(self._data):
            raise RemoteProtocolError(Rule.BYTES_THERE, "the value stops early")
        self._at = end
        return self._data[begin:end]


def _decode_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(Rule.TEXT_UTF8, "text is not UTF-8") from error


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
        raise LocalProtocolError(f"{argument} is no unsigned 64-bit integer")
    if argument < 24:
        out.append(major << 5 | argument)
        return
    size = 1 if argument < 1 << 8 else 2 if argument < 1 << 16 else 4 if argument < 1 << 32 else 8
    out.append(major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[size])
    out += argument.to_bytes(size, "big")
