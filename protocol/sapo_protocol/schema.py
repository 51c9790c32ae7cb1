"""Typed reading of decoded maps: closed schemas, every bound checked where a field is read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from sapo_protocol.constants import MAX_FLAT_VALUES, MAX_UINT64, MAX_VALUES
from sapo_protocol.encoding import Encoded, Field, Value, decode, decode_lists
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import FixedBytes
from sapo_protocol.rules import Rule

Fixed = TypeVar("Fixed", bound=FixedBytes)


@dataclass(frozen=True, slots=True)
class Schema:
    """Which fields an object has, and the rules that say so.

    Attributes:
        keys: refuses a map with other keys than the required and perhaps the optional ones.
        types: refuses a field of another type.
        required: the integer keys that must be there.
        optional: the integer keys that may be there.
        has_lists: whether it holds long lists, which are read item by item.
    """

    keys: Rule
    types: Rule
    required: range
    optional: frozenset[int] = frozenset()
    has_lists: bool = False


class Bound(NamedTuple):
    """The size of a number, a byte string or an array, and the rule that bounds it."""

    rule: Rule
    least: int = 0
    most: int = MAX_UINT64

    def require(self, size: int) -> None:
        """Nothing, if the size is within the bound."""
        if not self.least <= size <= self.most:
            raise RemoteProtocolError(self.rule, f"{size}, not {self.least} to {self.most}")


class Fields:
    """The fields of one decoded object, read one by one."""

    def __init__(self, data: bytes, schema: Schema) -> None:
        self._types = schema.types
        self._fields: Mapping[int, Field]
        if schema.has_lists:
            self._fields = _closed(decode_lists(data, MAX_VALUES, len(schema.required)), schema)
        else:
            self._fields = _closed(decode(data, MAX_FLAT_VALUES), schema)

    def has(self, key: int) -> bool:
        """Whether an optional field is there."""
        return key in self._fields

    def uint(self, key: int, bound: Bound | None = None) -> int:
        """An unsigned integer."""
        return uint(self._fields[key], self._types, bound)

    def data(self, key: int, bound: Bound | None = None) -> bytes:
        """A byte string."""
        return data(self._fields[key], self._types, bound)

    def fixed(self, key: int, type_: type[Fixed]) -> Fixed:
        """A byte string of a fixed-size type."""
        return type_.parse(self._fields[key], self._types)

    def array(self, key: int, bound: Bound | None = None) -> tuple[Value, ...]:
        """An array."""
        return array(self._fields[key], self._types, bound)

    def items(self, key: int, bound: Bound) -> Iterator[Value]:
        """The items of a long list, one by one."""
        value = self._fields[key]
        if not isinstance(value, Encoded):
            raise RemoteProtocolError(self._types, "not an array")
        length, items = value.items()
        bound.require(length)
        return items


def _closed(value: object, schema: Schema) -> Mapping[int, Field]:
    if not isinstance(value, Mapping):
        raise RemoteProtocolError(schema.keys, "not a map")
    keys = set(value)
    if missing := set(schema.required) - keys:
        raise RemoteProtocolError(schema.keys, f"fields {sorted(missing)} are missing")
    if unknown := keys - set(schema.required) - schema.optional:
        raise RemoteProtocolError(schema.keys, f"fields {sorted(unknown)} are unknown")
    return value


def uint(value: Field, types: Rule, bound: Bound | None = None) -> int:
    """An unsigned integer within its bound, or a refusal by the rule of types or of the bound."""
    if not isinstance(value, int):
        raise RemoteProtocolError(types, "not an integer")
    if bound is not None:
        bound.require(value)
    return value


def data(value: Field, types: Rule, bound: Bound | None = None) -> bytes:
    """A byte string of a length within its bound."""
    if not isinstance(value, bytes):
        raise RemoteProtocolError(types, "not a byte string")
    if bound is not None:
        bound.require(len(value))
    return value


def array(value: Field, types: Rule, bound: Bound | None = None) -> tuple[Value, ...]:
    """An array of a number of items within its bound."""
    if not isinstance(value, tuple):
        raise RemoteProtocolError(types, "not an array")
    if bound is not None:
        bound.require(len(value))
    return value
