"""Who may see the page: a link that works once, and the session cookie that it is exchanged for.

The page lies under a path that is derived from the control token, and the cookie is valid below that path
only: browsers send cookies to every port of a host, and another user's server on this machine does not know
the path. The cookie's value is signed with the control token, so a session outlives a restart of the node;
deleting the token file ends all of them.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Final

LINK_SECONDS: Final = 300.0
"""Time in which a link must be opened."""

MAX_LINKS: Final = 16
SESSION_SECONDS: Final = 30 * 24 * 3600
COOKIE: Final = "sapo"


class Sessions:
    """Links and cookies of one page.

    Args:
        token: the control token of the data directory.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._links: dict[str, float] = {}
        self.page: Final = self._mac("page")[:16]

    @property
    def root(self) -> str:
        """Path below which the page lies."""
        return f"/{self.page}/"

    def new_link(self, now: float) -> str:
        """Return the path of a link that opens a session once."""
        self._links = {code: until for code, until in self._links.items() if until > now}
        while len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        code = secrets.token_urlsafe(24)
        self._links[code] = now + LINK_SECONDS
        return f"{self.root}open?code={code}"

    def take_link(self, code: str, now: float) -> bool:
        """Whether the code is of a link that was not opened before; it cannot be opened again."""
        return self._links.pop(code, 0.0) > now

    def cookie(self, now: float) -> str:
        """Return the value of `Set-Cookie` that opens a session."""
        until = str(int(now) + SESSION_SECONDS)
        value = f"{until}.{self._mac('session', until)}"
        return f"{COOKIE}={value}; Path={self.root}; Max-Age={SESSION_SECONDS}; HttpOnly; SameSite=Strict"

    def knows(self, headers: Mapping[str, str], now: float) -> bool:
        """Whether a request carries the cookie of a session that has not ended."""
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        if COOKIE not in cookies:
            return False
        until, _, proof = cookies[COOKIE].value.partition(".")
        good = hmac.compare_digest(proof.encode(), self._mac("session", until).encode())
        return good and until.isdigit() and int(until) > now

    def _mac(self, *parts: str) -> str:
        return hmac.new(self._token, "\0".join(("sapo dashboard", *parts)).encode(), sha256).hexdigest()
