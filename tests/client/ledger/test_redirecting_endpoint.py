"""An endpoint of a stranger's invitation redirects nodes to services of their own machine or network."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.ledger.rpc import Rpc


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_of_an_endpoint_are_not_followed(status: int) -> None:
    asked: list[str] = []

    class Victim(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.command)
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST

    with listening(Victim) as victim:

        class Endpoint(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Location", victim)
                self.send_header("Content-Length", "0")
                self.end_headers()

        with listening(Endpoint) as endpoint, pytest.raises(LedgerUnavailable, match="redirects"):
            Rpc([endpoint]).chain_id()
    assert asked == []
