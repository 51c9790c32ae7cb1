"""Announcements of a node in the local network, and its use of others' announcements."""

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.addresses import PeerAddress, listens_beyond_loopback
from sapo_client.swarm.nearby import (
    dialable,
    for_neighbours,
    hosts_of_this_machine,
    parse_text,
    service_type,
    to_text,
)
from sapo_client.swarm.peer_id import peer_id_from_key

SWARM, OTHER_SWARM = "ab" * 32, "ab" * 4 + "cd" * 28
PEER, OTHER_PEER = (peer_id_from_key(bytes([number]) * 32) for number in (1, 2))


def _address(host: str, peer_id: str = PEER) -> PeerAddress:
    return PeerAddress("ip6" if ":" in host else "ip4", host, 4001, peer_id)


def _entries(swarm_id: str, *addresses: PeerAddress) -> dict[bytes, bytes | None]:
    return {key.encode(): value.encode() for key, value in to_text(swarm_id, addresses).items()}


def test_swarms_have_types_of_their_own() -> None:
    assert service_type(SWARM) == "_sapo-abababab._tcp.local."


def test_a_text_record_holds_what_neighbours_can_dial() -> None:
    dialable = [_address("192.168.0.7"), _address("fd00::7"), _address("203.0.113.7")]
    unusable = [_address("127.0.0.1"), _address("0.0.0.0"), _address("fe80::7"), _address("::1")]
    assert to_text(SWARM, [*unusable, *dialable]) == {
        "swarm": SWARM,
        "a0": f"/ip4/192.168.0.7/tcp/4001/p2p/{PEER}",
        "a1": f"/ip6/fd00::7/tcp/4001/p2p/{PEER}",
        "a2": f"/ip4/203.0.113.7/tcp/4001/p2p/{PEER}",
    }
    assert parse_text(SWARM, _entries(SWARM, *dialable)) == tuple(dialable)


def test_a_record_gives_only_addresses_of_one_peer_of_this_swarm() -> None:
    mine, others = _address("192.168.0.7"), _address("192.168.0.8", OTHER_PEER)
    assert parse_text(OTHER_SWARM, _entries(SWARM, mine)) == (), "the same type, another swarm"
    assert parse_text(SWARM, _entries(SWARM, mine, others)) == (mine,)
    strange = {
        b"a0": f"/ip4/127.0.0.1/tcp/22/p2p/{PEER}".encode(),
        b"a1": None,
        b"a2": b"\xff",
        b"new": b"key",
    }
    assert parse_text(SWARM, {b"swarm": SWARM.encode(), **strange}) == ()
    assert parse_text(
        SWARM, _entries(SWARM, *[_address(f"10.0.0.{number}") for number in range(1, 99)])
    ) == tuple(_address(f"10.0.0.{number}") for number in range(1, 9))


@given(st.dictionaries(st.sampled_from([b"swarm", b"a0", b"a7"]), st.none() | st.binary(max_size=255)))
def test_records_without_valid_addresses_are_empty(entries: dict[bytes, bytes | None]) -> None:
    assert parse_text(SWARM, {**entries, b"swarm": SWARM.encode()}) == ()


def test_an_unspecified_address_is_announced_once_per_interface() -> None:
    listening = [_address("0.0.0.0"), _address("127.0.0.1"), _address("203.0.113.7")]
    here = [_address(host) for host in hosts_of_this_machine() if ":" not in host]
    assert for_neighbours(listening) == (*here, _address("203.0.113.7"))


def test_an_unspecified_address_is_shown_as_others_dial_it() -> None:
    """`sapo status` is where people copy the address for `sapo swarm link --bootstrap`."""
    listening = [str(_address("0.0.0.0")), "/memory/1", str(_address("127.0.0.1"))]
    here = [str(_address(host)) for host in hosts_of_this_machine() if ":" not in host]
    assert dialable(listening) == (*(here or listening[:1]), *listening[1:])


def test_a_node_that_listens_only_on_loopback_has_no_neighbours() -> None:
    loopback = "/ip4/127.0.0.1/tcp/0"
    assert not listens_beyond_loopback([loopback, "/ip6/::1/tcp/4001"])
    assert listens_beyond_loopback([loopback, "/ip4/0.0.0.0/tcp/0"])
    assert listens_beyond_loopback(["/ip6/::/tcp/0"])
    assert listens_beyond_loopback(["/ip4/192.168.0.7/tcp/4001"])
