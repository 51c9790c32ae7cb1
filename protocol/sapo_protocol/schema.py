"""Typed reading of decoded maps: closed schemas, every bound checked where a field is read."""

from collections.abc import Mapping

from sapo_protocol.constants import MAX_FLAT_VALUES, MAX_UINT64
from sapo_protocol.encoding import Value, decode
from sapo_protocol.errors import Reason, RemoteProtocolError


class Fields:
    """The fields of one decoded map, read one by one.

    Args:
        data: deterministic CBOR of a map.
        required: the integer keys that must be there.
        optional: the integer keys that may be there; any other key is refused.
        most_values: how many values there may be in all, keys included.
    """

    def __init__(
        self,
        data: bytes,
        required: range,
        optional: frozenset[int] = frozenset(),
        *,
        most_values: int = MAX_FLAT_VALUES,
    ) -> None:
        self._fields = closed(decode(data, most_values), required, optional)

    def has(self, key: int) -> bool:
        """Whether an optional field is there."""
        return key in self._fields

    def uint(self, key: int, *, most: int = MAX_UINT64) -> int:
        """An unsigned integer of at most ``most``."""
        return uint(self._fields[key], most=most)

    def data(self, key: int, *, least: int = 0, most: int) -> bytes:
        """A byte string of ``least`` to ``most`` bytes."""
        return data(self._fields[key], least=least, most=most)

    def text(self, key: int, *, most: int) -> str:
        """Text of at most ``most`` characters."""
        value = self._fields[key]
        if not isinstance(value, str):
            raise RemoteProtocolError(Reason.SCHEMA, f"field {key} is no text")
        if len(value) > most:
            raise RemoteProtocolError(Reason.OUT_OF_BOUNDS, f"field {key} is longer than {most} characters")
        return value

    def array(self, key: int, *, least: int = 0, most: int) -> tuple[Value, ...]:
        """An array of ``least`` to ``most`` items."""
        return array(self._fields[key], least=least, most=most)

    def raw(self, key: int) -> Value:
        """A field whose own type parses it."""
        return self._fields[key]


def closed(value: Value, required: range, optional: frozenset[int] = frozenset()) -> Mapping[int, Value]:
    """A map with exactly the fields of its schema."""
    if not isinstance(value, Mapping):
        raise RemoteProtocolError(Reason.SCHEMA, "not a map")
    keys = set(value)
    if missing := set(required) - keys:
        raise RemoteProtocolError(Reason.SCHEMA, f"fields {sorted(missing)} are missing")
    if unknown := keys - set(required) - optional:
        raise RemoteProtocolError(Reason.SCHEMA, f"fields {sorted(unknown)} are unknown")
    return value


def uint(value: Value, *, most: int = MAX_UINT64) -> int:
    """An unsigned integer of at most ``most``."""
    if not isinstance(value, int):
        raise RemoteProtocolError(Reason.SCHEMA, "not an integer")
    if value > most:
        raise RemoteProtocolError(Reason.OUT_OF_BOUNDS, f"{value} is more than {most}")
    return value


def data(value: Value, *, least: int = 0, most: int) -> bytes:
    """A byte string of ``least`` to ``most`` bytes."""
    if not isinstance(value, bytes):
        raise RemoteProtocolError(Reason.SCHEMA, "not a byte string")
    if not least <= len(value) <= most:
        raise RemoteProtocolError(Reason.OUT_OF_BOUNDS, f"{len(value)} bytes, not {least} to {most}")
    return value


def array(value: Value, *, least: int = 0, most: int) -> tuple[Value, ...]:
    """An array of ``least`` to ``most`` items."""
    if not isinstance(value, tuple):
        raise RemoteProtocolError(Reason.SCHEMA, "not an array")
    if not least <= len(value) <= most:
        raise RemoteProtocolError(Reason.OUT_OF_BOUNDS, f"{len(value)} items, not {least} to {most}")
    return value
