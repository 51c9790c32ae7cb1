"""A server that serves the files of a folder as the Hugging Face hub does, and counts requests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

COMMIT: Final = "ab" * 20
NAME: Final = "somebody/small"
"""The only repository."""

Refusal = tuple[int, str]
"""HTTP status, and the value of ``X-Error-Code``: ``GatedRepo`` comes with 401 without a token, with 403 for
an account that has not accepted the terms, and ``RepoNotFound`` with 401 also for private repositories."""


class Hub(ThreadingHTTPServer):
    """The open server.

    Attributes:
        folder: with the repository's files; None closes every connection without an answer.
        refusal: status and error code with which every file of the repository is refused, if any.
        asked: number of requests by method and file.
    """

    def __init__(self, folder: Path | None, refusal: Refusal | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.refusal = refusal
        self.asked: Counter[tuple[str, str]] = Counter()

    @property
    def address(self) -> str:
        """The address for ``HF_ENDPOINT``."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        """Answer with the size and the digest of a file."""
        self._answer(with_content=False)

    def do_GET(self) -> None:
        """Answer with a file."""
        self._answer(with_content=True)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _answer(self, *, with_content: bool) -> None:
        name = (
            self.path.partition("?")[0]
            .removeprefix(f"/{NAME}/resolve/main/")
            .removeprefix(f"/{NAME}/resolve/{COMMIT}/")
        )
        self.server.asked[self.command, name] += 1
        if self.server.folder is None:
            self.close_connection = True
            return
        file = self.server.folder / name
        if self.server.refusal is not None and NAME in self.path:
            self._refuse(*self.server.refusal)
            return
        if not file.is_file():
            self._refuse(404, "EntryNotFound")
            return
        content = file.read_bytes()
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def open_hub(folder: Path | None, refusal: Refusal | None = None) -> Iterator[Hub]:
    """Serve a folder while the context runs."""
    with Hub(folder, refusal) as hub:
        thread = Thread(target=hub.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
