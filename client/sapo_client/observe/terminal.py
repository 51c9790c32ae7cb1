"""Escaping of text for terminals: names, answers and messages are written by strangers.

Control characters, including 0x7f to 0x9f, move the cursor, clear the screen or set the window's title;
bidirectional controls change the order in which a line is displayed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from unicodedata import category


def plain(text: str) -> str:
    """Return the text with control and bidirectional characters replaced by U+FFFD."""
    return "".join(sign if _is_plain(sign) else "\ufffd" for sign in text)


def plain_json(text: str) -> str:
    """Return equal JSON in which control and bidirectional characters are escaped."""
    return "".join(sign if _is_plain(sign) else _escape(sign) for sign in text)


def say(text: str) -> None:
    """Print a text on standard error, if that takes it: it may be a file on a full disk, or closed."""
    with suppress(OSError):
        print(plain(text), file=sys.stderr, flush=True)


def _is_plain(sign: str) -> bool:
    return sign.isprintable() or sign in "\n\t" or category(sign) == "Zs"


def _escape(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
