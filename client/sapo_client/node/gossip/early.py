"""Messages that come before their epoch does by this node's clock, or before it has read the epoch's bonds.

They are validated again when the epoch begins, or when its bonds are known.

Clocks differ by more than the rule's half second: a machine without time synchronisation drifts by seconds,
and a node believes a clock that is ahead of the chain by up to fifteen. What a node with a fast clock sends
in the first seconds of its epoch is ignored by all others (R3.1), and what all others send by a node with a
slow one; gossip delivers neither again. Under a gate, nodes read an epoch's bonds from the chain seconds
after its begin, and until then they ignore who had no bond before (R5.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio

from sapo_client.node.gossip.waiting_messages import WaitingMessage, WaitingMessages
from sapo_client.node.runtime.clock import CHAIN_AHEAD_SECONDS, Clock

MAX_EARLY_SECONDS: Final = CHAIN_AHEAD_SECONDS
"""Lead of a message that is kept: that of a clock which its own node believes."""

MAX_OF_A_FORWARDER: Final = 128
"""With a slow clock all messages of its neighbours are early: ten a second from each."""

MAX_BYTES: Final = 4 * 2**20

_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Begin:
    """The condition that a message waits for: a Unix time, or the bonds of an epoch."""

    seconds: float = 0.0
    bonds_of: int | None = None


class EarlyMessages:
    """Service that passes early messages on in time.

    Args:
        knows_bonds: whether the bonds of an epoch are known.
        receive: validates a message again.
    """

    def __init__(
        self, clock: Clock, knows_bonds: Callable[[int], bool], receive: Callable[[WaitingMessage[Any]], None]
    ) -> None:
        self._clock = clock
        self._knows_bonds = knows_bonds
        self._receive = receive
        self._waiting: WaitingMessages[_Begin] = WaitingMessages(
            max_of_a_forwarder=MAX_OF_A_FORWARDER,
            max_bytes=MAX_BYTES,
            kept_seconds=2 * MAX_EARLY_SECONDS,
        )
        self._came = trio.Event()

    def add(self, topic: str, message: bytes, forwarder: str, begins_seconds: float) -> None:
        """Keep a message until a Unix time, unless that is too far ahead."""
        now_seconds = self._clock()
        if begins_seconds - now_seconds <= MAX_EARLY_SECONDS:
            self._keep(topic, message, forwarder, _Begin(seconds=begins_seconds))

    def add_without_bond(self, topic: str, message: bytes, forwarder: str, epoch: int) -> None:
        """Keep a message of an account without a bond until the bonds of an epoch are known."""
        if not self._knows_bonds(epoch):
            self._keep(topic, message, forwarder, _Begin(bonds_of=epoch))

    def _keep(self, topic: str, message: bytes, forwarder: str, begin: _Begin) -> None:
        self._waiting.add(topic, message, forwarder, begin, self._clock())
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

    def _take(self) -> tuple[WaitingMessage[_Begin], ...]:
        now_seconds = self._clock()

        def has_come(begin: _Begin) -> bool:
            is_known = begin.bonds_of is None or self._knows_bonds(begin.bonds_of)
            return is_known and begin.seconds <= now_seconds

        return self._waiting.take_if(has_come, now_seconds)
