"""Messages of an epoch that has not begun by this node's clock, which are validated again when it begins.

Clocks differ by more than the rule's half second: a machine without time synchronisation drifts by seconds,
and a node believes a clock that is ahead of the chain by up to fifteen. What a node with a fast clock sends
in the first seconds of its epoch is ignored by all others (R3.1), and what all others send by a node with a
slow one; gossip delivers neither again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from sapo_client.node.gossip.waiting_messages import Waiting, WaitingMessages
from sapo_client.node.runtime.clock import CHAIN_AHEAD_SECONDS, Clock

MAX_EARLY_SECONDS: Final = CHAIN_AHEAD_SECONDS
"""Lead of a message that is kept: that of a clock which its own node believes."""

MAX_OF_A_FORWARDER: Final = 128
"""With a slow clock all messages of its neighbours are early: ten a second from each."""

MAX_BYTES: Final = 4 * 2**20

_LOOK_SECONDS: Final = 0.1


class EarlyMessages:
    """Service that passes early messages on when their epoch begins.

    Args:
        receive: validates a message again.
    """

    def __init__(self, clock: Clock, receive: Callable[[Waiting[float]], None]) -> None:
        self._clock = clock
        self._receive = receive
        self._waiting: WaitingMessages[float] = WaitingMessages(
            most_of_a_forwarder=MAX_OF_A_FORWARDER,
            most_bytes=MAX_BYTES,
            kept_seconds=2 * MAX_EARLY_SECONDS,
        )
        self._came = trio.Event()

    def add(self, topic: str, message: bytes, forwarder: str, begins_seconds: float) -> None:
        """Keep a message until a Unix time, unless that is too far ahead."""
        now_seconds = self._clock()
        if begins_seconds - now_seconds <= MAX_EARLY_SECONDS:
            self._waiting.add(topic, message, forwarder, begins_seconds, now_seconds)
            self._came.set()

    async def run(self) -> None:
        """Pass messages on until cancelled; may be run again after that."""
        while True:
            await self._came.wait()
            while len(self._waiting):
                await trio.sleep(_LOOK_SECONDS)
                for waiting in self._take():
                    self._receive(waiting)
                    await trio.lowlevel.checkpoint()  # a thousand of them take most of a second
            self._came = trio.Event()

    def _take(self) -> tuple[Waiting[float], ...]:
        now_seconds = self._clock()
        return self._waiting.take_if(lambda begins_seconds: begins_seconds <= now_seconds, now_seconds)
