"""Real nodes without a bootstrap address, found by multicast on this machine's own network interface."""

from __future__ import annotations

import secrets
import socket
from collections import Counter
from typing import Any

import pytest
import trio
from libp2p.identity.identify.identify import _mk_identify_protobuf
from libp2p.peer.envelope import consume_envelope
from libp2p.peer.peerstore import env_to_send_in_RPC
from zeroconf import ServiceInfo, Zeroconf

from sapo_client.swarm import neighbours
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.nearby import service_type
from sapo_client.swarm.neighbours import Neighbours, look_around
from sapo_client.swarm.peer_id import peer_id_from_key

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
    assert await _looked_around(ours, 2) == {first.peer_id, second.peer_id}
    assert swarm.bugs == []

    await second.stop()
    await tools.eventually(lambda: first.transport.neighbours() == 0)


async def test_a_lookup_that_is_lost_is_made_again(
    swarm: Any, tools: Any, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told of a second time by zeroconf: who forgets the name does not meet the node."""
    lost: set[tuple[Zeroconf, str]] = set()

    class LossyLookup(ServiceInfo):
        """Looks a name up; the first answer to each asker is lost."""

        def request(self, zc: Zeroconf, timeout: float, *args: Any, **named: Any) -> bool:
            asked, asks = len(lost), (zc, self.name)
            lost.add(asks)
            return len(lost) == asked and super().request(zc, timeout, *args, **named)

    monkeypatch.setattr(neighbours, "ServiceInfo", LossyLookup)
    monkeypatch.setattr(neighbours, "LOOK_SECONDS", 0.1)
    ours = secrets.token_hex(32)
    nodes = [await swarm.start(n, listen=(f"/ip4/{host}/tcp/0",), mdns_swarm=ours) for n in (1, 2)]
    await tools.eventually(lambda: [node.transport.neighbours() for node in nodes] == [1, 1])
    assert await _looked_around(ours, 2) == {node.peer_id for node in nodes}
    assert swarm.bugs == []


async def test_a_name_without_anybody_behind_it_is_looked_up_three_times(
    host: str, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[Zeroconf] = Counter()

    class CountedLookup(ServiceInfo):
        """Looks a name up and counts; the ghost's answers are lost."""

        def request(self, zc: Zeroconf, timeout: float, *args: Any, **named: Any) -> bool:
            asked[zc] += (is_ghost := self.name.startswith("ghost"))
            return not is_ghost and super().request(zc, timeout, *args, **named)

    monkeypatch.setattr(neighbours, "ServiceInfo", CountedLookup)
    monkeypatch.setattr(neighbours, "LOOK_SECONDS", 0.05)
    swarm_id, told = secrets.token_hex(32), list[str]()
    kind = service_type(swarm_id)
    ghost = Zeroconf(interfaces=[host])
    ghost.register_service(ServiceInfo(kind, f"ghost.{kind}", port=1, parsed_addresses=[host]))
    own, other = (
        PeerAddress("ip4", host, 4001, peer_id_from_key(bytes([number]) * 32)) for number in range(2)
    )
    node = Neighbours(swarm_id, lambda: [own], lambda found, _: told.extend(each.peer_id for each in found))
    neighbour = Neighbours(swarm_id, lambda: [other], lambda *_: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        await tools.eventually(lambda: 3 in asked.values())
        nursery.start_soon(neighbour.run)
        await tools.eventually(lambda: told.count(other.peer_id) >= 10)
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(ghost.close)
    assert max(asked.values()) == 3


async def _looked_around(swarm_id: str, peers: int) -> set[str]:
    """Return whom looks around show together, until that many are seen; a busy machine answers late."""
    seen: set[str] = set()
    for _ in range(10):
        seen |= await trio.to_thread.run_sync(look_around, swarm_id, 2.0)
        if len(seen) >= peers:
            break
    return seen


async def test_a_node_that_listens_only_on_loopback_is_not_announced(swarm: Any) -> None:
    alone = await swarm.start(1, mdns_swarm=secrets.token_hex(32))
    assert alone.transport.neighbours() is None


async def test_strangers_get_no_local_address(swarm: Any) -> None:
    """Identify and gossip say the same to all peers: nothing of loopback or of a local network."""
    node = await swarm.start(1)
    host = node.transport._host
    record, _ = env_to_send_in_RPC(host)
    said = consume_envelope(record, "libp2p-peer-record")[1].addrs
    identified = _mk_identify_protobuf(host, None).listen_addrs
    assert (list(said), list(identified)) == ([], [])
    assert node.transport.addresses[0].startswith("/ip4/127.0.0.1/tcp/")
