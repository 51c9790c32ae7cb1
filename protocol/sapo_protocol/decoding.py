"""Reading of the encoding, strict and in one pass: plain values, and objects with a closed schema.

The encoding is that of ``encoding``: the decoder refuses whatever the encoder would not have written, so
``encode(decode(x)) == x``, and one value has one content id. It allocates nothing before the bytes that were
promised are known to be there, and it counts values: an empty map is one byte on the wire and sixty-four in
memory.

Objects are read field by field, without building maps and arrays first. The order of checks is part of the
protocol: the whole encoding comes before the schema, and the set of keys before any field. A field that
breaks a rule of its schema is therefore refused in two steps: the encoding of everything behind it is checked
first, and only then is the field's own rule raised.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, TypeAlias, TypeVar

from sapo_protocol.constants import LAST_RESERVED, MAX_FLAT_VALUES, MAX_NESTING, MAX_UINT64, MAX_VALUES
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, FixedBytes
from sapo_protocol.rules import Rule

Value: TypeAlias = "int | bytes | str | Sequence[Value] | Mapping[int, Value]"

UINT: Final = 0
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5

_SHORTEST: Final = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
"""Smallest argument whose shortest encoding has the length that these low bits of a head's first byte
state."""

Fixed = TypeVar("Fixed", bound=FixedBytes)

_SHORT_STRING = 0x58
"""First byte of the head of a byte string of 24 to 255 bytes; the second is the length."""

_SMALL_MAP = 0xA0
"""First byte of the head of an empty map; those of maps of up to 23 pairs follow."""

_FIELD_DEPTH = MAX_NESTING - 1
"""Levels of arrays and maps that a field's value may still nest."""


def decode(data: bytes, max_values: int = MAX_VALUES) -> Value:
    """Return the value of an encoding that holds at most a given number of values.

    Raises:
        RemoteProtocolError: the bytes are not the deterministic encoding of a value (``NOT_CANONICAL``), or
            hold more values than ``max_values`` (``OUT_OF_BOUNDS``).
    """
    reader = Reader(data, max_values)
    value = reader.value(MAX_NESTING)
    reader.require_end()
    return value


