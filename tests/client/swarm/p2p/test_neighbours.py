"""Real nodes without a bootstrap address, found by multicast on this machine's own network interface."""

from __future__ import annotations

import secrets
import socket
from typing import Any

import pytest
import trio
from libp2p.identity.identify.identify import _mk_identify_protobuf
from libp2p.peer.envelope import consume_envelope
from libp2p.peer.peerstore import env_to_send_in_RPC

from sapo_client.swarm.neighbours import look_around

GROUP = "224.0.0.251"


@pytest.fixture
def host(tools: Any) -> str:
    """Return an address of this machine over which multicast comes back, or skip the test."""
    host = str(tools.host_of_this_machine())
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as told,
    ):
        heard.bind(("", 0))
        heard.settimeout(2.0)
        try:
            heard.setsockopt(
                socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(host)
            )
            told.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
            told.sendto(b"?", (GROUP, heard.getsockname()[1]))
            heard.recv(1)
        except OSError as error:
            pytest.skip(f"no multicast on {host}: {error}")
    return host


async def test_nodes_of_one_swarm_meet_without_a_bootstrap_address(swarm: Any, tools: Any, host: str) -> None:
    ours, theirs = secrets.token_hex(32), secrets.token_hex(32)
    listen = (f"/ip4/{host}/tcp/0",)
    first = await swarm.start(1, listen=listen, mdns_swarm=ours)
    stranger = await swarm.start(2, listen=listen, mdns_swarm=theirs)
    second = await swarm.start(3, listen=listen, mdns_swarm=ours)
    await tools.eventually(lambda: first.peer_ids() == {second.peer_id})
    await tools.eventually(lambda: tools.subscribed_peers(first) == 1)
    await first.publish(b"hello, neighbour")
    await tools.eventually(lambda: second.accepted == [b"hello, neighbour"])
    await tools.eventually(lambda: first.transport.neighbours() == second.transport.neighbours() == 1)
    assert (stranger.peer_ids(), stranger.transport.neighbours()) == (set(), 0)
    seen = await trio.to_thread.run_sync(look_around, ours, 2.0)
    assert seen == {first.peer_id, second.peer_id}
    assert swarm.bugs == []

    await second.stop()
    await tools.eventually(lambda: first.transport.neighbours() == 0)


async def test_who_listens_on_loopback_alone_is_not_announced(swarm: Any) -> None:
    alone = await swarm.start(1, mdns_swarm=secrets.token_hex(32))
    assert alone.transport.neighbours() is None


async def test_a_stranger_is_told_no_local_address(swarm: Any) -> None:
    """Identify and gossip say the same to all peers: nothing of loopback or of a local network."""
    node = await swarm.start(1)
    host = node.transport._host
    record, _ = env_to_send_in_RPC(host)
    said = consume_envelope(record, "libp2p-peer-record")[1].addrs
    identified = _mk_identify_protobuf(host, None).listen_addrs
    assert (list(said), list(identified)) == ([], [])
    assert node.transport.addresses[0].startswith("/ip4/127.0.0.1/tcp/")
