"""Audits of a random share of the admitted rollouts, so that reputation does not depend on the sampler.

Audits get a bounded share of the checkers' time: after each audit there is a pause in proportion to its
duration. So the rest of the time always remains for the checks of own and sampled rollouts, whatever is
received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.runtime.beacons import Beacons
from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_verification.engine import Engine
from sapo_verification.observer import Observer
from sapo_verification.types import AdmittedRollout


@dataclass(frozen=True, slots=True)
class AuditShares:
    """Amount of auditing.

    Attributes:
        rollouts: probability that a rollout is verified even if it is not sampled; an auditor's is 1.
        time: largest share of the time in which a checker works for audits.
    """

    rollouts: float
    time: float


AUDITORS_SHARES: Final = AuditShares(rollouts=1.0, time=0.5)
"""Shares of an auditor, which has to check every rollout; half of the time is left for its own rounds."""


class Audit(Observer):
    """Service that verifies the rollouts in the engine's audit queue.

    Args:
        time_share: largest share of the time in which a checker works for audits.
    """

    def __init__(self, *, engine: Engine, beacons: Beacons, time_share: float) -> None:
        self._engine = engine
        self._beacons = beacons
        self._pause_per_second = 1.0 / time_share - 1.0
        self._filled = trio.Event()
        engine.observe(self)

    def queued(self, admitted: AdmittedRollout) -> None:
        """Wake the service if it waits for a rollout."""
        self._filled.set()

    async def run(self) -> None:
        """Audit until cancelled; may be run again after that."""
        queue = self._engine.audits
        while True:
            if not len(queue):
                self._filled = trio.Event()
                await self._filled.wait()
            turn = queue.take()
            await self._beacons.obtain(turn.admitted.rollout.epoch)
            began = trio.current_time()
            await self._audit(turn.admitted)
            took_seconds = trio.current_time() - began
            queue.charge(turn, took_seconds)
            await trio.sleep(took_seconds * self._pause_per_second)

    async def _audit(self, admitted: AdmittedRollout) -> None:
        """Verify one rollout; an uninformative or refused one is removed from the pool."""
        try:
            verified = await self._engine.verify(admitted)
        except RemoteProtocolError as error:
            if error.reason is not Reason.BEACON_UNKNOWN:
                self._engine.pool.take(admitted.content_id)
            return
        if not verified.is_informative:
            self._engine.pool.take(admitted.content_id)
