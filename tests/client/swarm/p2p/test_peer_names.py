"""A DNS name that came from the internet leads nobody into a local network; other names may."""

from __future__ import annotations

import random
import socket
from functools import partial
from typing import Any

import pytest
import trio

from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress, Scope
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.p2p.peer_names import resolved
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.transport import FoundPeer, TransportError
from sapo_protocol.ed25519 import public_key

STRANGER = peer_id_from_key(public_key(bytes([77]) * 32))
HOSTS = {
    "printer.example.org": ("127.0.0.1",),
    "peer.example.org": ("127.0.0.1",),
    "both.example.org": ("192.168.0.7", "203.0.113.7", "2001:db8::7", "64:ff9b::10.0.0.7"),
    "nas.lan": ("192.168.0.9",),
}


class NameServer(trio.abc.HostnameResolver):
    """Resolves the names of `HOSTS`, in place of the network's."""

    async def getaddrinfo(
        self, host: bytes | None, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        await trio.lowlevel.checkpoint()
        found = []
        for text in HOSTS.get((host or b"").decode(), ()):
            of = socket.AF_INET6 if ":" in text else socket.AF_INET
            if family in {socket.AF_UNSPEC, of}:
                found.append(
                    (of, type, proto, "", (text, port, 0, 0) if of == socket.AF_INET6 else (text, port))
                )
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


async def test_a_strangers_name_leads_to_no_host_in_the_local_network(swarm: Any, tools: Any) -> None:
    trio.socket.set_custom_hostname_resolver(NameServer())  # for this run of trio
    connections: list[trio.SocketStream] = []

    async def print_whatever_comes(stream: trio.SocketStream) -> None:
        await trio.lowlevel.checkpoint()
        connections.append(stream)

    victim = await swarm.start(1)
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, print_whatever_comes, 0, host="127.0.0.1")
        [printer] = await nursery.start(serve)
        port = printer.socket.getsockname()[1]
        address = f"/dns4/printer.example.org/tcp/{port}/p2p/{STRANGER}"
        victim.transport.seek(
            [FoundPeer(STRANGER, (address,), "203.0.113.9", frozenset({0}), "203.0.0.0/16")]
        )
        await tools.eventually(lambda: victim.transport.counters()["dials_failed"] > 0)
        nursery.cancel_scope.cancel()
    assert connections == []


async def test_a_name_that_the_operator_gives_may_lead_there(swarm: Any, tools: Any) -> None:
    trio.socket.set_custom_hostname_resolver(NameServer())  # for this run of trio
    first = await swarm.start(1)
    [address] = first.transport.addresses
    named = address.replace("/ip4/127.0.0.1/", "/dns4/peer.example.org/")
    assert named != address
    second = await swarm.start(2, bootstrap=(named,))
    await tools.eventually(lambda: [each.peer_id for each in second.transport.peers()] == [first.peer_id])


@pytest.mark.parametrize(
    ("kind", "host", "source", "found"),
    [
        ("ip4", "192.168.0.7", Scope.INTERNET, ["/ip4/192.168.0.7"]),
        ("dns", "both.example.org", Scope.INTERNET, ["/ip4/203.0.113.7", "/ip6/2001:db8::7"]),
        ("dns4", "both.example.org", Scope.INTERNET, ["/ip4/203.0.113.7"]),
        ("dns4", "both.example.org", Scope.NETWORK, ["/ip4/192.168.0.7", "/ip4/203.0.113.7"]),
        ("dns6", "both.example.org", Scope.MACHINE, ["/ip6/2001:db8::7", "/ip6/64:ff9b::10.0.0.7"]),
        ("dns", "nas.lan", Scope.INTERNET, ["/ip4/192.168.0.9"]),
    ],
)
async def test_a_name_leads_to_the_region_that_it_came_from(
    kind: str, host: str, source: Scope, found: list[str]
) -> None:
    trio.socket.set_custom_hostname_resolver(NameServer())  # for this run of trio
    addresses = await resolved(PeerAddress(kind, host, 4001, STRANGER), source)
    assert list(map(str, addresses)) == [f"{each}/tcp/4001/p2p/{STRANGER}" for each in found]


@pytest.mark.parametrize("source", [Scope.NETWORK, Scope.INTERNET])
async def test_a_name_that_leads_only_elsewhere_is_refused(source: Scope) -> None:
    trio.socket.set_custom_hostname_resolver(NameServer())  # for this run of trio
    address = PeerAddress("dns", "printer.example.org", 4001, STRANGER)
    with pytest.raises(TransportError, match="leads into a local network"):
        await resolved(address, source)


def test_the_book_knows_the_region_of_whoever_told_an_address() -> None:
    book = AddressBook("own", DialLimits(), random.Random(0))
    told = {"192.168.0.3": Scope.NETWORK, "203.0.113.3": Scope.INTERNET, "2001:db8::3": Scope.INTERNET}
    for number, host in enumerate(told):
        book.learn_signed([PeerAddress("dns4", "peer.example.org", 4001, f"peer {number}")], host)
    assert [book.source_scope(f"peer {number}") for number in range(3)] == list(told.values())
    book.add_bootstrap(PeerAddress("dns4", "peer.example.org", 4001, "peer 2"))
    assert (book.source_scope("peer 2"), book.source_scope("unknown")) == (Scope.MACHINE, Scope.MACHINE)
