"""Outbound queue of one peer, bounded by the number of RPCs and by their bytes.

Stock bounds only the number. A peer that requests much and reads nothing could make a node hold that number
of the largest messages, for each of its peer ids.
"""

from __future__ import annotations

from typing import Final

from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import PriorityQueue, RpcQueue

from sapo_client.swarm.limits import TransportLimits

CONTROL_BYTES: Final = 512 * 1024
"""Additional bytes for RPCs without messages, so that the mesh is maintained while messages wait."""


class OutboundQueue(PriorityQueue):
    """Queue that refuses what does not fit; an RPC must not change while it waits."""

    def __init__(self, limits: TransportLimits) -> None:
        super().__init__(limits.outbound_queue)
        self._most_bytes = limits.outbound_bytes
        self._bytes = 0

    @staticmethod
    def bound(queue: RpcQueue, limits: TransportLimits) -> None:
        """Give a peer's queue these bounds from now on; what waits in it already is kept."""
        bounded = OutboundQueue(limits)
        stock, queue._queue = queue._queue, bounded
        bounded._priority, bounded._non_priority = stock._priority, stock._non_priority
        bounded._bytes = sum(rpc.ByteSize() for rpc in (*stock._priority, *stock._non_priority))

    def push(self, rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
        """Append an RPC and return True, or return False where it does not fit."""
        size = rpc.ByteSize()
        most_bytes = self._most_bytes + (0 if rpc.publish else CONTROL_BYTES)
        if self._bytes + size > most_bytes or not super().push(rpc, priority):
            return False
        self._bytes += size
        return True

    def pop(self) -> rpc_pb2.RPC | None:
        """Remove and return the oldest RPC, those with priority first; None if there is none."""
        rpc = super().pop()
        if rpc is not None:
            self._bytes -= rpc.ByteSize()
        return rpc
