"""Attacks on an invitation server: idle connections, slow requests, many concurrent requests for coins."""

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from support.ledger import BOB
from support.swarm import make_manifest

from sapo_client.errors import SapoError
from sapo_client.founding import invitation_server
from sapo_client.founding.invitation import Invitation, read_invitation, to_file
from sapo_client.founding.invitation_server import MAX_WAITING, FaucetAccess, InvitationServer
from sapo_protocol.identifiers import Account

PATIENCE_SECONDS = 5.0
"""Until a test gives up."""

ROOM = 8
ELSEWHERE = "127.1.0.1"


@contextmanager
def serving(faucet: FaucetAccess | None = None) -> Iterator[tuple[str, int]]:
    """Serve an invitation on all addresses of this machine's loopback interface; yield where."""
    with InvitationServer(("0.0.0.0", 0), Invitation(make_manifest()), faucet=faucet) as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield "127.0.0.1", port
        finally:
            server.close()
            thread.join()


def connected(address: tuple[str, int], source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(address, timeout=PATIENCE_SECONDS, source_address=(source, 0))


def is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def answer_to(address: tuple[str, int], source: str) -> bytes:
    """Return what a newcomer at an address of this machine gets."""
    with connected(address, source) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_holding_many_connections_displaces_only_the_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitation_server, "MAX_CONNECTIONS", ROOM)
    with serving() as address, ExitStack() as stack:
        honest = stack.enter_context(connected(address, ELSEWHERE))
        honest.sendall(b"GET / HT")
        held = []
        for _ in range(3 * ROOM):
            held.append(stack.enter_context(connected(address)))
            held[-1].sendall(b"GET / HT")
        assert all(map(is_ended, held[: 2 * ROOM]))
        honest.sendall(b"TP/1.0\r\n\r\n")
        assert honest.recv(15) == b"HTTP/1.0 200 OK"
        assert answer_to(address, "127.2.0.1").startswith(b"HTTP/1.0 200 OK")


def test_a_slow_sender_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitation_server, "_SECONDS", 0.5)
    with serving() as address, connected(address) as connection:
        connection.settimeout(0.1)
        for _ in range(200):
            try:
                connection.sendall(b"x")
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("it waits as long as bytes come")


def test_requests_for_coins_beyond_the_limit_are_refused_at_once() -> None:
    """The chain does not answer here, so that the first request keeps its turn."""
    body = json.dumps({"account": "0x" + "11" * 20}).encode()
    asked = b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        access = FaucetAccess([url], BOB, Account(bytes(20)))
        address = stack.enter_context(serving(access))
        waiting = []
        for _ in range(MAX_WAITING + 1):
            waiting.append(stack.enter_context(connected(address)))
            waiting[-1].sendall(asked)
        ready, _, _ = select.select(waiting, [], [], PATIENCE_SECONDS)
        [refused] = ready
        assert refused.recv(4096).startswith(b"HTTP/1.0 503")


@pytest.mark.parametrize(
    ("leads_to", "is_followed"),
    [
        ("http://127.0.0.1:{port}/there", True),
        ("http://127.3.0.1:{port}/there", False),
        ("ftp://127.0.0.1/", False),
    ],
    ids=["the same host", "another host", "another protocol"],
)
def test_a_redirect_to_a_refused_address_is_not_followed(leads_to: str, *, is_followed: bool) -> None:
    """An unencrypted address of another host is refused in a command, and so it is behind a redirect."""
    text = to_file(Invitation(make_manifest())).encode()

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_there = self.path == "/there"
            self.send_response(200 if is_there else 302)
            self.send_header("Location", leads_to.format(port=port))
            self.end_headers()
            self.wfile.write(text if is_there else b"")

    with HTTPServer(("0.0.0.0", 0), Host) as host:
        port = host.server_address[1]
        thread = threading.Thread(target=host.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{port}/"
            if is_followed:
                assert read_invitation(address).manifest == make_manifest()
            else:
                with pytest.raises(SapoError, match="which is not encrypted"):
                    read_invitation(address)
        finally:
            host.shutdown()
            thread.join()
