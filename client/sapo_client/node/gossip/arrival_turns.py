"""Division of the rate of fetched rollouts among the peers that are asked for them.

All peers share one rate. A peer that sends useless rollouts would use up the others' part of it, so the most
useful peer goes first. The rate is charged before a request, not when the answer arrives: otherwise forty
requests that are answered at the same moment would exceed it by a minute.
"""

from __future__ import annotations

import trio

from sapo_client.swarm.limits import Rate
from sapo_client.swarm.rate_limit import MIN_SLEEP_SECONDS, TokenBucket


class ArrivalTurns:
    """A token bucket for which several tasks wait, in the order of their peers' usefulness.

    Args:
        rate: rollouts per second of all peers together.
    """

    def __init__(self, rate: Rate) -> None:
        self._bucket = TokenBucket(rate, trio.current_time())
        self._waiting: dict[int, int] = {}
        self._number = 0
        self._changed = trio.Event()

    async def take(self, count: int, use: int) -> None:
        """Wait for the turn to ask for some rollouts, and charge them.

        Args:
            count: number of rollouts, at most the burst of the rate.
            use: of how much use the peer has been; of equal ones the task that came first goes first.
        """
        self._number += 1
        number = self._number
        self._waiting[number] = use
        try:
            while (seconds := self._bucket.seconds_until(count, trio.current_time())) or not self._is_next(
                number
            ):
                await self._wait(seconds if self._is_next(number) else None)
            self._bucket.spend(count, trio.current_time())
        finally:
            del self._waiting[number]
            self._tell_change()

    def give_back(self, count: int) -> None:
        """Undo the charge for rollouts that were asked for and not sent."""
        self._bucket.spend(-count, trio.current_time())

    def _is_next(self, number: int) -> bool:
        return number == max(self._waiting, key=lambda each: (self._waiting[each], -each))

    async def _wait(self, seconds: float | None) -> None:
        """Wait for so long, or until another task has had its turn if that is unset."""
        if seconds is not None:
            await trio.sleep(max(seconds, MIN_SLEEP_SECONDS))
            return
        await self._changed.wait()

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
