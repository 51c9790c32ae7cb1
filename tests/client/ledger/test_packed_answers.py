"""Answers of an endpoint that take a few bytes on the wire and very many in memory."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.local_api import ApiHandler, serving
from support.memory_peak import answer, other_process

MAX_BYTES = 1 << 20
CONTENT_BYTES = 48 * MAX_BYTES


@contextmanager
def answering(content: bytes, encoding: str) -> Iterator[str]:
    """Yield the URL of an endpoint that gives every request the same packed answer."""

    class Endpoint(ApiHandler):
        def do_POST(self) -> None:
            self.body()
            self.send_response(200)
            self.send_header("Content-Encoding", encoding)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(Endpoint) as url:
        yield url


@pytest.mark.parametrize("times", [1, 2])
def test_a_packed_answer_is_unpacked_up_to_the_limit(times: int) -> None:
    """With urllib3 2.5 one of 809 bytes (brotli) took more than a gigabyte; an invitation names endpoints."""
    content = bytes(CONTENT_BYTES)
    for _ in range(times):
        content = gzip.compress(content, mtime=0)
    with answering(content, ", ".join(["gzip"] * times)) as url, other_process() as process:
        refused, peak_bytes = process.submit(answer, url, MAX_BYTES).result()
    assert refused == f"its answer to eth_blockNumber is longer than {MAX_BYTES:,} bytes"
    assert peak_bytes < 16 * MAX_BYTES
