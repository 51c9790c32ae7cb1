"""JSON-RPC over HTTP on the loopback interface, one thread per connection."""

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from sapo_client.ledger.chain.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE, ChainClosed, RpcError
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.store import Json

MAX_REQUEST_BYTES: Final = 1024 * 1024
"""Ten times the largest deployment of this project, as hexadecimal text."""

MAX_BATCH: Final = 100
"""Requests in one body: they hold the chain's lock one after the other."""

_IDLE_SECONDS: Final = 120
"""A connection that is silent for so long gives its thread back."""


class ChainServer(ThreadingHTTPServer):
    """A server that answers with one chain's methods. Port 0 takes any free one."""

    daemon_threads = True  # an idle connection must not keep the process from ending
    request_queue_size = 128  # a swarm's nodes all connect at once when they start

    def __init__(self, methods: Methods, port: int) -> None:
        self.methods = methods
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Return the address it listens on."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive: most of a small call's time is its connection
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece
    server: ChainServer

    def do_POST(self) -> None:  # the standard library looks for this name
        """Answer one body: a request or a batch of them."""
        size = self.headers.get("Content-Length", "")
        if not size.isascii() or not size.isdigit():
            self._refuse(HTTPStatus.LENGTH_REQUIRED)
        elif int(size) > MAX_REQUEST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            self._answer(self.rfile.read(int(size)))

    def log_message(self, format: str, *args: object) -> None:  # the inherited name
        """Keep quiet: a line per call would drown everything else."""

    def _answer(self, body: bytes) -> None:
        try:
            self._reply(_answer_body(self.server.methods, body))
        except ChainClosed:
            self.close_connection = True  # without a word, as if the process were gone already

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True  # the unread body must not be taken for the next request
        self.send_error(status)

    def _reply(self, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _answer_body(methods: Methods, body: bytes) -> object:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return _failure(None, RpcError(PARSE, "the body is not JSON"))
    if not isinstance(request, list):
        return _answer(methods, request)
    if not 1 <= len(request) <= MAX_BATCH:
        return _failure(None, RpcError(INVALID_REQUEST, f"a batch holds 1 to {MAX_BATCH} requests"))
    return [_answer(methods, item) for item in request]


def _answer(methods: Methods, request: Any) -> Json:
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return _failure(None, RpcError(INVALID_REQUEST, "a request is an object that names a method"))
    identifier, params = request.get("id"), request.get("params", [])
    try:
        if not isinstance(params, list):
            raise RpcError(INVALID_PARAMS, "params is not a list")
        return {"jsonrpc": "2.0", "id": identifier, "result": methods.call(request["method"], params)}
    except RpcError as error:
        return _failure(identifier, error)


def _failure(identifier: object, error: RpcError) -> Json:
    return {"jsonrpc": "2.0", "id": identifier, "error": error.to_json()}
