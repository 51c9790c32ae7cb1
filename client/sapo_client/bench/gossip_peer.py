"""`python -m sapo_client.bench.gossip_peer KIND SEED`: one process of the gossip benchmark.

It reads commands as JSON lines on standard input and answers each with one on standard output: ``dial``, then
``publish``, then ``count`` any number of times, then ``report``. No other part of a node runs in it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import trio

from sapo_protocol.errors import Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOPIC: Final = "/sapo/bench/gossip"
NANOSECONDS: Final = 10**9
_HEADER_BYTES: Final = 8

OnMessage = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class GossipPeer:
    """One end of a gossip network that is already listening.

    Attributes:
        address: its full multiaddr.
        connect: connects to the peer at an address.
        publish: sends a message to all.
        peers: returns the number of connected peers.
    """

    address: str
    connect: Callable[[str], Awaitable[object]]
    publish: Callable[[bytes], Awaitable[object]]
    peers: Callable[[], int]


@asynccontextmanager
async def sapo_peer(seed: bytes, on_message: OnMessage) -> AsyncIterator[GossipPeer]:
    """Open this project's transport, as a node runs it."""
    from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport

    def validate(message: bytes, _forwarder: str) -> Verdict:
        on_message(message)
        return Verdict.ACCEPT

    def fail(error: Exception) -> None:
        raise error

    transport = Libp2pTransport(seed, on_bug=fail)
    transport.subscribe(TOPIC, validate)
    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        yield GossipPeer(
            transport.addresses[0],
            transport.connect,
            partial(transport.publish, TOPIC),
            lambda: len(transport.peers()),
        )
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def bare_peer(seed: bytes, on_message: OnMessage) -> AsyncIterator[GossipPeer]:
    """Open unchanged py-libp2p: its host with Noise and yamux, its gossipsub with the same mesh sizes.

    Messages are not signed, as in this project's transport, whose envelopes are.
    """
    from libp2p.peer.peerinfo import info_from_p2p_addr
    from libp2p.tools.anyio_service import background_trio_service
    from multiaddr.multiaddr import Multiaddr

    host = _bare_host(seed)
    pubsub = _bare_gossip(host)

    async def connect(address: str) -> None:
        await host.connect(info_from_p2p_addr(Multiaddr(address)))

    async def listen() -> None:
        while True:
            message = await subscription.get()
            if message.from_id != host.get_id().to_bytes():
                on_message(message.data)

    async with (
        host.run([Multiaddr("/ip4/127.0.0.1/tcp/0")]),
        background_trio_service(pubsub),
        background_trio_service(pubsub.router),
        trio.open_nursery() as nursery,
    ):
        await pubsub.wait_until_ready()
        subscription = await pubsub.subscribe(TOPIC)
        nursery.start_soon(listen)
        yield GossipPeer(
            str(host.get_addrs()[0]), connect, partial(pubsub.publish, TOPIC), lambda: len(pubsub.peers)
        )
        nursery.cancel_scope.cancel()


def _bare_host(seed: bytes) -> Any:
    from libp2p import new_host
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.crypto.x25519 import create_new_key_pair as create_new_x25519_key_pair
    from libp2p.custom_types import TProtocol
    from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
    from libp2p.security.noise.transport import Transport as NoiseTransport

    from sapo_client.swarm.p2p.host import quiet

    quiet()
    keys = create_new_key_pair(seed)
    noise = NoiseTransport(keys, noise_privkey=create_new_x25519_key_pair().private_key)
    return new_host(key_pair=keys, sec_opt={TProtocol(NOISE): noise}, muxer_preference="YAMUX")


def _bare_gossip(host: Any) -> Any:
    from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
    from libp2p.pubsub.pubsub import Pubsub

    from sapo_client.swarm.p2p.mesh import DEGREE, DEGREE_HIGH, DEGREE_LOW, HEARTBEAT_SECONDS

    router = GossipSub(
        protocols=[PROTOCOL_ID_V11],
        degree=DEGREE,
        degree_low=DEGREE_LOW,
        degree_high=DEGREE_HIGH,
        heartbeat_interval=HEARTBEAT_SECONDS,
        max_messages_per_topic_per_second=1e6,
    )
    return Pubsub(
        host,
        router,
        strict_signing=False,
        msg_id_constructor=lambda message: sha256(message.data).digest(),
    )


KINDS: Final[dict[str, Callable[[bytes, OnMessage], AbstractAsyncContextManager[GossipPeer]]]] = {
    "sapo": sapo_peer,
    "py-libp2p": bare_peer,
}


def stamped(length: int) -> bytes:
    """Return a message of ``length`` bytes that begins with the time; the rest is random."""
    return time.monotonic_ns().to_bytes(_HEADER_BYTES, "big") + os.urandom(length - _HEADER_BYTES)


async def run(kind: str, seed: bytes) -> None:
    """Execute commands until standard input ends."""
    delays: list[float] = []

    def on_message(message: bytes) -> None:
        sent = int.from_bytes(message[:_HEADER_BYTES], "big")
        delays.append((time.monotonic_ns() - sent) / NANOSECONDS)

    async with KINDS[kind](seed, on_message) as peer:
        say(address=peer.address)
        began = time.process_time()
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            order: dict[str, Any] = json.loads(line)
            match order["order"]:
                case "dial":
                    for address in order["addresses"]:
                        await peer.connect(address)
                    while peer.peers() < order["peers"]:
                        await trio.sleep(0.05)
                    say(peers=peer.peers())
                case "publish":
                    began = time.process_time()
                    for _ in range(order["messages"]):
                        await peer.publish(stamped(order["bytes"]))
                        await trio.sleep(order["pause_seconds"])
                    say(published=order["messages"])
                case "count":
                    say(delivered=len(delays))
                case "report":
                    say(delays=delays, cpu_seconds=time.process_time() - began)


def say(**fields: object) -> None:
    """Write the answer to a command."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    trio.run(run, sys.argv[1], bytes.fromhex(sys.argv[2]))
