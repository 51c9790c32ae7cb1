"""The page's server over real sockets: access, refusals, and the headers of every response."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import trio

from sapo_client.dashboard.pages import HEADERS, DashboardPages, event
from sapo_client.dashboard.session import LINK_SECONDS, MAX_LINKS, SESSION_SECONDS, Sessions
from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe import control
from sapo_client.observe.control_client import ControlClient, keep_token
from sapo_client.observe.plain import JSON
from sapo_client.observe.web import WebRequest
from sapo_client.paths import DataDir

NOW = 1_800_000_000.0


@dataclass
class Source:
    """A node with two views, a stream of two events, and one order."""

    orders: list[bytes] = field(default_factory=list)

    def nodes(self) -> JSON:
        return {"title": "t", "nodes": [{"name": "self"}], "marks": []}

    async def view(self, node: str, name: str, request: WebRequest) -> JSON | None:
        if name == "claim":
            raise SapoError("nothing to claim", hint="wait", exit_code=ExitCode.LEDGER)
        return {"text": request.argument("q")} if (node, name) == ("self", "status") else None

    def stream(self, node: str, request: WebRequest) -> AsyncIterator[bytes] | None:
        return self._events() if node == "self" else None

    async def _events(self) -> AsyncIterator[bytes]:
        yield event("status", {"round": 1}, 1)
        await trio.sleep(0)
        yield event("status", {"round": 2})
        await trio.sleep_forever()

    async def order(self, node: str, name: str, body: bytes) -> JSON | None:
        self.orders.append(body)
        return {"done": True}


@dataclass
class Reply:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Browser:
    """A caller that keeps its cookie, as a browser does."""

    def __init__(self, port: int, cookie: str = "") -> None:
        self.port = port
        self.cookie = cookie

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            named["Cookie"] = self.cookie
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            found = Reply(response.status, dict(response.getheaders()), response.read())
        if "Set-Cookie" in found.headers:
            self.cookie = found.headers["Set-Cookie"].partition(";")[0]
        return found


@dataclass
class Served:
    """A running page server."""

    port: int
    data: DataDir
    source: Source

    async def link(self) -> str:
        link = await run(ControlClient(self.data).page_link)
        assert isinstance(link, str)
        return link.removeprefix(f"http://127.0.0.1:{self.port}")

    async def browser(self) -> tuple[Browser, str]:
        browser, link = Browser(self.port), await self.link()
        opened = await reply(lambda: browser.send("GET", link))
        assert opened.status == 303
        return browser, opened.headers["Location"]


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "node").create()


@asynccontextmanager
async def serving(data: DataDir) -> AsyncIterator[Served]:
    source = Source()
    handlers = control.Handlers(
        reports={"status": lambda: {}},
        is_draining=lambda: False,
        stop=lambda _: None,
        pages=DashboardPages(source, keep_token(data)),
    )
    async with trio.open_nursery() as nursery:
        port = await nursery.start(control.serve, data, handlers)
        yield Served(port, data, source)
        nursery.cancel_scope.cancel()


async def run(function: Callable[[], object]) -> object:
    return await trio.to_thread.run_sync(function)


async def reply(function: Callable[[], Reply]) -> Reply:
    return await trio.to_thread.run_sync(function)


async def test_a_link_opens_the_page_once(data: DataDir) -> None:
    async with serving(data) as served:
        link = await served.link()
        browser = Browser(served.port)
        opened = await reply(lambda: browser.send("GET", link))
        root = opened.headers["Location"]
        assert opened.status == 303
        assert opened.headers["Set-Cookie"].endswith("; HttpOnly; SameSite=Strict")
        assert f"; Path={root};" in opened.headers["Set-Cookie"]
        page = await reply(lambda: browser.send("GET", root))
        assert (page.status, page.body[:15]) == (200, b"<!doctype html>")
        assert {name: page.headers[name] for name, _ in HEADERS} == dict(HEADERS)
        again = await reply(lambda: Browser(served.port).send("GET", link))
        assert (again.status, b"sapo dashboard" in again.body) == (401, True)
        same = await reply(lambda: browser.send("GET", link))
        assert (same.status, same.headers["Location"], "Set-Cookie" in same.headers) == (303, root, False)


async def test_without_a_session_every_view_is_refused(data: DataDir) -> None:
    async with serving(data) as served:
        browser, root = await served.browser()
        views = ("", "api/nodes", "api/self/status", "app.js", "api/self/stream")
        cookies = ("", "sapo=1.2", "sapo=", f"sapo=9999999999.{'0' * 64}", "sapo=%00; sapo=\x01")
        for path, cookie in product(views, cookies):
            stranger = Browser(served.port, cookie)
            refused = await reply(partial(stranger.send, "GET", root + path))
            assert (path, cookie, refused.status) == (path, cookie, 401)
            assert b"round" not in refused.body
        assert browser.cookie
        closed = await reply(lambda: Browser(served.port).send("GET", "/"))
        assert (closed.status, closed.headers["Content-Type"]) == (401, "text/html; charset=utf-8")


async def test_views_files_and_the_stream(data: DataDir) -> None:
    async with serving(data) as served:
        browser, root = await served.browser()
        shown = await reply(lambda: browser.send("GET", f"{root}api/self/status?q=%3Cb%3E"))
        assert (shown.status, json.loads(shown.body)) == (200, {"text": "<b>"})
        assert shown.headers["Content-Type"] == "application/json"
        missing = ("api/self/other", "api/other/status", "nothing.js", "../x", "pages.py", "__init__.py")
        statuses = dict.fromkeys(missing, 404) | dict.fromkeys(("app.js", "dashboard.css", "icon.svg"), 200)
        for path, status in statuses.items():
            found = await reply(partial(browser.send, "GET", root + path))
            assert (path, found.status) == (path, status)
            assert {name: found.headers[name] for name, _ in HEADERS} == dict(HEADERS)
        assert await _first_events(served.port, root, browser.cookie) == (
            b': live\n\nid: 1\nevent: status\ndata: {"round":1}\n\nevent: status\ndata: {"round":2}\n\n'
        )


async def _first_events(port: int, root: str, cookie: str) -> bytes:
    """Return the stream's first bytes, without the sizes of its chunks."""
    head = (
        f"GET {root}api/self/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode()
    )
    got = b""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(head)
        with trio.fail_after(10):
            while b'{"round":2}\n\n' not in got:
                got += await stream.receive_some(4096)
    lines = got.partition(b"\r\n\r\n")[2].split(b"\r\n")
    return b"".join(lines[1::2])


