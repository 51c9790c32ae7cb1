"""A reader that sends the same requests as an open page, at the same rate, without drawing."""

from __future__ import annotations

import http.client
import json
import math
import threading
from typing import Any, Final

from sapo_client.observe.control_client import ControlClient

REFRESH_SECONDS: Final = 20.0
"""As ``REFRESH.overview`` in ``app.js``."""

SETTLE_SECONDS: Final = 60.0
WHOLE_SECONDS: Final = 600.0
"""As in ``curves.js``."""

HOURS: Final = 2
FILES: Final = (
    "",
    "dashboard.css",
    "app.js",
    "dom.js",
    "panels.js",
    "swarm.js",
    "chart.js",
    "curves.js",
    "icon.svg",
)


class PageReader:
    """An open page without a browser: the files, the curves, and the live stream; use it as a context.

    Attributes:
        received: bytes of all bodies.
    """

    def __init__(self, client: ControlClient) -> None:
        self._root, self._cookie, self._port = _opened(client.page_link())
        self._closed = threading.Event()
        self.received = 0

    def __enter__(self) -> PageReader:
        for name in FILES:
            self._get(name)
        self._get("api/nodes")
        self._threads = [threading.Thread(target=run) for run in (self._listen, self._refresh)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", self._root + path, headers={"Cookie": self._cookie})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status}")
        self.received += len(body)
        return body

    def _listen(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", f"{self._root}api/self/stream", headers={"Cookie": self._cookie})
        response = connection.getresponse()
        while not self._closed.is_set():
            self.received += len(response.read1(65536))
        connection.close()

    def _refresh(self) -> None:
        whole, seconds, now = -math.inf, 0, 0.0
        while True:
            is_new = now >= whole + WHOLE_SECONDS
            after = 0 if is_new else max(0, math.floor((now - SETTLE_SECONDS) / seconds - 1) * seconds)
            data: Any = json.loads(self._get(f"api/self/curves?hours={HOURS}&after={after}"))
            if not is_new and data["seconds"] != seconds:
                is_new, data = True, json.loads(self._get(f"api/self/curves?hours={HOURS}&after=0"))
            now, seconds = data["now"], data["seconds"]
            whole = now if is_new else whole
            if self._closed.wait(REFRESH_SECONDS):
                return


def _opened(link: str) -> tuple[str, str, int]:
    """Follow a one-time link; return the page's root, the session's cookie, and the port."""
    place, _, path = link.removeprefix("http://").partition("/")
    port = int(place.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", f"/{path}")
    response = connection.getresponse()
    response.read()
    connection.close()
    root, cookie = response.headers["Location"], response.headers["Set-Cookie"].partition(";")[0]
    return root, cookie, port
