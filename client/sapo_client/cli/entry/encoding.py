"""Output in the encoding of the terminal, which may not have all characters that strangers write."""

from __future__ import annotations

import codecs
import io
import sys
from typing import Final

_ESCAPES: Final = "sapo-escapes"


def encodable_output() -> None:
    """Write what the encoding of the standard streams lacks as ``\\uXXXX``, which is also valid in JSON."""
    codecs.register_error(_ESCAPES, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPES)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    escaped = (f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
    return "".join(escaped), error.end
