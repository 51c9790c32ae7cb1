"""A small HTTP API on the loopback interface, for tests of its clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = "application/json"


class ApiHandler(BaseHTTPRequestHandler):
    """Reads and writes bodies, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """Return the request's body."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply(self, status: int, result: dict[str, Any] | bytes, content_type: str = JSON) -> None:
        """Send an object as JSON, or bytes as they are."""
        body = result if isinstance(result, bytes) else json.dumps(result).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def serving(handler: type[ApiHandler]) -> Iterator[str]:
    """Serve until the end of the context; yield the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
