"""Conversion of values to JSON, shared by the event file, the control API and `--json`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Set
from pathlib import Path

JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None


def to_json(value: object) -> JSON:
    """Return the value in JSON types: bytes as hexadecimal, sets sorted, non-finite numbers as text."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return str(value)  # an enum's value, not its name
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Mapping():
            return {_key(key): to_json(inner) for key, inner in value.items()}
        case Set():
            return sorted((to_json(inner) for inner in value), key=str)
        case list() | tuple():
            return [to_json(inner) for inner in value]
        case Path():
            return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def _key(key: object) -> str:
    return bytes(key).hex() if isinstance(key, bytes) else str(key)
