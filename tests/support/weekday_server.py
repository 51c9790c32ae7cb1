"""A chat completions server without a model, which answers with weekdays or with none."""

from __future__ import annotations

import json
from calendar import day_name
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle, islice
from threading import Thread
from typing import Final

GUESSES: Final = {"/guess": tuple(day_name), "/shrug": ("no idea",)}
"""Answers by the first part of the path: one of seven weekdays is right; ``/shrug`` never earns a point."""


@contextmanager
def serving() -> Iterator[str]:
    """Yield the server's address; endpoints are the paths of ``GUESSES`` below it, with ``/v1``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        guesses = GUESSES[self.path.removesuffix("/v1/chat/completions")]
        choices = [{"message": {"content": text}} for text in islice(cycle(guesses), request["n"])]
        body = json.dumps({"choices": choices}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log: the tests' output is for failures."""
