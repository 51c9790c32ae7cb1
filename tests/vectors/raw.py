"""Non-canonical CBOR: any order, any length of heads, any bytes in between."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Raw:
    """Bytes that go into the encoding as they are."""

    data: bytes


def head(major: int, argument: int, width: int | None = None) -> bytes:
    """Return a head with its argument in ``width`` bytes (0, 1, 2, 4, 8), the fewest by default."""
    if width is None:
        fits = ((0, 24), (1, 1 << 8), (2, 1 << 16), (4, 1 << 32), (8, 1 << 64))
        width = next(size for size, limit in fits if argument < limit)
    if width == 0:
        return bytes((major << 5 | argument,))
    return bytes((major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[width],)) + argument.to_bytes(width, "big")


def cbor(value: Any) -> bytes:
    """Return the encoding of a value, maps in their own order, with no bound checked."""
    match value:
        case Raw(data):
            return data
        case bool() | None:
            return {False: b"\xf4", True: b"\xf5", None: b"\xf6"}[value]
        case int() if value < 0:
            return head(1, -1 - value)
        case int():
            return head(0, value)
        case bytes():
            return head(2, len(value)) + value
        case str():
            return head(3, len(value.encode())) + value.encode()
        case dict():
            return head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())
        case list() | tuple():
            return head(4, len(value)) + b"".join(map(cbor, value))
    raise TypeError(type(value).__name__)


def pairs(*items: tuple[Any, Any]) -> Raw:
    """Return a map from pairs, which may repeat a key or descend."""
    return Raw(head(5, len(items)) + b"".join(cbor(k) + cbor(v) for k, v in items))
