"""Section 1 of the specification: a flat scan for its rules, then a stock CBOR library for the value.

The scan keeps a stack of open arrays and maps and looks at one head after the other, in the order of the
bytes; the value is ``cbor2``'s, and must be written back to the very same bytes.
"""

from typing import Any

import cbor2
from reference.refusal import Refused, require

MAX_VALUES = 8192
FEW_VALUES = 64
DEEPEST = 4


def read(data: bytes, max_values: int = MAX_VALUES) -> Any:
    """Return the value of a deterministic encoding.

    Raises:
        Refused: a rule of R1.0.1 to R1.0.11.
    """
    _scan(data, max_values)
    value = cbor2.loads(data)
    assert cbor2.dumps(value, canonical=True) == data
    return value


def _scan(data: bytes, max_values: int) -> None:
    """Walk over the heads; ``open_`` holds what every array or map around this place still awaits."""
    place, count = 0, 0
    open_: list[dict[str, int]] = []
    while True:
        count += 1
        require(count <= max_values, "R1.0.1")
        major, argument, place = _head(data, place)
        if open_ and open_[-1]["map"] and open_[-1]["left"] % 2 == 0:
            require(major == 0, "R1.0.5")
            require(argument > open_[-1]["last"], "R1.0.10")
            open_[-1]["last"] = argument
        require(major in (0, 2, 3, 4, 5), "R1.0.6")
        if major in (2, 3):
            require(place + argument <= len(data), "R1.0.2")
            if major == 3:
                require_utf8(data[place : place + argument], "R1.0.7")
            place += argument
        if open_:
            open_[-1]["left"] -= 1
        if major in (4, 5):
            items = argument * (major - 3)
            require(len(open_) < DEEPEST, "R1.0.8")
            require(items <= len(data) - place, "R1.0.9")
            open_.append({"map": major == 5, "left": items, "last": -1})
        while open_ and open_[-1]["left"] == 0:
            open_.pop()
        if not open_:
            require(place == len(data), "R1.0.11")
            return


def _head(data: bytes, place: int) -> tuple[int, int, int]:
    """Return major type, argument and the place behind them."""
    require(place < len(data), "R1.0.2")
    major, short = divmod(data[place], 32)
    require(short <= 27, "R1.0.3")
    if short < 24:
        return major, short, place + 1
    width = {24: 1, 25: 2, 26: 4, 27: 8}[short]
    written = data[place + 1 : place + 1 + width]
    require(len(written) == width, "R1.0.2")
    argument = int.from_bytes(written, "big")
    require(argument >= {1: 24, 2: 2**8, 4: 2**16, 8: 2**32}[width], "R1.0.4")
    return major, argument, place + 1 + width


def require_utf8(raw: bytes, rule: str) -> None:
    """Refuse bytes that are not UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(rule) from error
