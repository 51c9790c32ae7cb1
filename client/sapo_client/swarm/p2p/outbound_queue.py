"""Outbound queue of one peer, bounded by the number of RPCs and by their bytes, and emptied at a pace.

Stock bounds only the number. A peer that requests much and reads nothing could make a node hold that number
of the largest messages, for each of its peer ids. And stock sends in the order of arrival: an author that
sends hundreds of messages at once would delay and displace all others'. Here authors take turns
(`swarm/fair_queue.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import PriorityQueue, RpcQueue

from sapo_client.swarm.fair_queue import PeerQueue
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.rate_limit import MIN_SLEEP_SECONDS, SendingPace


class OutboundQueue(PriorityQueue):
    """Queue that refuses what does not fit; an RPC must not change while it waits.

    Others' messages take turns by author. If they do not fit, the author with most of them loses its newest.

    Args:
        author_of: returns whose message an RPC carries.
        on_drop: called for each RPC that was in the queue and is removed for another.
    """

    def __init__(
        self,
        limits: TransportLimits,
        author_of: Callable[[rpc_pb2.RPC], Hashable] = lambda _: None,
        on_drop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(limits.outbound_queue)
        self._author_of = author_of
        self._on_drop = on_drop
        self._waiting: PeerQueue[rpc_pb2.RPC] = PeerQueue(limits, rpc_pb2.RPC.ByteSize)

    def __len__(self) -> int:
        return len(self._waiting)

    @staticmethod
    def bound(
        queue: RpcQueue,
        limits: TransportLimits,
        author_of: Callable[[rpc_pb2.RPC], Hashable] = lambda _: None,
        on_drop: Callable[[], None] = lambda: None,
    ) -> None:
        """Give a peer's queue these bounds from now on; what waits in it already is kept."""
        bounded = OutboundQueue(limits, author_of, on_drop)
        stock, queue._queue = queue._queue, bounded
        forwarded = ((author_of(rpc), rpc) for rpc in stock._non_priority)
        bounded._waiting.take_over(stock._priority, forwarded)

    def push(self, rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
        """Append an RPC and return True, or return False where it does not fit."""
        if priority or not rpc.publish:
            return self._waiting.push_own(rpc)
        dropped = self._waiting.push(self._author_of(rpc), rpc)
        is_refused = bool(dropped) and dropped[-1] is rpc
        for _ in range(len(dropped) - is_refused):
            self._on_drop()
        return not is_refused

    def pop(self) -> rpc_pb2.RPC | None:
        """Remove and return the next RPC, those with priority first; None if there is none."""
        return self._waiting.pop()


class PacedQueue(RpcQueue):
    """An outbound queue as the sending task sees it: messages come out at the pace of their peer.

    Args:
        min_bytes: as which the shortest RPC counts.
    """

    def __init__(self, queue: RpcQueue, peer_id: str, pace: SendingPace, min_bytes: int) -> None:
        super().__init__()
        self._behind = queue
        self._peer_id = peer_id
        self._pace = pace
        self._min_bytes = min_bytes

    async def pop(self) -> rpc_pb2.RPC | None:
        """Wait for the next RPC, and until it may be sent; return None once the queue has been closed.

        RPCs without messages are counted and never wait for the pace.
        """
        rpc = await self._behind.pop()
        if rpc is None:
            return None
        messages, size = len(rpc.publish), max(rpc.ByteSize(), self._min_bytes)
        while messages and (seconds := self._seconds_until(messages, size)) > 0:
            await trio.sleep(max(seconds, MIN_SLEEP_SECONDS))
        self._pace.spend(self._peer_id, messages, size, trio.current_time())
        return rpc

    def _seconds_until(self, messages: int, size_bytes: int) -> float:
        return self._pace.seconds_until(self._peer_id, messages, size_bytes, trio.current_time())
