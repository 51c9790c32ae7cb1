"""`python -m support.namespaces.besieger MANIFEST ADDRESS...`: one peer that sends rubbish to nodes.

It floods the nodes with invalid messages, opens connections that say garbage, and others that say nothing at
all. It knows that a node disconnects and bans whoever does this, and that peer ids are free: whenever a node
has hung up it comes back as another peer. Every second it prints what it has done so far, as a line of JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.pubsub.pb import rpc_pb2

from sapo_client.swarm.addresses import PeerAddress, parse_address
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport
from sapo_client.swarm.transport import TransportError
from sapo_protocol.errors import Verdict
from sapo_protocol.manifest_file import manifest_from_json
from sapo_protocol.topics import rollouts_topic

MESSAGES_PER_SECOND: Final = 10_000
_FRAMES_PER_SECOND: Final = 50
_FRAME_MESSAGES: Final = MESSAGES_PER_SECOND // _FRAMES_PER_SECOND
_MESSAGE_BYTES: Final = 64

_GARBAGE_PER_SECOND: Final = 10
_SILENT_CONNECTIONS: Final = 64
_PATIENCE_SECONDS: Final = 20.0
"""For a connection to open or end, before the next attempt."""

_HUNG_UP: Final = (
    TransportError,
    BaseLibp2pError,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)


class Besieger:
    """All attacks on some nodes.

    Attributes:
        counts: what was done so far.
    """

    def __init__(self, topic: str, targets: Sequence[PeerAddress]) -> None:
        self._topic = topic
        self._targets = targets
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Attack until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report)
            for target in self._targets:
                nursery.start_soon(self._flood, target)
                nursery.start_soon(self._say_garbage, target)
                for _ in range(_SILENT_CONNECTIONS):
                    nursery.start_soon(self._stay_silent, target)

    async def _report(self) -> None:
        while True:
            print(json.dumps(self.counts), flush=True)
            await trio.sleep(1)

    async def _flood(self, target: PeerAddress) -> None:
        """Send a node invalid messages, as one peer after the other."""
        while True:
            try:
                await self._flood_once(target)
            except* _HUNG_UP:  # as it should
                self.counts["failures of a flood"] += 1
            await trio.sleep(1)

    async def _flood_once(self, target: PeerAddress) -> None:
        """Be a new peer and send messages until the node hangs up."""
        peer = Libp2pTransport(secrets.token_bytes(32), on_bug=_ignore, dial=DialLimits(target_peers=0))
        peer.subscribe(self._topic, lambda _message, _forwarder: Verdict.IGNORE)
        async with trio.open_nursery() as nursery:
            await nursery.start(peer.run)
            await peer.connect(str(target))
            self.counts["peers that flooded"] += 1
            gossip = peer._gossip
            while peer.peers():
                began = trio.current_time()
                for stream in list(gossip.peers.values()):
                    with trio.move_on_after(_PATIENCE_SECONDS) as scope:
                        await gossip.write_msg(stream, self._frame())
                    if scope.cancelled_caught:
                        break
                    self.counts["invalid messages"] += _FRAME_MESSAGES
                await trio.sleep_until(began + 1 / _FRAMES_PER_SECOND)
            nursery.cancel_scope.cancel()

    def _frame(self) -> rpc_pb2.RPC:
        rubbish = (os.urandom(_MESSAGE_BYTES) for _ in range(_FRAME_MESSAGES))
        return rpc_pb2.RPC(publish=[rpc_pb2.Message(data=data, topicIDs=[self._topic]) for data in rubbish])

    async def _say_garbage(self, target: PeerAddress) -> None:
        """Open one connection after the other that says no protocol's words."""
        while True:
            try:
                async with await trio.open_tcp_stream(target.host, target.port) as stream:
                    await stream.send_all(os.urandom(1 + secrets.randbelow(4096)))
                    self.counts["garbage connections"] += 1
            except (OSError, trio.BrokenResourceError):
                self.counts["refused connections"] += 1
            await trio.sleep(1 / _GARBAGE_PER_SECOND)

    async def _stay_silent(self, target: PeerAddress) -> None:
        """Keep a connection open that says nothing."""
        while True:
            try:
                async with await trio.open_tcp_stream(target.host, target.port) as stream:
                    self.counts["silent connections"] += 1
                    while await stream.receive_some():
                        pass
            except (OSError, trio.BrokenResourceError):
                self.counts["refused connections"] += 1
            await trio.sleep(1)


def _ignore(_error: Exception) -> None:
    """Do nothing: an attacker does not mind."""


def main(manifest: str, *addresses: str) -> None:
    """Attack the nodes at some addresses until killed."""
    swarm_id = manifest_from_json(Path(manifest).read_text(encoding="utf-8")).swarm_id
    targets = [address for address in map(parse_address, addresses) if address is not None]
    trio.run(Besieger(rollouts_topic(swarm_id), targets).run)


if __name__ == "__main__":
    main(*sys.argv[1:])
