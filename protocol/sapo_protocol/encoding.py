"""Deterministic CBOR (RFC 8949, 4.2.1), the part of it that the protocol uses.

Five kinds of values and one encoding for each: unsigned integers below 2**64, byte strings,
text, arrays, and maps with ascending integer keys.
No floats, no tags, no negative numbers, no indefinite lengths, no simple values.
The decoder refuses whatever the encoder would not have written, so ``encode(decode(x)) == x``,
and one value has one content id.
It allocates nothing before the bytes that were promised are known to be there, and it counts
values: an empty map is one byte on the wire and sixty-four in memory.
Objects with long lists are checked whole without being built (``decode_lists``), and their lists
are then read item by item.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sapo_protocol.constants import MAX_NESTING, MAX_UINT64, MAX_VALUES
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.rules import Rule

Value: TypeAlias = "int | bytes | str | Sequence[Value] | Mapping[int, Value]"
Field: TypeAlias = "Value | Encoded"


@dataclass(frozen=True, slots=True)
class Encoded:
    """An array that was checked from end to end and left as it came."""

    data: bytes

    def items(self) -> tuple[int, Iterator[Value]]:
        """How many items it has, and the items, each built when it is asked for."""
        reader = _Reader(self.data, MAX_VALUES)
        _, length = reader.head()
        return length, (reader.value(MAX_NESTING) for _ in range(length))


_UINT: Final = 0
_BYTES: Final = 2
_TEXT: Final = 3
_ARRAY: Final = 4
_MAP: Final = 5


def encode(value: Value) -> bytes:
    """The one encoding of a value.

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


def decode(data: bytes, most_values: int = MAX_VALUES) -> Value:
    """The value of an encoding, of at most so many values.

    Raises:
        RemoteProtocolError: the bytes are no deterministic encoding of anything (``NOT_CANONICAL``),
            or of more values than any object has (``OUT_OF_BOUNDS``).
    """
    reader = _Reader(data, most_values)
    value = reader.value(MAX_NESTING)
    reader.require_end()
    return value


def decode_lists(data: bytes, most_values: int, most_fields: int) -> Mapping[int, Field] | None:
    """The map that is encoded, its arrays left encoded; none where the encoding is of something else.

    Of more fields than there may be, only one too many is kept. The bytes are checked as by ``decode``,
    but the peak of what is allocated is about their own size, whatever they are.

    Raises:
        RemoteProtocolError: as ``decode``.
    """
    reader = _Reader(data, most_values)
    fields = reader.fields(most_fields)
    reader.require_end()
    return fields


def _encode(value: Value, out: bytearray) -> None:
    match value:
        case bool():
            raise LocalProtocolError("the wire carries no booleans")
        case int():
            _encode_head(_UINT, value, out)
        case bytes():
            _encode_string(_BYTES, value, out)
        case str():
            _encode_string(_TEXT, _utf8(value), out)
        case Mapping():
            _encode_map(value, out)
        case list() | tuple():
            _encode_head(_ARRAY, len(value), out)
            for item in value:
                _encode(item, out)
        case _:
            raise LocalProtocolError(f"the wire carries no {type(value).__name__}")


def _encode_map(value: Mapping[int, Value], out: bytearray) -> None:
    if not all(isinstance(key, int) for key in value):
        raise LocalProtocolError("map keys are integers")
    _encode_head(_MAP, len(value), out)
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


class _Reader:
    """A place in a message, and how many values were read up to it."""

    def __init__(self, data: bytes, most_values: int) -> None:
        self._data = data
        self._most_values = most_values
        self._values = 0
        self.at = 0

    def require_end(self) -> None:
        """Nothing, if the message ends here."""
        if left := len(self._data) - self.at:
            raise RemoteProtocolError(Rule.NOTHING_BEHIND, f"{left} bytes after the value")

    def fields(self, most: int) -> Mapping[int, Field] | None:
        """The map that begins here, its arrays left encoded; none for any other value."""
        begin, values = self.at, self._values
        major, length = self.head()
        if major != _MAP:
            self.at, self._values = begin, values
            self.value(MAX_NESTING, kept=False)
            return None
        items: dict[int, Field] = {}
        for key in self._keys(length):
            begin = self.at
            value = self.value(MAX_NESTING - 1, kept=False)
            if len(items) <= most:
                items[key] = Encoded(self._data[begin : self.at]) if isinstance(value, tuple) else value
        return items

    def value(self, depth: int, *, kept: bool = True) -> Value:
        """The value that begins here, with at most ``depth`` levels of arrays and maps in it.

        Arrays and maps that are not to be kept come out empty.
        """
        major, argument = self.head()
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
                return self._array(argument, depth - 1, kept)
            case 5:
                return self._map(argument, depth - 1, kept)
            case _:
                raise RemoteProtocolError(Rule.MAJOR_TYPE, f"major type {major} is not used")

    def head(self) -> tuple[int, int]:
        """Major type and argument of one more value."""
        self._values += 1
        if self._values > self._most_values:
            raise RemoteProtocolError(Rule.VALUE_COUNT, f"more than {self._most_values} values")
        first = self._take(1)[0]
        major, low = first >> 5, first & 0x1F
        if low < 24:
            return major, low
        if low > 27:
            raise RemoteProtocolError(Rule.DEFINITE_LENGTH, "indefinite or reserved length")
        size = 1 << (low - 24)
        argument = int.from_bytes(self._take(size), "big")
        shortest = 24 if size == 1 else 1 << (4 * size)
        if argument < shortest:
            raise RemoteProtocolError(Rule.SHORTEST_HEAD, "a number is written longer than it must be")
        return major, argument

    def _array(self, length: int, depth: int, kept: bool) -> tuple[Value, ...]:
        if length > len(self._data) - self.at:
            raise RemoteProtocolError(Rule.ITEMS_THERE, "an array is longer than its bytes")
        if kept:
            return tuple([self.value(depth) for _ in range(length)])
        for _ in range(length):
            self.value(depth, kept=False)
        return ()

    def _map(self, length: int, depth: int, kept: bool) -> dict[int, Value]:
        items: dict[int, Value] = {}
        for key in self._keys(length):
            value = self.value(depth, kept=kept)
            if kept:
                items[key] = value
        return items

    def _keys(self, length: int) -> Iterator[int]:
        """The keys of a map that begins here; its values are read in between."""
        if 2 * length > len(self._data) - self.at:
            raise RemoteProtocolError(Rule.ITEMS_THERE, "a map is longer than its bytes")
        last = -1
        for _ in range(length):
            major, key = self.head()
            if major != _UINT:
                raise RemoteProtocolError(Rule.MAP_KEY_TYPE, "a map key is no integer")
            if key <= last:
                raise RemoteProtocolError(Rule.MAP_KEYS_ASCEND, "map keys do not ascend")
            last = key
            yield key

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._data):
            raise RemoteProtocolError(Rule.BYTES_THERE, "the value stops early")
        taken = self._data[self.at : end]
        self.at = end
        return taken


def _decode_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(Rule.TEXT_UTF8, "text is not UTF-8") from error
