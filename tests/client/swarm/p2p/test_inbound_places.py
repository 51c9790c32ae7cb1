"""Attacks on the places for inbound connections, while a peer that earned trust connects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import trio
from libp2p.network.exceptions import SwarmException
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr.multiaddr import Multiaddr

from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.handshakes import Handshakes
from sapo_client.swarm.p2p.host import build_host
from sapo_client.swarm.p2p.notifee import ConnectionNotifee
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.vouched import VouchedPeers
from sapo_protocol.ed25519 import public_key

FRIEND = 99
LIMITS = TransportLimits(max_connections=8)  # six inbound, four of them for strangers
INBOUND, STRANGERS = 6, 4
SILENT_HOST = "127.0.0.9"


async def guarded_victim(swarm: Any, tools: Any) -> Any:
    """Return a node that dials nobody and keeps two of its places for one friend."""
    dial = replace(tools.QUICK_DIAL, target_peers=0, vouched_peers=0)
    victim = await swarm.start(1, limits=LIMITS, dial=dial)
    victim.transport.vouch([peer_id_from_key(public_key(bytes([FRIEND]) * 32))])
    return victim


async def friend_connects(swarm: Any, tools: Any, victim: Any) -> None:
    """Return once the friend is connected."""
    friend = await swarm.start(FRIEND, bootstrap=victim.transport.addresses)
    await tools.eventually(lambda: friend.peer_id in victim.peer_ids())


@asynccontextmanager
async def attackers(victim: Any, tools: Any, seeds: list[int]) -> AsyncIterator[list[bool]]:
    """Connect with the keys of these seeds at the same time; yield whether each connection was opened."""
    ends: list[bool] = []

    async def connect(seed: int) -> None:
        host = build_host(
            bytes([seed]) * 32,
            limits=TransportLimits(),
            dial=tools.QUICK_DIAL,
            admits=lambda _: True,
            vouched=VouchedPeers(),
            blame=lambda *_: None,
            report=lambda _: None,
        )
        async with host.run([]):
            try:
                await host.connect(info_from_p2p_addr(Multiaddr(victim.transport.addresses[0])))
            except SwarmException:
                ends.append(False)
            else:
                ends.append(True)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for seed in seeds:
            nursery.start_soon(connect, seed)
        await tools.eventually(lambda: len(ends) == len(seeds))
        yield ends
        nursery.cancel_scope.cancel()


def connections_of(victim: Any) -> int:
    return len(victim.transport._host.swarm.get_connections())


async def test_one_key_takes_two_places_however_often_it_connects(swarm: Any, tools: Any) -> None:
    victim = await guarded_victim(swarm, tools)
    async with attackers(victim, tools, [200] * INBOUND):
        await tools.eventually(lambda: connections_of(victim) == 2)
        await friend_connects(swarm, tools, victim)
        assert connections_of(victim) == 3


async def test_strangers_that_connect_at_the_same_time_leave_the_reserved_places(
    swarm: Any, tools: Any
) -> None:
    victim = await guarded_victim(swarm, tools)
    async with attackers(victim, tools, list(range(200, 200 + INBOUND))):
        await tools.eventually(lambda: connections_of(victim) == STRANGERS)
        await friend_connects(swarm, tools, victim)
        assert connections_of(victim) == STRANGERS + 1


async def _say_nothing(port: int) -> None:
    """Hold a connection without a handshake, and open the next one as soon as it is closed."""
    while True:
        connection = await trio.open_tcp_stream("127.0.0.1", port, local_address=SILENT_HOST)
        try:
            while await connection.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
        await connection.aclose()


async def test_connections_that_never_shake_hands_lock_nobody_out(swarm: Any, tools: Any) -> None:
    """They are opened again as soon as they are closed, from one address with more than all places."""
    victim = await guarded_victim(swarm, tools)
    port = int(victim.transport.addresses[0].split("/")[4])
    slots = victim.transport._host.swarm._inbound_limiter
    async with trio.open_nursery() as nursery:
        for _ in range(2 * INBOUND):
            nursery.start_soon(_say_nothing, port)
        await tools.eventually(lambda: slots.borrowed_tokens == INBOUND)
        await friend_connects(swarm, tools, victim)
        stranger = await swarm.start(2, bootstrap=victim.transport.addresses)
        await tools.eventually(lambda: stranger.peer_id in victim.peer_ids())
        nursery.cancel_scope.cancel()
    await tools.eventually(lambda: slots.borrowed_tokens == 2)


async def _forward(stream: trio.SocketStream, port: int, host: str) -> None:
    """Forward a connection to a port of this machine, where it comes from another host."""

    async def copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
        async for data in source:
            await target.send_all(data)
        await target.send_eof()

    with ContainExceptions(lambda _: None):
        onward = await trio.open_tcp_stream("127.0.0.1", port, local_address=host)
        async with stream, onward, trio.open_nursery() as nursery:
            nursery.start_soon(copy, stream, onward)
            nursery.start_soon(copy, onward, stream)


async def test_a_host_with_many_keys_makes_room_for_strangers_of_other_networks(
    swarm: Any, tools: Any
) -> None:
    """Each of two networks gets half of the places, and no connection ends after that."""
    victim = await guarded_victim(swarm, tools)
    [address] = victim.transport.addresses
    port = address.split("/")[4]
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    through = address.replace(f"/{port}/", f"/{listener.socket.getsockname()[1]}/")
    async with trio.open_nursery() as nursery:
        forward = partial(_forward, port=int(port), host="127.0.1.9")
        nursery.start_soon(trio.serve_listeners, forward, [listener])
        passive = replace(tools.QUICK_DIAL, target_peers=0, sought_peers=0)
        crowd = [await swarm.start(number, dial=passive, bootstrap=(through,)) for number in range(2, 8)]
        await tools.eventually(lambda: len(victim.peer_ids()) == STRANGERS)
        newcomers = [
            await swarm.start(number, dial=passive, bootstrap=(address,)) for number in range(20, 23)
        ]
        for count in (1, 2):
            await tools.eventually(
                lambda count=count: sum(one.peer_id in victim.peer_ids() for one in newcomers) >= count
            )
        kept = victim.peer_ids()
        dials = [one.transport.counters()["dials"] for one in (*crowd, *newcomers)]
        await tools.eventually(
            lambda: all(
                one.transport.counters()["dials"] > before + 3 or one.peer_id in kept
                for one, before in zip((*crowd, *newcomers), dials, strict=True)
            )
        )
        assert victim.peer_ids() == kept
        assert sum(one.peer_id in kept for one in newcomers) == STRANGERS // 2
        nursery.cancel_scope.cancel()


async def test_a_banned_peer_is_never_registered(swarm: Any, tools: Any, hostile: Any) -> None:
    """It is refused before anything hears of its connection: its place, gossip and the address book."""
    victim = await swarm.start(1)
    swarm_of_victim = victim.transport._host.swarm
    registered: list[str] = []
    swarm_of_victim.register_notifee(ConnectionNotifee(registered.append, lambda _: None))
    await hostile.connect(victim.transport.addresses[0])
    await tools.eventually(lambda: registered == [hostile.peer_id])
    while victim.transport.score(hostile.peer_id) > LIMITS.score.ban_below:
        victim.transport.blame(hostile.peer_id)
    await tools.eventually(lambda: victim.peer_ids() == set())
    refused = victim.transport._counters.broken_connections
    for number in range(1, 4):
        await hostile.connect(victim.transport.addresses[0])
        await tools.eventually(
            lambda least=refused + number: victim.transport._counters.broken_connections >= least
        )
    assert registered == [hostile.peer_id]
    assert victim.peer_ids() == set()


async def test_the_oldest_handshake_of_the_network_with_most_gives_way() -> None:
    """First of the provider with most, there of the address with most; never the newcomer itself."""
    hosts = ["203.0.113.1", "198.51.2.2", "198.51.100.7", "198.51.100.7", "198.51.2.3", "192.0.2.1"]
    handshakes, ended = Handshakes(), []
    async with AsyncExitStack() as stack:
        scopes = {}
        for number, host in enumerate(hosts):
            scopes[number] = stack.enter_context(handshakes.begin(host))
        newcomer = scopes.pop(len(hosts) - 1)
        while handshakes.end_another(newcomer):
            ended += [number for number, scope in scopes.items() if scope.cancel_called]
            scopes = {number: scope for number, scope in scopes.items() if not scope.cancel_called}
    assert ended == [2, 1, 3, 0, 4]
