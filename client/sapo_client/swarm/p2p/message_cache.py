"""Cache of recent messages by content id.

Stock keys its cache by author and sequence number whatever message id is configured: anonymous
messages would all share one empty key, and IHAVE would announce ids that no peer ever saw, so that
every peer asks for every message again on each heartbeat.

A message is held in the RPC with which it is sent, which is the same object in the queues of all peers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from libp2p.pubsub.mcache import CacheEntry, MessageCache
from libp2p.pubsub.pb.rpc_pb2 import RPC, Message

from sapo_client.swarm.intake import message_id

MAX_BYTES: Final = 16 * 2**20
"""Of all messages together: thirty heartbeats at a hundred messages a second of 5 KiB each."""


class ContentCache(MessageCache):
    """Messages of the last heartbeats; each is sent at most a few times per peer on request.

    Args:
        max_bytes: of all messages together; beyond it the oldest are dropped before their time.
    """

    def __init__(self, window_size: int, history_size: int, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(window_size, history_size)
        self._rpcs: dict[bytes, RPC] = {}
        self._authors: dict[int, Hashable] = {}
        self._sent: dict[bytes, dict[bytes, int]] = {}
        self._max_bytes = max_bytes
        self._bytes = 0

    def put(self, msg: Message) -> None:
        """Store a message under its content id."""
        self.to_rpc(msg)

    def to_rpc(self, msg: Message, author: Hashable = None) -> RPC:
        """Store a message under its content id; return the RPC with which it is sent, not to be changed."""
        identity = message_id(msg.topicIDs[0], msg.data)
        if identity in self._rpcs:
            return self._rpcs[identity]
        rpc = RPC(publish=[msg])
        self._rpcs[identity], self.msgs[identity] = rpc, rpc.publish[0]
        self.history[0].append(CacheEntry(identity, msg.topicIDs))
        self._authors[id(rpc)] = author
        self._bytes += len(msg.data)
        while self._bytes > self._max_bytes:
            self._drop(next(entries for entries in reversed(self.history) if entries).pop(0))
        return rpc

    def author_of(self, rpc: RPC) -> Hashable:
        """Return the author with which the message of an RPC was stored; None if it is not held."""
        return self._authors.get(id(rpc))

    def author_of_id(self, identity: bytes) -> Hashable:
        """Return the author with which a message was stored; None if it is not held."""
        return None if (rpc := self._rpcs.get(identity)) is None else self.author_of(rpc)

    def get_for(self, identity: bytes, asker: bytes, *, max_times: int) -> RPC | None:
        """Return the message's RPC, unless it was sent to this asker `max_times` already."""
        rpc = self._rpcs.get(identity)
        if rpc is None or self._sent.get(identity, {}).get(asker, 0) >= max_times:
            return None
        return rpc

    def was_sent(self, identity: bytes, asker: bytes) -> None:
        """Count a message as sent to an asker."""
        times = self._sent.setdefault(identity, {})
        times[asker] = times.get(asker, 0) + 1

    def recent(self, topic: str) -> list[bytes]:
        """Return the ids of all messages of the topic that are still held, oldest first."""
        return self._ids(topic, self.history)

    def window(self, topic: str) -> list[bytes]:
        """Return the ids of the topic's messages of the heartbeats that are announced, oldest first."""
        return self._ids(topic, self.history[: self.window_size])

    @staticmethod
    def _ids(topic: str, heartbeats: Sequence[Sequence[CacheEntry]]) -> list[bytes]:
        entries = [entry for heartbeat in reversed(heartbeats) for entry in heartbeat]
        return [entry.mid for entry in entries if topic in entry.topics]

    def shift(self) -> None:
        """Advance by one heartbeat; the oldest messages are dropped."""
        for entry in self.history[-1]:
            self._drop(entry)
        super().shift()
        self._sent = {identity: times for identity, times in self._sent.items() if identity in self.msgs}

    def _drop(self, entry: CacheEntry) -> None:
        del self._authors[id(self._rpcs.pop(entry.mid))]
        self._bytes -= len(self.msgs.pop(entry.mid).data)
