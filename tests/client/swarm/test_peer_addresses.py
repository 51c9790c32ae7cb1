"""Addresses as text, the peer exchange's payload and the peer cache."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm import peer_cache, peer_exchange
from sapo_client.swarm.addresses import PeerAddress, Scope, network_of, parse_address, scope_of, site_of
from sapo_client.swarm.peer_id import peer_id_from_key

PEER = peer_id_from_key(bytes(range(32)))
ADDRESSES = st.builds(
    PeerAddress,
    kind=st.just("ip4"),
    host=st.ip_addresses(v=4).map(str),
    port=st.integers(1, 65535),
    peer_id=st.binary(min_size=32, max_size=32).map(peer_id_from_key),
)


@given(ADDRESSES)
def test_an_address_is_parsed_from_its_text(address: PeerAddress) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/ip4/127.0.0.1/tcp/4001",
        f"/ip4/127.0.0.1/tcp/0/p2p/{PEER}",
        f"/ip4/127.0.0.1/tcp/65536/p2p/{PEER}",
        f"/ip4/127.0.0.1/udp/4001/quic-v1/p2p/{PEER}",
        f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER[:-1]}",
        f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}/p2p-circuit",
        f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}\n",
        f"/dns/{'a' * 300}/tcp/4001/p2p/{PEER}",
        f"/ip4/999.1.1.1/tcp/4001/p2p/{PEER}",
        f"/ip4/127.0.0.01/tcp/4001/p2p/{PEER}",
        f"/ip4/example.org/tcp/4001/p2p/{PEER}",
        f"/ip4/::1/tcp/4001/p2p/{PEER}",
        f"/ip6/127.0.0.1/tcp/4001/p2p/{PEER}",
        f"/ip6/1::2::3/tcp/4001/p2p/{PEER}",
        # resolvers take these for 127.0.0.1, which is no name of the internet's
        f"/dns4/127.1/tcp/8545/p2p/{PEER}",
        f"/dns4/127.0.0.1./tcp/8545/p2p/{PEER}",
        f"/dns/2130706433/tcp/8545/p2p/{PEER}",
        f"/dns4/127.0.0.0x1/tcp/8545/p2p/{PEER}",
    ],
)
def test_addresses_that_cannot_be_dialled_are_refused(text: str) -> None:
    assert parse_address(text) is None


@given(st.lists(ADDRESSES, max_size=80))
def test_an_exchange_is_parsed_back_up_to_its_bound(addresses: list[PeerAddress]) -> None:
    payload = peer_exchange.encode(addresses)
    assert peer_exchange.decode(payload) == tuple(addresses[: peer_exchange.MAX_ADDRESSES])
    assert len(payload) <= peer_exchange.MAX_PAYLOAD_BYTES


@given(st.binary(max_size=2000))
def test_any_bytes_decode_only_to_addresses_that_can_be_dialled(payload: bytes) -> None:
    for address in peer_exchange.decode(payload):
        assert parse_address(str(address)) == address


def test_unspecified_hosts_become_the_host_that_we_saw() -> None:
    everywhere = PeerAddress("ip4", "0.0.0.0", 4001, PEER)
    assert everywhere.seen_from("203.0.113.7") == PeerAddress("ip4", "203.0.113.7", 4001, PEER)
    assert everywhere.seen_from("2001:db8::7") == PeerAddress("ip6", "2001:db8::7", 4001, PEER)
    named = PeerAddress("dns4", "swarm.example", 4001, PEER)
    assert named.seen_from("203.0.113.7") == named


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("127.0.0.1", Scope.MACHINE),
        ("::1", Scope.MACHINE),
        ("::ffff:127.0.0.1", Scope.MACHINE),
        ("0.0.0.7", Scope.MACHINE),
        ("64:ff9b::127.0.0.1", Scope.MACHINE),  # NAT64 of this machine
        ("2002:7f00:1::1", Scope.MACHINE),  # 6to4 of it
        ("::127.0.0.1", Scope.MACHINE),
        ("localhost", Scope.MACHINE),
        ("any.LOCALHOST.", Scope.MACHINE),
        ("10.1.2.3", Scope.NETWORK),
        ("172.31.255.255", Scope.NETWORK),
        ("192.168.0.1", Scope.NETWORK),
        ("169.254.169.254", Scope.NETWORK),
        ("100.64.0.1", Scope.NETWORK),
        ("::ffff:192.168.0.1", Scope.NETWORK),
        ("64:ff9b::10.1.2.3", Scope.NETWORK),
        ("64:ff9b:1::203.0.113.7", Scope.NETWORK),
        ("2002:c0a8:1::1", Scope.NETWORK),
        ("2001:0:cb00:7107:0:f227:3f57:fffe", Scope.NETWORK),  # Teredo of 192.168.0.1
        ("fec0::1", Scope.NETWORK),
        ("fd00::1", Scope.NETWORK),
        ("fe80::1", Scope.NETWORK),
        ("router", Scope.NETWORK),
        ("Printer.local.", Scope.NETWORK),
        ("nas.home.arpa", Scope.NETWORK),
        ("172.32.0.1", Scope.INTERNET),
        ("100.128.0.1", Scope.INTERNET),
        ("203.0.113.7", Scope.INTERNET),
        ("2001:db8::7", Scope.INTERNET),
        ("64:ff9b::203.0.113.7", Scope.INTERNET),
        ("2002:cb00:7107::1", Scope.INTERNET),
        ("swarm.example.org", Scope.INTERNET),
        ("notlocal.example", Scope.INTERNET),
    ],
)
def test_each_host_has_its_scope(host: str, scope: Scope) -> None:
    assert scope_of(host) is scope


def test_an_address_is_shared_only_with_peers_in_its_scope() -> None:
    hosts = ("127.0.0.1", "192.168.0.1", "203.0.113.7")
    addresses = [PeerAddress("ip4", host, 4001, PEER) for host in hosts]
    assert [[address.means_the_same(host) for address in addresses] for host in hosts] == [
        [True, True, True],
        [False, True, True],
        [False, False, True],
    ]
    assert PeerAddress("ip4", "0.0.0.0", 4001, PEER).means_the_same("203.0.113.7")


def test_hosts_are_grouped_by_network() -> None:
    hosts = (
        "192.0.2.1",
        "2001:db8:1:2:3::4",
        "::ffff:192.0.2.1",
        "64:ff9b::192.0.2.1",
        "2002:c000:201:7::1",
        "n1.Swarm.example.org.",
    )
    assert [network_of(host) for host in hosts] == [
        "192.0.2.1",
        "2001:db8:1:2::/64",
        "192.0.2.1",
        "192.0.2.1",
        "192.0.2.1",
        "example.org",
    ]


def test_a_cache_is_read_back_and_an_absent_one_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "peers.txt"
    assert peer_cache.load(path) == ()
    addresses = (PeerAddress("ip4", "203.0.113.7", 4001, PEER),)
    peer_cache.save(path, addresses)
    path.write_text(path.read_text() + "garbage\n")
    assert peer_cache.load(path) == addresses


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("203.0.113.7", "203.0.113.0/24"),
        ("::ffff:203.0.113.7", "203.0.113.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("node.example.org", "example.org"),
    ],
)
def test_a_site_is_what_is_rented_as_a_whole(host: str, site: str) -> None:
    assert site_of(host) == site
