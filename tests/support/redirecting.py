"""An HTTP endpoint that redirects every request to another service of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.local_api import ApiHandler, serving


@contextmanager
def redirecting(status: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the endpoint's URL, and the methods of the requests that its target has received."""
    asked: list[str] = []

    class Target(ApiHandler):
        def do_POST(self) -> None:
            asked.append(self.command)
            self.reply(200, b"")

        do_GET = do_POST

    with serving(Target) as target:

        class Endpoint(ApiHandler):
            def do_POST(self) -> None:
                self.body()
                self.send_response(status)
                self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                self.end_headers()

        with serving(Endpoint) as endpoint:
            yield endpoint, asked