async def test_a_stream_ends_when_its_caller_leaves(data: DataDir) -> None:
    async with serving(data) as served:
        browser, root = await served.browser()
        for _ in range(2 * control.MAX_CONNECTIONS):  # each would hold a connection for ever
            await _first_events(served.port, root, browser.cookie)
        shown = await reply(lambda: browser.send("GET", f"{root}api/nodes"))
        assert shown.status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X_Sapo": "1"}, 403),
        ({"X_Sapo": "1", "Origin": "http://evil.example"}, 403),
        ({"X_Sapo": "1", "Origin": "null"}, 403),
        ({"X_Sapo": "1", "Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "SELF"}, 403),
        ({"X_Sapo": "1", "Origin": "SELF", "Host": "rebound.example"}, 403),
        ({"X_Sapo": "1", "Origin": "SELF"}, 200),
    ],
)
async def test_claims_are_accepted_only_from_the_page_with_a_session(
    data: DataDir, headers: dict[str, str], status: int
) -> None:
    async with serving(data) as served:
        browser, root = await served.browser()
        own = f"http://127.0.0.1:{served.port}"
        sent = {name: own if value == "SELF" else value for name, value in headers.items()}
        done = await reply(lambda: browser.send("POST", f"{root}api/self/claim", b"{}", **sent))
        assert done.status == status
        stranger = await reply(
            lambda: Browser(served.port).send("POST", f"{root}api/self/claim", b"{}", **sent)
        )
        assert stranger.status in (401, 403)
    assert served.source.orders == ([b"{}"] if status == 200 else [])


async def test_an_error_comes_with_its_hint(data: DataDir) -> None:
    async with serving(data) as served:
        browser, root = await served.browser()
        shown = await reply(lambda: browser.send("GET", f"{root}api/self/claim"))
        assert json.loads(shown.body) == {"error": "nothing to claim", "hint": "wait"}


async def test_a_link_needs_the_control_token(data: DataDir) -> None:
    async with serving(data) as served:
        wrong: dict[str, str] = {"Authorization": "Bearer 0"}
        nothing: dict[str, str] = {}
        for method, headers in (("POST", nothing), ("GET", nothing), ("POST", wrong)):
            refused = await reply(
                partial(Browser(served.port).send, method, "/dashboard-link", None, **headers)
            )
            assert refused.status == 401


def test_links_and_sessions_end() -> None:
    sessions = Sessions("secret")
    link = sessions.new_link(NOW).partition("code=")[2]
    assert not sessions.take_link(link, NOW + LINK_SECONDS + 1)
    first = sessions.new_link(NOW).partition("code=")[2]
    for _ in range(MAX_LINKS):
        sessions.new_link(NOW)
    assert not sessions.take_link(first, NOW)
    cookie = {"cookie": sessions.cookie(NOW).partition(";")[0]}
    assert sessions.knows(cookie, NOW + SESSION_SECONDS - 1)
    assert not sessions.knows(cookie, NOW + SESSION_SECONDS + 1)
    assert Sessions("secret").knows(cookie, NOW)  # after a restart
    assert not Sessions("another").knows(cookie, NOW)
    assert Sessions("another").root != sessions.root
