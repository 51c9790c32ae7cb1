"""A chat completions server for tests: the bundled policy behind OpenAI's protocol, on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from sapo_client.learner.generate import Generator, generator_for
from sapo_client.learner.policy import Policy, load_policy


@dataclass
class CompletionsServer:
    """A policy that answers over HTTP.

    Attributes:
        key: the key that a client must send; None for none.
        max_choices: largest number of completions per request; some servers do not support ``n``.
        requests: the requests, in order.
        misbehave: status and body of every answer, instead of completions.
    """

    key: str | None = None
    max_choices: int = 128
    requests: list[dict[str, Any]] = field(default_factory=list)
    misbehave: tuple[int, bytes] | None = None

    def __post_init__(self) -> None:
        self._policy: Policy = load_policy("bundled", "cpu")
        self._generator: Generator = generator_for(self._policy)
        self._one_at_a_time = Lock()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Yield the address while it listens."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a chat completion, sampled."""
        with self._one_at_a_time:
            self.requests.append(request)
            [group] = self._generator.sample(
                [self._policy.encode_prompt(request["messages"][-1]["content"])],
                completions_per_prompt=min(request.get("n", 1), self.max_choices),
                max_new_tokens=request["max_tokens"],
                temperature=request["temperature"],
                seed=len(self.requests),
            )
        choices = [
            {"index": index, "message": {"role": "assistant", "content": item.text}, "finish_reason": "stop"}
            for index, item in enumerate(group)
        ]
        return {"object": "chat.completion", "model": request["model"], "choices": choices}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if served.misbehave is not None:
                    self._send(*served.misbehave)
                elif served.key is not None and self.headers["Authorization"] != f"Bearer {served.key}":
                    self._send(401, b'{"error": "who are you?"}')
                elif self.path != "/v1/chat/completions":
                    self._send(404, b'{"error": "no such path"}')
                else:
                    self._send(200, json.dumps(served.reply(json.loads(body))).encode())

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Write no log: the tests' output is for failures."""

        return Handler
