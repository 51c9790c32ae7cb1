"""Outbound queue of one peer, bounded by the number of RPCs and by their bytes, and emptied at a pace.

Stock bounds only the number. A peer that requests much and reads nothing could make a node hold that number
of the largest messages, for each of its peer ids.
"""

from __future__ import annotations

import math

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import PriorityQueue, RpcQueue

from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.rate_limit import MIN_SLEEP_SECONDS, SendingPace


class OutboundQueue(PriorityQueue):
    """Queue that refuses what does not fit; an RPC must not change while it waits."""

    def __init__(self, limits: TransportLimits) -> None:
        super().__init__(limits.outbound_queue)
        self._most_forwarded = math.ceil(limits.forwarded_share * limits.outbound_queue)
        self._most_bytes = limits.outbound_bytes
        self._control_bytes = limits.control_bytes
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
        if rpc.publish and not priority and len(self) >= self._most_forwarded:
            return False
        size = rpc.ByteSize()
        most_bytes = self._most_bytes + (0 if rpc.publish and not priority else self._control_bytes)
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


class PacedQueue(RpcQueue):
    """An outbound queue as the sending task sees it: messages come out at the pace of their peer.

    Args:
        least_bytes: as which the shortest RPC counts.
    """

    def __init__(self, queue: RpcQueue, peer_id: str, pace: SendingPace, least_bytes: int) -> None:
        super().__init__()
        self._behind = queue
        self._peer_id = peer_id
        self._pace = pace
        self._least_bytes = least_bytes

    async def pop(self) -> rpc_pb2.RPC | None:
        """Wait for the next RPC, and until it may be sent; return None once the queue has been closed.

        RPCs without messages are counted and never wait for the pace.
        """
        rpc = await self._behind.pop()
        if rpc is None:
            return None
        messages, size = len(rpc.publish), max(rpc.ByteSize(), self._least_bytes)
        while messages and (seconds := self._seconds_until(messages, size)) > 0:
            await trio.sleep(max(seconds, MIN_SLEEP_SECONDS))
        self._pace.spend(self._peer_id, messages, size, trio.current_time())
        return rpc

    def _seconds_until(self, messages: int, size_bytes: int) -> float:
        return self._pace.seconds_until(self._peer_id, messages, size_bytes, trio.current_time())
