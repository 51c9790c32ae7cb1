"""Recent messages by content id.

Stock keys its cache by author and sequence number whatever message id is configured: anonymous
messages would all share the key of nothing, and IHAVE would announce ids that no peer ever saw, so
that everybody asks for everything again on each heartbeat.
"""

from __future__ import annotations

from typing import Any

from libp2p.pubsub.mcache import CacheEntry, MessageCache

from sapo_client.swarm.intake import message_id


class ContentCache(MessageCache):  # type: ignore[misc]
    """Messages of the last heartbeats; each is sent at most a few times per peer on request."""

    def __init__(self, window_size: int, history_size: int) -> None:
        super().__init__(window_size, history_size)
        self._sent: dict[bytes, dict[bytes, int]] = {}

    def put(self, message: Any) -> None:
        """Remember a message under its content id."""
        identity = message_id(message.topicIDs[0], message.data)
        if identity not in self.msgs:
            self.msgs[identity] = message
            self.history[0].append(CacheEntry(identity, message.topicIDs))

    def get_for(self, identity: bytes, asker: bytes, *, max_times: int) -> Any:
        """The message, unless this asker had it `max_times` already."""
        message = self.msgs.get(identity)
        if message is None:
            return None
        times = self._sent.setdefault(identity, {})
        times[asker] = times.get(asker, 0) + 1
        return message if times[asker] <= max_times else None

    def recent(self, topic: str) -> list[Any]:
        """Every message of the topic that is still held, oldest first."""
        entries = [entry for heartbeat in reversed(self.history) for entry in heartbeat]
        return [self.msgs[entry.mid] for entry in entries if topic in entry.topics]

    def shift(self) -> None:
        """One heartbeat passes; the oldest messages go."""
        super().shift()
        self._sent = {identity: times for identity, times in self._sent.items() if identity in self.msgs}
