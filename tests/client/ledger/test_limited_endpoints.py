"""Endpoints of providers that limit requests, or answer with an error of HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.ledger import ServedChain

from sapo_client.ledger.chain.errors import RpcError
from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.ledger.rpc import Rpc

LIMITED = "no answer (it refuses further requests for now: too many were made)"


class _Refusing:
    """Methods of a provider that refuses every request.

    Args:
        code: of its JSON-RPC errors.
    """

    def __init__(self, code: int) -> None:
        self.calls = 0
        self._code = code

    def call(self, method: str, params: object) -> Any:
        """Refuse."""
        self.calls += 1
        raise RpcError(self._code, "daily request count exceeded, request rate limited")


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[ServedChain]:
    served = ServedChain(tmp_path / "chain.sqlite")
    yield served
    served.close()


@pytest.mark.parametrize("code", [-32005, 429])
def test_a_provider_that_limits_requests_rests_and_is_named(chain: ServedChain, code: int) -> None:
    """It would else be asked again at once, and its refusals would count as votes against the others."""
    told: list[str] = []
    rpc = Rpc([chain.url], report=told.append)
    head, methods = rpc.common_block(), chain._server.methods
    refusing = _Refusing(code)
    chain._server.methods = refusing  # type: ignore[assignment]
    for _ in range(5):
        with pytest.raises(LedgerUnavailable, match="too many were made"):
            rpc.common_block()
    assert told == [f"{chain.url}: {LIMITED}"]
    assert [endpoint.trouble for endpoint in rpc.endpoints] == [LIMITED]
    chain._server.methods = methods
    assert rpc.common_block() == head


@pytest.mark.parametrize(
    ("status", "text"),
    [(429, LIMITED), (403, "no answer (HTTP 403 Forbidden)"), (599, "no answer (HTTP 599)")],
)
def test_an_answer_of_http_alone_is_named_by_its_status(status: int, text: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    told: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            with pytest.raises(LedgerUnavailable):
                Rpc([url], report=told.append).common_block()
        finally:
            server.shutdown()
            thread.join()
    assert told == [f"{url}: {text}"]
