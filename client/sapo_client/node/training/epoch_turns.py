"""The epoch of the next round: the clock is confirmed, its beacons are known, and it may be signed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from sapo_client.node.runtime.signed_ahead import epoch_signed_ahead
from sapo_client.node.training.private_rounds import PrivateRounds
from sapo_client.node.training.round_parts import RoundParts
from sapo_protocol.constants import EPOCH_WINDOW
from sapo_protocol.epochs import epoch_at

_LOOK_SECONDS: Final = 1.0
"""Interval of reading the clock, which may be set at any time."""


class EpochTurns:
    """Waits for the present epoch's beacons, and drops what is too old in it.

    Args:
        private: private rounds, which run while the wait is long.
    """

    def __init__(self, parts: RoundParts, private: PrivateRounds) -> None:
        self._parts = parts
        self._private = private
        self._forgotten = -1

    async def wait_for_epoch(self, draining: trio.Event, is_over: Callable[[], bool]) -> int | None:
        """Wait for the beacons that the current epoch needs, and train privately if that takes long.

        Returns:
            The epoch; None if ``is_over``, or if the epoch is not known any more or has ended meanwhile.
        """
        settled = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._settle, settled, draining)
            nursery.start_soon(self._keep_turning)
            await self._private.run(settled, is_over)
            nursery.cancel_scope.cancel()  # the private rounds may have made the last step
        epoch = self._epoch_to_sign_in()
        if epoch is None or is_over() or self._parts.beacons.known(epoch) is None:
            return None  # the last private round may end in the next epoch
        return epoch

    def turn_to(self, epoch: int) -> None:
        """Drop data that is too old in a new epoch."""
        if epoch != self._forgotten:
            self._forgotten = epoch
            self._parts.engine.forget(epoch)

    async def turn_during(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait while no round runs, dropping data that becomes too old meanwhile."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_turning)
            await wait()
            nursery.cancel_scope.cancel()

    async def _keep_turning(self) -> None:
        while True:
            if (epoch := self._epoch()) is not None:
                self.turn_to(epoch)
            await trio.sleep(_LOOK_SECONDS)

    async def _settle(self, settled: trio.Event, draining: trio.Event) -> None:
        """Set the event once the beacons of the current epoch are here, or when the node drains."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_set, draining, nursery.cancel_scope)
            while not await self._obtained():
                pass
            nursery.cancel_scope.cancel()
        settled.set()

    async def _obtained(self) -> bool:
        """Obtain the beacons of the current epoch; return whether it is still the current one afterwards."""
        while (epoch := self._epoch_to_sign_in()) is None:
            await trio.sleep(_LOOK_SECONDS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_after, epoch, nursery.cancel_scope)
            for needed in range(max(0, epoch - EPOCH_WINDOW), epoch + 1):  # the pool holds all of these
                await self._parts.beacons.obtain(needed)
            nursery.cancel_scope.cancel()
        return self._epoch() == epoch

    async def _cancel_after(self, epoch: int, scope: trio.CancelScope) -> None:
        while self._epoch() == epoch:
            await trio.sleep(_LOOK_SECONDS)
        scope.cancel()

    def _epoch_to_sign_in(self) -> int | None:
        """Return the current epoch; None if it is unknown, or if a later one was signed in."""
        parts = self._parts
        ahead = epoch_signed_ahead(parts.signing, parts.manifest, parts.author.account, parts.clock())
        return self._epoch() if ahead is None else None

    def _epoch(self) -> int | None:
        """Return the current epoch; None before genesis, and while the clock is not confirmed."""
        parts = self._parts
        if not parts.clock_watch.is_believed or parts.clock() < parts.manifest.genesis_seconds:
            return None
        return epoch_at(parts.manifest, parts.clock())


async def _cancel_when_set(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
