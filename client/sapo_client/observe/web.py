"""HTTP requests and responses of the control port, as exchanged with the servers of pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qsl

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One parsed HTTP request.

    Attributes:
        path: without the query.
        headers: by name in lower case; the last one of a name counts.
        has_token: whether it carries the control token of the data directory.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    has_token: bool

    def argument(self, name: str, default: str = "") -> str:
        """Return a parameter of the query string."""
        return dict(parse_qsl(self.query, keep_blank_values=True)).get(name, default)

    def number(self, name: str, default: int, *, maximum: int) -> int:
        """Return an integer parameter between 0 and `most`; the default if it is missing or invalid."""
        number = _whole_number(self.argument(name))
        return default if number is None else min(number, maximum)

    def last_event(self) -> int | None:
        """Return the number of the last event that a caller of a stream has; none if it names none."""
        return _whole_number(self.headers.get("last-event-id", ""))


def _whole_number(text: str) -> int | None:
    """Return the number in a text of at most 15 digits, or none; `int` cannot read each digit of Unicode."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


@dataclass(frozen=True, slots=True)
class WebReply:
    """One HTTP response.

    Attributes:
        stream: parts of the body that are sent as they come, until the caller leaves; `body` comes first.
    """

    status: int
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = field(default=None, compare=False)


class WebPages(Protocol):
    """Server of pages on the control port; it authenticates its callers itself."""

    async def answer(self, request: WebRequest) -> WebReply | None:
        """Return the response; none if the path belongs to no page."""