class Reader:
    """A read position in a message, and how many values may still follow it."""

    __slots__ = ("_at", "_data", "_left")

    def __init__(self, data: bytes, max_values: int) -> None:
        self._data = data
        self._left = max_values
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
        """Read the argument of a head; the low bits of the head's first byte state its length."""
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
        """Raise unless enough bytes remain for ``count`` values of at least one byte each."""
        if count > len(self._data) - self._at:
            raise RemoteProtocolError(Rule.ITEMS_THERE, "an array or map is longer than its bytes")

    def _key(self, last: int) -> int:
        """Read a map key, which must be above the last one."""
        major, key = self._head()
        if major != UINT:
            raise RemoteProtocolError(Rule.MAP_KEY_TYPE, "a map key is not an integer")
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


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of an object and the rules about them; keys count up from 0, the optional ones last.

    Any selection of the optional fields may be there. Keys behind them up to ``LAST_RESERVED`` are reserved.

    Attributes:
        keys: refuses a map with other keys.
        types: refuses a field of another type.
        reserved: refuses a map with a reserved key, before any field is judged: a later version may have
            changed what the fields mean.
        required: the number of fields that must be there.
        optional: the number of fields that may follow them.
        demanded: keys of those that must be there all the same.
        foreign: the number of keys behind these that other swarms use, and this one refuses.
        max_values: how many values the encoding may have, map keys included.
    """

    keys: Rule
    types: Rule
    reserved: Rule
    required: int
    optional: int = 0
    max_values: int = MAX_FLAT_VALUES
    demanded: frozenset[int] = frozenset()
    foreign: int = 0

    def allows(self, key: int) -> bool:
        """Whether a map may have a key, reserved ones included."""
        known = self.required + self.optional
        return key < known or known + self.foreign <= key <= LAST_RESERVED


class Bound(NamedTuple):
    """The size of a number, a byte string or an array, and the rule that bounds it."""

    rule: Rule
    minimum: int = 0
    maximum: int = MAX_UINT64


class Fields(Reader):
    """The fields of one encoded object, read one by one in the order of their keys.

    Every method that reads raises ``RemoteProtocolError`` with the first rule, in the order of the
    specification, that the whole object breaks. ``require_end`` comes after the last field.
    """

    __slots__ = ("_absent", "_count", "_key_read", "_schema")

    def __init__(self, data: bytes, schema: Schema) -> None:
        self._data = data
        self._left = schema.max_values
        self._at = 0
        self._schema = schema
        self._key_read = -1
        self._absent: tuple[int, ...] = ()
        self._count = count = data[0] - _SMALL_MAP if data else -1
        if count == schema.required and 2 * count < len(data):
            self._at = 1  # nearly every object begins so, and is read without a call
            self._left -= 1
            return
        self._count = 0
        major, count = self._head()
        if major != MAP:
            self._content(major, count, MAX_NESTING, kept=False)
            self.refuse(schema.keys, "not a map")
        self._require_items(2 * count)
        self._count = count
        if not schema.required <= count <= LAST_RESERVED + 1 - schema.foreign:
            self.refuse(schema.keys, f"{count} fields")

    def has(self, key: int) -> bool:
        """Whether an optional field comes next; call it for each of them in ascending order, after the
        required."""
        if self._pairs_left() and self._data[self._at : self._at + 1] == bytes((key,)):
            return True  # a key of a schema is one byte
        self._absent += (key,)
        return False

    def require_end(self) -> None:
        """Raise unless all fields were read, every demanded one among them, and the message ends here."""
        schema = self._schema
        is_short = self._absent or self._count > schema.required + schema.optional
        if is_short and (pairs := self._pairs_left()) + len(schema.demanded):
            self._finish(pairs, self._key_read)
        else:
            super().require_end()

    def lists_strings(self, key: int) -> bool:
        """Whether the next field is an array that begins with a byte string; reads nothing."""
        before = self._at, self._left, self._key_read
        major, length = self._field(key)
        first = self._data[self._at : self._at + 1] if major == ARRAY and length else b""
        self._at, self._left, self._key_read = before
        return first != b"" and first[0] >> 5 == BYTES

    def uint(self, key: int, bound: Bound | None = None) -> int:
        """Read an unsigned integer."""
        major, value = self._field(key)
        if major != UINT:
            self._refuse_type(major, value)
        if bound is not None and not bound.minimum <= value <= bound.maximum:
            self.require(bound, value)
        return value

    def data(self, key: int, bound: Bound | None = None) -> bytes:
        """Read a byte string."""
        major, length = self._field(key)
        if major != BYTES:
            self._refuse_type(major, length)
        begin = self._at
        self._at = end = begin + length
        if end > len(self._data):
            raise RemoteProtocolError(Rule.BYTES_THERE, "the value stops early")
        value = self._data[begin:end]
        if bound is not None and not bound.minimum <= length <= bound.maximum:
            self.require(bound, length)
        return value

    def fixed(self, key: int, type_: type[Fixed]) -> Fixed:
        """Read a byte string of a fixed-size type."""
        major, length = self._field(key)
        if major != BYTES:
            self._refuse_type(major, length)
        begin = self._at
        self._at = end = begin + length
        if end > len(self._data):
            raise RemoteProtocolError(Rule.BYTES_THERE, "the value stops early")
        if length != type_.SIZE:
            self.refuse(self._schema.types, f"{type_.__name__} takes {type_.SIZE} bytes")
        # of the right size: the constructor would check it again
        return bytes.__new__(type_, self._data[begin:end])

    def strings(self, key: int, bound: Bound, each: Bound) -> tuple[bytes, ...]:
        """Read an array of byte strings, each of a length within its bound."""
        strings: list[bytes] = []
        behind_each = self._items(key, bound)
        append, short, maximum = strings.append, _SHORT_STRING, each.maximum
        data, at, left, end = self._data, self._at, self._left, len(self._data)
        for behind in behind_each:
            # most completions have such a head, so it is read without a call
            if left and at + 1 < end and data[at] == short and (length := data[at + 1]) > 23:
                at += 2
                left -= 1
            else:
                self._at, self._left = at, left
                major, length = self._head()
                if major != BYTES:
                    self._refuse_type(major, length, behind)
                at, left = self._at, self._left
            begin = at
            at += length
            if at > end:
                raise RemoteProtocolError(Rule.BYTES_THERE, "the value stops early")
            if length > maximum:
                self._at, self._left = at, left
                self.require(each, length, behind)
            append(data[begin:at])
        self._at, self._left = at, left
        return tuple(strings)

    def fixed_array(self, key: int, bound: Bound, type_: type[Fixed]) -> tuple[Fixed, ...]:
        """Read an array of byte strings of a fixed-size type."""
        return tuple([self._fixed(type_, *self._head(), behind) for behind in self._items(key, bound)])

    def rows(self, key: int, bound: Bound, width: Bound) -> Iterator[tuple[Account, tuple[int, ...]]]:
        """Yield the rows of a long list, each an account and numbers, without building the list."""
        for behind in self._items(key, bound):
            major, length = self._head()
            if major != ARRAY:
                self._refuse_type(major, length, behind)
            self._require_items(length)
            self.require(width, length, length, behind)
            account = self._fixed(Account, *self._head(), length - 1, behind)
            yield account, tuple([self._number(left, behind) for left in range(length - 2, -1, -1)])

    def number_rows(self, key: int, bound: Bound, width: Bound) -> Iterator[tuple[int, ...]]:
        """Yield the rows of a list, each of numbers."""
        for behind in self._items(key, bound):
            major, length = self._head()
            if major != ARRAY:
                self._refuse_type(major, length, behind)
            self._require_items(length)
            self.require(width, length, length, behind)
            yield tuple([self._number(left, behind) for left in range(length - 1, -1, -1)])

    def require(self, bound: Bound, size: int, *behind: int) -> None:
        """Raise unless the size of what was read last is within its bound; ``behind`` as in ``refuse``."""
        if not bound.minimum <= size <= bound.maximum:
            self.refuse(bound.rule, f"{size}, not {bound.minimum} to {bound.maximum}", *behind)

    def refuse(self, rule: Rule, detail: str, *behind: int) -> NoReturn:
        """Raise the rule, unless the rest of the object breaks a rule that takes precedence.

        Args:
            rule: what the field that was read last breaks.
            detail: how it breaks it.
            behind: how many items follow in each array that is not read to its end, innermost first.
        """
        for depth, count in enumerate(behind, _FIELD_DEPTH - len(behind)):
            for _ in range(count):
                self.value(depth, kept=False)
        self._finish(self._pairs_left(), self._key_read)
        raise RemoteProtocolError(rule, detail)

    def _pairs_left(self) -> int:
        """Return how many pairs follow the field that was read last."""
        return self._count - self._key_read - 1 + sum(key < self._key_read for key in self._absent)

    def _finish(self, pairs: int, last: int, *, is_closed: bool = True) -> None:
        """Raise if a following pair breaks a rule of the encoding, or the keys are not those of the schema.

        Args:
            pairs: how many there are.
            last: the key before them.
            is_closed: whether the keys up to there are the schema's.
        """
        schema = self._schema
        is_closed = is_closed and self._count >= schema.required
        demanded = {key for key in schema.demanded if key > last or key in self._absent}
        for _ in range(pairs):
            key = self._key(last)
            self.value(_FIELD_DEPTH, kept=False)
            is_next = key == last + 1 or schema.required <= last + 1  # of the optional fields any selection
            is_closed = is_closed and is_next and schema.allows(key)
            demanded.discard(key)
            last = key
        super().require_end()
        if demanded or not is_closed:
            raise RemoteProtocolError(schema.keys, "fields are missing or unknown")
        if last >= schema.required + schema.optional:
            raise RemoteProtocolError(schema.reserved, f"key {last} is reserved for a later version")

    def _field(self, key: int) -> tuple[int, int]:
        """Read the key of the next field and the head of its value."""
        data, at = self._data, self._at
        if self._left < 2 or at + 2 > len(data) or data[at] != key:  # a key of a schema is one byte
            return self._uncommon_field(key)
        self._left -= 2
        self._key_read = key
        first = data[at + 1]
        argument = first & 0x1F
        if argument < 24:
            self._at = at + 2
        elif argument == 24 and at + 2 < len(data) and data[at + 2] > 23:
            self._at = at + 3
            argument = data[at + 2]
        elif argument == 25 and at + 3 < len(data) and data[at + 2]:
            self._at = at + 4
            argument = data[at + 2] << 8 | data[at + 3]
        else:
            self._at = at + 2
            argument = self._argument(argument)
        return first >> 5, argument

    def _uncommon_field(self, key: int) -> tuple[int, int]:
        """Read what ``_field`` reads where its fast path does not apply, or raise."""
        found = self._key(self._key_read)
        if found != key:
            self.value(_FIELD_DEPTH, kept=False)
            self._finish(self._pairs_left() - 1, found, is_closed=False)
            raise RemoteProtocolError(self._schema.keys, f"field {found} instead of {key}")
        self._key_read = key
        return self._head()

    def _items(self, key: int, bound: Bound) -> range:
        """Read the head of an array; return, for each item in turn, how many items follow it."""
        major, length = self._field(key)
        if major != ARRAY:
            self._refuse_type(major, length)
        self._require_items(length)
        if not bound.minimum <= length <= bound.maximum:
            self.require(bound, length, length)
        return range(length - 1, -1, -1)

    def _fixed(self, type_: type[Fixed], major: int, length: int, *behind: int) -> Fixed:
        if major != BYTES:
            self._refuse_type(major, length, *behind)
        value = self._take(length)
        if length != type_.SIZE:
            self.refuse(self._schema.types, f"{type_.__name__} takes {type_.SIZE} bytes", *behind)
        return type_(value)

    def _number(self, *behind: int) -> int:
        major, value = self._head()
        if major != UINT:
            self._refuse_type(major, value, *behind)
        return value

    def _refuse_type(self, major: int, argument: int, *behind: int) -> NoReturn:
        """Refuse a value of the wrong type whose head was read."""
        self._content(major, argument, _FIELD_DEPTH - len(behind), kept=False)
        self.refuse(self._schema.types, f"major type {major} is not the field's type", *behind)
