"""`python -m support.namespaces.attacker MANIFEST ADDRESS...`: one machine that attacks nodes all the time.

At each node it

* floods with invalid messages of one kind after the other (see ``invalid_messages``), as fast as
  ``MESSAGES_PER_SECOND`` and the node's own pauses let it;
* sends ignored messages just below the limit of a connection, which costs it nothing;
* sends garbage over gossipsub's stream;
* opens connections that send garbage, that send nothing, that stop in the middle of the handshake, and that
  vanish without closing: fewer than a node has places for, so that they do not keep out the floods.

It knows that a node disconnects and bans whoever does this, and that peer ids are free: after each
disconnection it connects as another peer. Every second it prints its counts so far, as a line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import secrets
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils.varint import encode_uvarint
from support.namespaces.invalid_messages import IGNORED, KINDS, ReceivedRollouts, frame

from sapo_client.swarm.addresses import PeerAddress, parse_address
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport
from sapo_client.swarm.transport import TransportError
from sapo_client.testnet.attacks import AttackContext, Key
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json
from sapo_protocol.topics import rollouts_topic

MESSAGES_PER_SECOND: Final = 10_000
_FRAME_MESSAGES: Final = 200
_FRAME_BYTES: Final = 96 * 1024
_PATIENT_PER_SECOND: Final = 190
"""Just below what ``TransportLimits`` lets a connection carry."""

_GARBAGE_PER_SECOND: Final = 10
_SILENT_CONNECTIONS: Final = 12
"""Of each kind of half-open connection, to each node."""

_TURN_SECONDS: Final = 60.0
"""Of a kind of message, unless the node disconnects before."""

_PATIENCE_SECONDS: Final = 20.0
"""For a connection to open, to send something or to end, before the next attempt."""

_GREETING: Final = b"\x13/multistream/1.0.0\n\x07/noise\n"
"""Of a peer that opens a connection."""

_TCP_REPAIR: Final = 19
"""Option of Linux: a socket that is closed with it set sends the other end nothing."""

_DISCONNECTED: Final = (
    TransportError,
    BaseLibp2pError,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)


class NetworkAttacker:
    """All attacks on given nodes.

    Attributes:
        counts: the actions so far.
    """

    def __init__(self, manifest: Manifest, targets: Sequence[PeerAddress]) -> None:
        self._manifest = manifest
        self._topic = rollouts_topic(manifest.swarm_id)
        self._targets = targets
        self._received = ReceivedRollouts(manifest)
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Attack until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report)
            for target in self._targets:
                nursery.start_soon(self._flood, target, tuple(KINDS), MESSAGES_PER_SECOND)
                nursery.start_soon(self._flood, target, IGNORED, _PATIENT_PER_SECOND)
                nursery.start_soon(self._send_garbage, target)
                nursery.start_soon(self._garble, target)
                for _ in range(_SILENT_CONNECTIONS):
                    nursery.start_soon(self._stay_silent, target, "silent connections", b"")
                    nursery.start_soon(self._stay_silent, target, "half handshakes", _GREETING)
                    nursery.start_soon(self._vanish, target)

    async def _report(self) -> None:
        while True:
            print(json.dumps(self.counts), flush=True)
            await trio.sleep(1)

    async def _flood(self, target: PeerAddress, kinds: Sequence[str], per_second: int) -> None:
        """Send a node invalid messages, as one peer after the other and one kind after the other."""
        for kind in itertools.cycle(kinds):
            try:
                await self._flood_once(target, kind, per_second)
            except* _DISCONNECTED:  # as it should
                self.counts["failures of a flood"] += 1
            await trio.sleep(1)

    async def _flood_once(self, target: PeerAddress, kind: str, per_second: int) -> None:
        """Connect as a new peer and send messages until the node disconnects or the time is over."""
        name = f"{kind}, {per_second:,} a second"
        context = self._context()
        async with self._peer(target) as peer:
            while not self._received and peer.peers():
                await trio.sleep(1)
            self.counts[f"peers: {name}"] += 1
            began, sent = trio.current_time(), 0
            while peer.peers() and trio.current_time() < began + _TURN_SECONDS:
                context.now_seconds = time.time()
                count = min(_FRAME_MESSAGES, per_second)
                messages = frame(kind, self._received, context, count, _FRAME_BYTES)
                if not await self._write(peer, messages):
                    break
                sent += len(messages)
                self.counts[f"messages: {name}"] += len(messages)
                await trio.sleep_until(began + sent / per_second)
            self.counts[f"milliseconds: {name}"] += round(1000 * (trio.current_time() - began))

    async def _write(self, peer: Libp2pTransport, messages: Sequence[bytes]) -> bool:
        """Write a frame to the node; return whether it took it in time."""
        publish = [rpc_pb2.Message(data=data, topicIDs=[self._topic]) for data in messages]
        gossip = peer._gossip
        with trio.move_on_after(_PATIENCE_SECONDS) as scope:
            for stream in list(gossip.peers.values()):
                await gossip.write_msg(stream, rpc_pb2.RPC(publish=publish))
        return not scope.cancelled_caught

    async def _garble(self, target: PeerAddress) -> None:
        """Send a node garbage over gossipsub's own stream, as one peer after the other."""
        while True:
            try:
                async with self._peer(target) as peer:
                    for stream in list(peer._gossip.peers.values()):
                        size = 1 + secrets.randbelow(_FRAME_BYTES)
                        await stream.write(encode_uvarint(size) + os.urandom(size))
                        self.counts["streams with garbage"] += 1
                    await trio.sleep(1)
            except* _DISCONNECTED:
                self.counts["streams with garbage refused"] += 1
            await trio.sleep(1)

    @asynccontextmanager
    async def _peer(self, target: PeerAddress) -> AsyncIterator[Libp2pTransport]:
        """Yield a new peer that is connected only to a node and receives its messages."""
        peer = Libp2pTransport(secrets.token_bytes(32), on_bug=_ignore, dial=DialLimits(target_peers=0))
        peer.subscribe(self._topic, self._listen)
        async with trio.open_nursery() as nursery:
            await nursery.start(peer.run)
            await peer.connect(str(target))
            with trio.move_on_after(_PATIENCE_SECONDS):
                while peer.peers() and not peer._gossip.peers:
                    await trio.sleep(0.1)
            yield peer
            nursery.cancel_scope.cancel()

    def _listen(self, message: bytes, _forwarder: str) -> Verdict:
        self._received.add(message, time.time())
        return Verdict.IGNORE

    def _context(self) -> AttackContext:
        nobody = Key(
            secrets.token_bytes(32), NodeId(secrets.token_bytes(32)), Account(secrets.token_bytes(20))
        )
        rng = random.Random(secrets.token_bytes(16))
        return AttackContext(self._manifest, nobody, rng, time.time(), (), Path())

    async def _send_garbage(self, target: PeerAddress) -> None:
        """Open connections one after the other that send bytes of no protocol."""

        async def say(stream: trio.SocketStream) -> None:
            await stream.send_all(os.urandom(1 + secrets.randbelow(4096)))

        while True:
            await self._connect(target, "garbage connections", say)
            await trio.sleep(1 / _GARBAGE_PER_SECOND)

    async def _stay_silent(self, target: PeerAddress, name: str, greeting: bytes) -> None:
        """Keep a connection open that sends nothing, or only the first line."""

        async def stay(stream: trio.SocketStream) -> None:
            await stream.send_all(greeting)
            while await stream.receive_some():
                pass

        while True:
            await self._connect(target, name, stay)
            await trio.sleep(1)

    async def _vanish(self, target: PeerAddress) -> None:
        """Leave connections open only at the node's end, as after a power failure."""

        async def vanish(stream: trio.SocketStream) -> None:
            await stream.send_all(_GREETING)
            stream.socket.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)

        while True:
            await self._connect(target, "vanished connections", vanish)
            await trio.sleep(_PATIENCE_SECONDS / 2)

    async def _connect(
        self, target: PeerAddress, name: str, use: Callable[[trio.SocketStream], Awaitable[None]]
    ) -> None:
        """Use a new connection to a node, and count it; one that the node refuses or resets is no error."""
        try:
            async with await trio.open_tcp_stream(target.host, target.port) as stream:
                self.counts[name] += 1
                await use(stream)
        except (OSError, trio.BrokenResourceError):
            self.counts[f"{name} refused or reset"] += 1


def _ignore(_error: Exception) -> None:
    """Do nothing: an attacker ignores errors."""


def main(manifest: str, *addresses: str) -> None:
    """Attack the nodes at some addresses until killed."""
    terms = manifest_from_json(Path(manifest).read_text(encoding="utf-8"))
    targets = [address for address in map(parse_address, addresses) if address is not None]
    trio.run(NetworkAttacker(terms, targets).run)


if __name__ == "__main__":
    main(*sys.argv[1:])
