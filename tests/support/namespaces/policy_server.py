"""The policy of the nodes: a server of chat completions in every namespace that guesses weekdays, slowly.

An answer has about 500 bytes, of which the most are random words, so a group of eight has 4 KiB.

A node that trains a model needs a core. What these nodes have in its place is an endpoint, as an operator may
configure one, which takes as long for a group as a model would; all else is a node's own.
"""

from __future__ import annotations

import json
import random
import threading
from calendar import day_name
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle, islice
from typing import Final

from support.namespaces import kernel
from support.namespaces.plan import SERVER_PORT

from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG

_WORDS: Final = 60


class _Server(ThreadingHTTPServer):
    """One server in one namespace; how long its answers take differs from answer to answer."""

    daemon_threads = True

    def __init__(self, namespace: str, seconds: float, stopped: threading.Event) -> None:
        super().__init__(("127.0.0.1", SERVER_PORT), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = kernel.open_listener(namespace, "127.0.0.1", SERVER_PORT)
        self._rng = random.Random(namespace)
        self._seconds = seconds
        self._stopped = stopped

    def wait(self) -> None:
        """Wait as long as an answer takes, or until the end."""
        self._stopped.wait(self._seconds * self._rng.uniform(0.75, 1.25))

    def answer(self, guess: str) -> str:
        """Return an answer like a model's: much text, then the guess."""
        words = (f"{self._rng.getrandbits(28):07x}" for _ in range(_WORDS))
        return f"{' '.join(words)} {OPEN_TAG}{guess}{CLOSE_TAG}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.wait()
        guesses = map(self.server.answer, islice(cycle(day_name), request["n"]))
        choices = [{"message": {"content": text}} for text in guesses]
        body = json.dumps({"choices": choices}).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the node was stopped meanwhile
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@contextmanager
def policy_servers(namespaces: Sequence[str], seconds: float) -> Iterator[None]:
    """Serve answers in namespaces, each after about so many seconds."""
    stopped = threading.Event()
    servers = [_Server(name, seconds, stopped) for name in namespaces]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()
