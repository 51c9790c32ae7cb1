"""Connections without traffic that both ends keep open."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.peer_exchange import PROTOCOL as PEERS
from sapo_client.swarm.transport import TransportError
from sapo_protocol.constants import MAX_ENVELOPE_BYTES

PEERS_BEHIND_RELAYS = 6
MESSAGES_THAT_FILL_ALL_BUFFERS = 64
"""Of 128 KiB: twice what Linux lets a sender of TCP keep."""

LIMITS = TransportLimits(request_timeout_seconds=0.5, ping_after_seconds=0.5, pong_seconds=0.5)
NEVER_ASKS = TransportLimits(ping_after_seconds=3600.0)


@dataclass
class Relay:
    """Forwards TCP connections to a port until it is frozen; then it keeps them open and forwards nothing."""

    address: str
    thawed: trio.Event = field(default_factory=trio.Event)
    frozen: bool = False

    @property
    def port(self) -> int:
        """The port of the peer's address."""
        return int(self.address.split("/")[4])

    async def listen(self, nursery: trio.Nursery, receive_bytes: int | None = None) -> str:
        """Serve on a port of its own until cancelled; return the peer's address through it.

        Args:
            receive_bytes: of the socket's buffer, if it is not to be the usual one.
        """
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        if receive_bytes is not None:
            listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        nursery.start_soon(trio.serve_listeners, self.serve, [listener])
        port = listener.socket.getsockname()[1]
        return self.address.replace(f"/{self.port}/", f"/{port}/")

    async def serve(self, stream: trio.SocketStream) -> None:
        onward = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream, onward, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, stream, onward)
            nursery.start_soon(self._copy, onward, stream)

    async def _copy(self, source: trio.SocketStream, target: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                if self.frozen:
                    await self.thawed.wait()
                await target.send_all(data)


def connections_of(member: Any) -> list[Any]:
    """Return its connections; a peer whose connection ends dials again at once, so it is hardly missing."""
    network = member.transport._host.get_network()
    return [connection for each in network.connections.values() for connection in each]


async def test_when_all_connections_fall_silent_none_is_kept(swarm: Any, tools: Any) -> None:
    """As after a change of the own address: asked one by one they would keep their places for minutes."""
    relays, addresses = [], []
    async with trio.open_nursery() as nursery:
        for number in range(2, 2 + PEERS_BEHIND_RELAYS):
            peer = await swarm.start(number, limits=LIMITS)
            [address] = peer.transport.addresses
            relay = Relay(address)
            relays.append(relay)
            addresses.append(await relay.listen(nursery))
        slow = tools.replace(tools.QUICK_DIAL, first_exchange_seconds=6.0, max_exchange_seconds=6.0)
        moved = await swarm.start(1, bootstrap=tuple(addresses), limits=LIMITS, dial=slow)
        await tools.eventually(lambda: len(moved.peer_ids()) == PEERS_BEHIND_RELAYS)
        silent = connections_of(moved)
        for relay in relays:
            relay.frozen = True
        await tools.eventually(lambda: all(each.is_closed for each in silent))
        nursery.cancel_scope.cancel()


async def test_a_connection_that_takes_no_more_data_is_ended_too(swarm: Any, tools: Any) -> None:
    """As after a minute of a partition, when the buffers are full: no word of a farewell can be said."""
    peer = await swarm.start(2, limits=LIMITS)
    [address] = peer.transport.addresses
    relay = Relay(address)
    async with trio.open_nursery() as nursery:
        through = await relay.listen(nursery, receive_bytes=4096)  # so that it is full at once
        node = await swarm.start(1, bootstrap=(through,), limits=LIMITS)
        await swarm.wait_until_connected([node, peer])
        [silent] = connections_of(node)
        relay.frozen = True
        for _ in range(MESSAGES_THAT_FILL_ALL_BUFFERS):
            await node.publish(secrets.token_bytes(MAX_ENVELOPE_BYTES))
        await tools.eventually(lambda: silent.is_closed)
        nursery.cancel_scope.cancel()


async def test_a_silent_connection_is_ended_although_the_peer_has_another(swarm: Any, tools: Any) -> None:
    """As of a peer whose address changed: what it is sent over the old connection never comes."""
    node = await swarm.start(1, limits=LIMITS)
    [address] = node.transport.addresses
    relay = Relay(address)
    async with trio.open_nursery() as nursery:
        through = await relay.listen(nursery)
        before = await swarm.start(2, bootstrap=(through,), limits=NEVER_ASKS)
        await swarm.wait_until_connected([node, before])
        after = await swarm.start(2, bootstrap=(address,), limits=NEVER_ASKS)
        await tools.eventually(lambda: after.peer_ids() == {node.peer_id})
        relay.frozen = True
        nursery.start_soon(_ask_for_ever, after, node.peer_id)
        nursery.start_soon(_publish_for_ever, node)
        await tools.eventually(lambda: after.accepted)
        nursery.cancel_scope.cancel()


async def test_a_node_that_stalled_itself_ends_no_connection(
    swarm: Any, tools: Any, mock_clock: MockClock
) -> None:
    """As after a computer slept: the answers are there, and are read after the time for them has passed."""
    mock_clock.rate = 1.0
    quiet = tools.replace(tools.QUICK_DIAL, first_exchange_seconds=1e6, max_exchange_seconds=1e6)
    node = await swarm.start(1, dial=quiet)
    other = await swarm.start(2, dial=quiet, bootstrap=node.transport.addresses)
    await swarm.wait_until_connected([node, other])
    limits = TransportLimits()
    before = [member.transport.counters()["dials"] for member in (node, other)]
    for steps in range(20):  # of the event loop, until it stands still
        mock_clock.jump(limits.ping_after_seconds)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        mock_clock.jump(limits.pong_seconds)
        await wait_all_tasks_blocked(0.005)
    assert [member.transport.counters()["dials"] for member in (node, other)] == before


async def test_a_peer_that_is_too_busy_to_answer_is_kept(swarm: Any, tools: Any) -> None:
    asked: list[bytes] = []

    async def never_answer(_peer_id: str, request: bytes) -> bytes:
        asked.append(request)
        await trio.sleep_forever()
        raise AssertionError

    node = await swarm.start(1, limits=LIMITS)
    busy = await swarm.start(2, bootstrap=node.transport.addresses, limits=LIMITS)
    busy.transport.serve(PEERS, never_answer)
    await swarm.wait_until_connected([node, busy])
    dials = busy.transport.counters()["dials"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_publish_for_ever, busy)
        await tools.eventually(lambda: len(asked) >= 4)
        nursery.cancel_scope.cancel()
    assert busy.transport.counters()["dials"] == dials


async def _publish_for_ever(member: Any) -> None:
    number = 0
    while True:
        await member.publish(b"still here %d, " % number + member.peer_id.encode())
        number += 1
        await trio.sleep(0.05)


async def _ask_for_ever(member: Any, peer_id: str) -> None:
    """Ask more often than a request may take, so that the peer hears something all the time."""
    while True:
        with suppress(TransportError):
            await member.transport.request(peer_id, PEERS, b"", max_response_bytes=2**16)
        await trio.sleep(0.3)
