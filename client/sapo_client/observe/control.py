"""The control API: a node's status and commands for its own machine, over loopback HTTP.

Loopback alone is no protection: other users of the machine and web pages in a local browser can reach it.
Therefore every request must carry the token of the data directory, whose file only its owner can read, and
name this host (a rebound DNS name does not). Requests are small, few at a time, and have a deadline.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import h11
import trio
from pydantic import BaseModel, ConfigDict, ValidationError

from sapo_client.atomic_files import write_atomically
from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe.control_client import HOST, keep_token
from sapo_client.observe.findings import HealthFinding
from sapo_client.observe.health import HealthReport, is_healthy
from sapo_client.observe.plain import JSON
from sapo_client.observe.web import WebPages, WebReply, WebRequest
from sapo_client.paths import DataDir

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_LOG = logging.getLogger(__name__)

MAX_HEADER_BYTES = 8 * 1024
MAX_BODY_BYTES = 1024  # the only request body takes 20 bytes
RECEIVE_BYTES = 4096
REQUEST_SECONDS = 10.0  # for one request and its answer; a caller on the same machine needs milliseconds
MAX_CONNECTIONS = 32  # a browser opens up to six at once and keeps one for the stream of each open page


@dataclass(frozen=True, slots=True)
class Handlers:
    """Callbacks into the node: reports by name (`status` is `GET /status`) and the three fixed endpoints."""

    reports: Mapping[str, Callable[[], JSON]]
    is_draining: Callable[[], bool]
    stop: Callable[[bool], None]  # true: let the current round end first
    metrics: Callable[[], bytes] | None = None
    findings: Callable[[], tuple[HealthFinding, ...]] = tuple
    pages: WebPages | None = None
    pause: Callable[[bool], None] | None = None  # true: no further round begins until it is called with false


class _Stop(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    finish: bool = False


async def serve(
    data: DataDir,
    handlers: Handlers,
    *,
    port: int = 0,
    task_status: TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the control API until cancelled; starts with its port, which is in the data directory meanwhile.

    Args:
        port: to listen on; 0 for that of the last start, or any free one.

    Raises:
        SapoError: the port is taken (exit code 5).
    """
    api = _Api(handlers, keep_token(data))
    try:
        listeners = await _listen(data, port)
    except OSError as error:
        raise SapoError(
            f"cannot listen on {HOST}:{port} for the control API: {error.strerror}",
            hint="choose another port with SAPO_OBSERVE__CONTROL_PORT, or 0 for any free one",
            exit_code=ExitCode.NETWORK,
        ) from error
    actual = int(listeners[0].socket.getsockname()[1])
    _announce(data, actual)
    _LOG.info("the control API listens on %s:%d", HOST, actual)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, api.handle, listeners)
            task_status.started(actual)
    finally:
        data.control_address.unlink(missing_ok=True)


async def _listen(data: DataDir, port: int) -> Sequence[trio.SocketListener]:
    """Listen on a port; for 0 on the last one, where an open page looks for the node, or on any free one."""
    last = 0 if port else _last_port(data)
    if last:
        with suppress(OSError):  # another program has it now
            return await trio.open_tcp_listeners(last, host=HOST)
    return await trio.open_tcp_listeners(port, host=HOST)


