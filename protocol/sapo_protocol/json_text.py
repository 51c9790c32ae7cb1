"""A depth check of untrusted JSON text before it is parsed.

The standard library's decoder recurses, and stops in time only while Python's recursion limit is at its
default. Some libraries raise that limit on import; deep nesting then crashes the process.
"""

from typing import Final

from sapo_protocol.errors import LocalProtocolError

MAX_JSON_DEPTH: Final = 16
"""A manifest, the deepest document there is, needs five levels."""


def require_shallow(text: str) -> str:
    """Return the text if its brackets (those in strings aside) nest at most ``MAX_JSON_DEPTH`` deep.

    Raises:
        LocalProtocolError: the text nests deeper.
    """
    depth, in_string, escaped = 0, False, False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise LocalProtocolError(f"JSON nested deeper than {MAX_JSON_DEPTH}")
        elif character in "]}":
            depth -= 1
    return text
