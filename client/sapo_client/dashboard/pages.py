"""The routes of the page: one-time link, files, views as JSON, the live stream, and the claim.

Every response carries a content security policy that allows only this package's own script files. A request
that changes something must come from the page itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Final, Protocol

from sapo_client.dashboard.session import Sessions
from sapo_client.errors import SapoError
from sapo_client.observe.plain import JSON
from sapo_client.observe.web import WebReply, WebRequest

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)

HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

CLOSED: Final = (
    "<!doctype html><html lang='en'><meta charset='utf-8'><title>sapo</title><h1>This page is closed</h1>"
    "<p>A link works once, and for five minutes. <code>sapo dashboard</code> prints a new one; for the page"
    " of a test network, <code>sapo testnet page</code> does.</p></html>"
)

PATIENT_VIEWS: Final = frozenset({"claim"})
"""Views that query the chain."""

LINK_PATH: Final = "/dashboard-link"


class PageSource(Protocol):
    """The nodes that a page shows."""

    def nodes(self) -> JSON:
        """Return the nodes' names and roles, and marks on their curves."""

    async def view(self, node: str, name: str, request: WebRequest) -> JSON | None:
        """Return a view of a node; none if there is no such node or view.

        Raises:
            SapoError: it cannot be shown now.
        """

    def stream(self, node: str, request: WebRequest) -> AsyncIterator[bytes] | None:
        """Return a node's live events as server-sent events; none if there is no such node."""

    async def order(self, node: str, name: str, body: bytes) -> JSON | None:
        """Carry out a button's command; none if there is no such command.

        Raises:
            SapoError: it was not done.
        """


class DashboardPages:
    """The page server of one data directory, beside its control API.

    Args:
        token: the control token of the data directory.
    """

    def __init__(self, source: PageSource, token: str) -> None:
        self._source = source
        self._sessions = Sessions(token)

    async def answer(self, request: WebRequest) -> WebReply | None:
        """Return the response; none if the path belongs to no page."""
        if request.path == LINK_PATH:
            return self._link(request)
        if request.path == "/" and not request.has_token:
            return _page(401, CLOSED.encode())
        if not request.path.startswith(self._sessions.root):
            return None
        path, now = request.path.removeprefix(self._sessions.root), time.time()
        if path == "open":
            return self._open(request, now)
        if not (request.has_token or self._sessions.knows(request.headers, now)):
            return _page(401, CLOSED.encode())
        if request.method == "POST":
            return await self._post(request, path)
        return await self._get(request, path)

    def _link(self, request: WebRequest) -> WebReply:
        if not request.has_token or request.method != "POST":
            return _problem(401, "POST it with the control token")
        return _json({"path": self._sessions.new_link(time.time())})

    def _open(self, request: WebRequest, now: float) -> WebReply:
        if not self._sessions.take_link(request.argument("code"), now):
            if self._sessions.knows(request.headers, now):  # the same link, opened again in the same browser
                return WebReply(303, headers=(*HEADERS, ("Location", self._sessions.root)))
            return _page(401, CLOSED.encode())
        leads = (("Location", self._sessions.root), ("Set-Cookie", self._sessions.cookie(now)))
        return WebReply(303, headers=HEADERS + leads)

    async def _get(self, request: WebRequest, path: str) -> WebReply:
        if request.method != "GET":
            return _problem(405, "use GET")
        if path == "api/nodes":
            return _json(self._source.nodes())
        if path.startswith("api/"):
            return await self._view(request, *path.removeprefix("api/").partition("/")[::2])
        return _file(path or "index.html")

    async def _view(self, request: WebRequest, node: str, name: str) -> WebReply:
        if name == "stream":
            stream = self._source.stream(node, request)
            if stream is None:
                return _problem(404, "there is no such node")
            return WebReply(200, b": live\n\n", "text/event-stream", HEADERS, stream)
        if name in PATIENT_VIEWS:
            return _later(partial(self._source.view, node, name, request))
        try:
            view = await self._source.view(node, name, request)
        except SapoError as error:  # a node among many that is starting, or has stopped
            return _problem(503, error.text, error.hint)
        return _problem(404, "there is no such view") if view is None else _json(view)

    async def _post(self, request: WebRequest, path: str) -> WebReply:
        if not request.has_token and not _is_from_page(request.headers):
            return _problem(403, "only the page itself may ask for this")
        node, _, name = path.removeprefix("api/").partition("/")
        return _later(partial(self._source.order, node, name, request.body))


def event(name: str, data: JSON, number: int | None = None) -> bytes:
    """Return one server-sent event."""
    known = "" if number is None else f"id: {number}\n"
    return f"{known}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _is_from_page(headers: Mapping[str, str]) -> bool:
    """Whether a request was made by a script of this very origin."""
    return headers.get("origin") == f"http://{headers.get('host')}" and headers.get("x-sapo") == "1"


@cache
def _read(name: str) -> bytes | None:
    folder = files("sapo_client.dashboard") / "static"
    names = {each.name for each in folder.iterdir() if each.is_file()}
    return (folder / name).read_bytes() if name in names else None


def _file(name: str) -> WebReply:
    content = _read(name)
    kind = TYPES.get(name[name.rfind(".") :])
    if content is None or kind is None:
        return _problem(404, "there is no such file")
    return WebReply(200, content, kind, HEADERS)


def _page(status: int, body: bytes) -> WebReply:
    return WebReply(status, body, TYPES[".html"], HEADERS)


def _json(value: JSON) -> WebReply:
    return WebReply(200, json.dumps(value, separators=(",", ":")).encode(), headers=HEADERS)


def _problem(status: int, text: str, hint: str = "") -> WebReply:
    return WebReply(status, json.dumps({"error": text, "hint": hint}).encode(), headers=HEADERS)


def _later(ask: Callable[[], Awaitable[JSON | None]]) -> WebReply:
    """Return a response whose JSON comes once the chain has answered; it holds the error if there is one."""

    async def answer() -> AsyncIterator[bytes]:
        try:
            found = await ask()
        except SapoError as error:
            found = {"error": error.text, "hint": error.hint}
        yield json.dumps({"error": "there is no such view"} if found is None else found).encode()

    return WebReply(200, b" ", headers=HEADERS, stream=answer())