def _last_port(data: DataDir) -> int:
    """Return the port of the last control API; 0 if none is known."""
    try:
        port = int(data.control_port.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 1 << 16 else 0


def _announce(data: DataDir, port: int) -> None:
    data.control_port.write_text(f"{port}\n")
    write_atomically(data.control_address, f"{HOST}:{port}\n")


class _Api:
    """Routes and connections of one node's API."""

    def __init__(self, handlers: Handlers, token: str) -> None:
        self._handlers = handlers
        self._token = token
        self._free = trio.Semaphore(MAX_CONNECTIONS)

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection: one request and one response."""
        async with stream:
            try:
                self._free.acquire_nowait()
            except trio.WouldBlock:
                return  # closed at once: a flood of callers must not exhaust the node's file descriptors
            try:
                await self._exchange(stream)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # the caller left
            finally:
                self._free.release()

    async def _exchange(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        reply: WebReply | None = None
        with trio.move_on_after(REQUEST_SECONDS):
            try:
                call = await _receive(connection, stream)
                reply = _error(413, "too large") if call is None else await self._answer(call)
            except h11.RemoteProtocolError as error:
                reply = _error(error.error_status_hint, "not a request this API understands")
            if connection.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
                return
            await stream.send_all(_encode(connection, reply))
        if reply is not None and reply.stream is not None:
            await _pour(connection, stream, reply.stream)

    async def _answer(self, call: WebRequest) -> WebReply:
        if call.headers.get("host", "").rpartition(":")[0] not in {HOST, "localhost"}:
            return _error(403, "this API answers to 127.0.0.1 and localhost only")
        authorization = call.headers.get("authorization", "").encode()
        has_token = hmac.compare_digest(authorization, f"Bearer {self._token}".encode())
        if self._handlers.pages is not None:
            page = await self._handlers.pages.answer(replace(call, has_token=has_token))
            if page is not None:
                return page
        if not has_token:
            return _error(401, "send the content of control.token as `Authorization: Bearer`")
        if call.path == "/stop":
            return self._stop(call)
        if call.path in ("/pause", "/resume") and self._handlers.pause is not None:
            return self._pause(call, self._handlers.pause)
        if call.method != "GET":
            return _error(405, "use GET")
        return self._get(call.path)

    def _get(self, path: str) -> WebReply:
        if path == "/health":
            return self._health()
        if path == "/metrics" and self._handlers.metrics is not None:
            return WebReply(200, self._handlers.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        report = self._handlers.reports.get(path.removeprefix("/"))
        return _error(404, "there is no such report") if report is None else _json(report())

    def _health(self) -> WebReply:
        draining, findings = self._handlers.is_draining(), self._handlers.findings()
        healthy = not draining and is_healthy(findings)
        state = "draining" if draining else "running"
        report = HealthReport(healthy=healthy, state=state, findings=findings)
        return WebReply(200 if healthy else 503, report.model_dump_json().encode() + b"\n")

    def _pause(self, call: WebRequest, pause: Callable[[bool], None]) -> WebReply:
        if call.method != "POST":
            return _error(405, "use POST")
        paused = call.path == "/pause"
        pause(paused)
        return _json({"paused": paused})

    def _stop(self, call: WebRequest) -> WebReply:
        if call.method != "POST":
            return _error(405, "use POST")
        try:
            order = _Stop.model_validate_json(call.body or b"{}")
        except ValidationError:
            return _error(400, 'the body is {"finish": true} or {"finish": false}')
        self._handlers.stop(order.finish)
        return _json({"stopping": True, "finish": order.finish})


async def _receive(connection: h11.Connection, stream: trio.SocketStream) -> WebRequest | None:
    """Return the request; none if its body exceeds the limit."""
    request: h11.Request | None = None
    body = b""
    while True:
        match await _next_event(connection, stream):
            case h11.Request() as request:
                continue
            case h11.Data(data=data):
                body += bytes(data)
                if len(body) > MAX_BODY_BYTES:
                    return None
            case h11.EndOfMessage() if request is not None:
                return _call(request, body)
            case _:
                raise trio.BrokenResourceError


async def _next_event(connection: h11.Connection, stream: trio.SocketStream) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        if connection.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await stream.send_all(connection.send(go_on) or b"")
        connection.receive_data(await stream.receive_some(RECEIVE_BYTES))
    return event


def _call(request: h11.Request, body: bytes) -> WebRequest:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
    path, _, query = request.target.decode("latin-1").partition("?")
    return WebRequest(request.method.decode("ascii"), path, query, headers, body, has_token=False)


async def _pour(connection: h11.Connection, stream: trio.SocketStream, parts: AsyncIterator[bytes]) -> None:
    """Send the parts of a body as they come, until they end or the caller leaves."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_at_end, stream, nursery.cancel_scope)
        async for part in parts:
            if not await _is_sent(stream, connection.send(h11.Data(data=part)) or b""):
                break
        else:
            await _is_sent(stream, connection.send(h11.EndOfMessage()) or b"")
        nursery.cancel_scope.cancel()


async def _is_sent(stream: trio.SocketStream, data: bytes) -> bool:
    """Whether the caller took the data in time."""
    with trio.move_on_after(REQUEST_SECONDS), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.send_all(data)
        return True
    return False


async def _cancel_at_end(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
    """Cancel once the caller closes the connection: a stream without news would not notice it."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await stream.receive_some(RECEIVE_BYTES):
            pass
    scope.cancel()


def _json(value: JSON) -> WebReply:
    return WebReply(200, json.dumps(value).encode() + b"\n")


def _error(status: int, text: str) -> WebReply:
    return WebReply(status, json.dumps({"error": text}).encode() + b"\n")


def _encode(connection: h11.Connection, reply: WebReply) -> bytes:
    """Return the response; of one with a stream, all but the parts that come later."""
    headers = [
        ("Content-Type", reply.content_type),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
        *reply.headers,
    ]
    if reply.stream is None:
        headers.append(("Content-Length", str(len(reply.body))))
    parts = [connection.send(h11.Response(status_code=reply.status, headers=headers))]
    if reply.body:
        parts.append(connection.send(h11.Data(data=reply.body)))
    if reply.stream is None:
        parts.append(connection.send(h11.EndOfMessage()))
    return b"".join(part or b"" for part in parts)
