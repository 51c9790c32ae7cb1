"""Webhook notifications: in order, repeated after failures, and dropped without harm."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trio
from support.nodes import until

from sapo_client.observe.webhook import Notification, Webhook


class Receiver(HTTPServer):
    """An operator's HTTP address that refuses its first request."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        self.refusals = 1
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refuses, self.server.refusals = self.server.refusals > 0, self.server.refusals - 1
        if not refuses:
            self.server.bodies.append(json.loads(body))
        self.send_response(503 if refuses else 204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def told(text: str) -> Notification:
    return Notification(time="t", swarm="s", node="n", healthy=False, text=text, findings=())


async def test_notifications_arrive_in_order_after_a_refusal(receiver: Receiver) -> None:
    hook = Webhook(f"http://127.0.0.1:{receiver.server_address[1]}/health")
    hook.notify(told("first"))
    hook.notify(told("second"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hook.run)
        await until(lambda: len(receiver.bodies) == 2)
        nursery.cancel_scope.cancel()
    assert [body["text"] for body in receiver.bodies] == ["first", "second"]
    assert receiver.bodies[0] == json.loads(told("first").model_dump_json())


async def test_unread_output_is_dropped() -> None:
    hook = Webhook("http://127.0.0.1:9/")
    for number in range(100):
        hook.notify(told(str(number)))
