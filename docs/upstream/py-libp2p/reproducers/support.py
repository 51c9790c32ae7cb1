"""Hosts, routers and streams for the reproducers, and the way to run them.

Each reproducer is a coroutine function `reproduce` that returns a description of the fault that it found,
or an empty text. It uses py-libp2p and trio alone, and no network but loopback.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import libp2p
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from multiaddr import Multiaddr

TOPIC = "topic"
MESHSUB = TProtocol("/meshsub/1.2.0")
LOOPBACK = Multiaddr("/ip4/127.0.0.1/tcp/0")
PATIENCE_SECONDS = 5.0  # how long a reproducer waits for what a faulty library never does

Reproduce = Callable[[], Awaitable[str]]


def main(reproduce: Reproduce) -> None:
    """Run one reproducer: exit status 1 and one line where the fault is there, 0 where it is not."""
    logging.disable()  # a fixed library logs warnings of what the reproducers do
    fault = trio.run(reproduce)
    print(fault or "the fault is not there")
    sys.exit(1 if fault else 0)


def peer_id(number: int) -> ID:
    """Return the id of a peer that does not exist."""
    return ID.from_pubkey(create_new_key_pair(bytes([number]) * 32).public_key)


PEER, ANOTHER_PEER = peer_id(77), peer_id(78)


def new_host(number: int, **options: Any) -> Any:
    """Return a host with a key of its own that does not run yet."""
    return libp2p.new_host(key_pair=create_new_key_pair(bytes([number]) * 32), **options)


async def connect(host: Any, other: Any) -> None:
    """Connect to a running host."""
    await host.connect(info_from_p2p_addr(other.get_addrs()[0]))


async def holds(condition: Callable[[], bool]) -> bool:
    """Whether the condition becomes true in time."""
    with trio.move_on_after(PATIENCE_SECONDS):
        while not condition():
            await trio.sleep(0.01)
    return condition()


def new_pubsub(host: Any = None, *, pubsub: dict[str, Any] | None = None, **options: Any) -> Pubsub:
    """Return a pubsub service with anonymous messages that does not run yet."""
    router = GossipSub([MESHSUB], degree=6, degree_low=4, degree_high=12, **options)
    return Pubsub(host or new_host(200), router, strict_signing=False, **(pubsub or {}))


def message(data: bytes = b"x", **fields: Any) -> rpc_pb2.Message:
    """Return a message on the topic of the reproducers."""
    return rpc_pb2.Message(data=data, topicIDs=[TOPIC], **fields)


def register(pubsub: Any, peer: ID = PEER) -> RpcQueue:
    """Return the outbound queue, which no task empties, of a peer that is subscribed and in the mesh."""
    queue = pubsub.peer_queues[peer] = RpcQueue(1000)
    pubsub.peers[peer] = object()
    pubsub.peer_topics.setdefault(TOPIC, set()).add(peer)
    pubsub.router.peer_protocol[peer] = MESHSUB
    pubsub.router.mesh.setdefault(TOPIC, set()).add(peer)
    return queue


def queued(queue: Any) -> Iterator[rpc_pb2.RPC]:
    """Yield what waits for a peer."""
    while (rpc := queue._queue.pop()) is not None:
        yield rpc


def frame(payload: bytes) -> bytes:
    """Return a payload of less than 16 KiB with its length before it."""
    length = len(payload)
    return bytes([length]) + payload if length < 128 else bytes([length & 127 | 128, length >> 7]) + payload


@contextmanager
def ended_by(kind: type[Exception], faults: list[str]) -> Iterator[None]:
    """Note in `faults` that the block was ended by an exception of that kind."""
    try:
        yield
    except ExceptionGroup as group:
        if group.subgroup(kind) is None:
            raise
        faults.append(f"an unhandled {kind.__name__} ended the process")
