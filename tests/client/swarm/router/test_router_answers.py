"""Routers' answers are parsed or dropped, never forwarded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.addresses import Scope
from sapo_client.swarm.router.answers import (
    MapReply,
    RouterState,
    RouterView,
    host_of,
    parse_found,
    parse_line,
)

ROUTER = "192.168.1.1"


def found(location: str, *, first: str = "HTTP/1.1 200 OK", key: str = "LOCATION") -> bytes:
    return f"{first}\r\nST: x\r\n{key}: {location}\r\n\r\n".encode()


@pytest.mark.parametrize("key", ["LOCATION", "Location", "location"])
def test_the_description_address_of_a_router_is_parsed(key: str) -> None:
    url = f"http://{ROUTER}:5000/root.xml"
    assert parse_found(found(url, key=key), ROUTER, Scope.NETWORK) == url


@pytest.mark.parametrize(
    ("datagram", "sender"),
    [
        (found("http://192.168.1.2:80/"), ROUTER),
        (found("http://127.0.0.1:8545/"), ROUTER),
        (found("http://127.0.0.1:8545/"), "127.0.0.1"),
        (found("http://8.8.8.8/"), "8.8.8.8"),
        (found(f"http://{ROUTER}@8.8.8.8/"), ROUTER),
        (found(f"https://{ROUTER}/"), ROUTER),
        (found(f"http://{ROUTER}:99999/"), ROUTER),
        (found(f"http://{ROUTER}:0/"), ROUTER),
        (found("http://router.lan/"), ROUTER),
        (found("file:///etc/passwd"), ROUTER),
        (found(f"http://{ROUTER}/\x1b[2J"), ROUTER),
        (found(f"http://{ROUTER}/" + "a" * 300), ROUTER),
        (found(f"http://{ROUTER}/", first="HTTP/1.1 302 Found"), ROUTER),
        (found(f"http://{ROUTER}/") + b" " * 4096, ROUTER),
        (b"NOTIFY * HTTP/1.1\r\nLOCATION: http://192.168.1.1/\r\n\r\n", ROUTER),
    ],
)
def test_other_answers_are_not_followed(datagram: bytes, sender: str) -> None:
    assert parse_found(datagram, sender, Scope.NETWORK) is None


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (
            b"mapped 4001 3600 203.0.113.7\n",
            MapReply(RouterView(RouterState.MAPPED, ROUTER, 4001, "203.0.113.7"), 3600),
        ),
        (b"mapped 4001 0 unknown\n", MapReply(RouterView(RouterState.MAPPED, ROUTER, 4001), 0)),
        (
            b"refused Action not authorized\n",
            MapReply(RouterView(RouterState.REFUSED, ROUTER, detail="Action not authorized")),
        ),
        (b"", None),
        (b"mapped 0 3600 203.0.113.7\n", None),
        (b"mapped 65536 3600 203.0.113.7\n", None),
        (b"mapped 4001 3600 203.0.113.7 and more\n", None),
        (b"refused \x1b[2J\n", None),
        (b"refused " + b"a" * 61 + b"\n", None),
        (b"silent because\n", None),
    ],
)
def test_a_line_is_parsed_as_a_reply_or_refused(line: bytes, reply: MapReply | None) -> None:
    assert parse_line(line, ROUTER) == reply


@given(st.binary(max_size=300))
def test_no_bytes_raise_and_none_reach_a_terminal(data: bytes) -> None:
    reply = parse_line(data, ROUTER)
    assert reply is None or str(reply.view.detail).isprintable()
    parse_found(b"HTTP/1.1 200 OK\r\nLOCATION: " + data + b"\r\n", ROUTER, Scope.NETWORK)


@given(st.text(max_size=40))
def test_the_host_of_a_url_is_an_address_or_none(text: str) -> None:
    host = host_of(f"http://{text}")
    assert host is None or text.startswith(host)
