"""The audit of a random share of what was admitted, so that reputation does not wait for the sampler.

Audits have a bounded share of the checkers' time: after each one the next waits in proportion to what it
took. So whatever is sent, and however much of it, the checks of own and sampled rollouts keep the rest.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.runtime.beacons import Beacons
from sapo_client.observe.events import EventLog
from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.sampling.audit_queue import MOST_WAITING, AuditQueue
from sapo_verification.sampling.pool import Pool
from sapo_verification.types import AdmittedRollout
from sapo_verification.verifier import Verifier


@dataclass(frozen=True, slots=True)
class AuditShares:
    """How much is audited.

    Attributes:
        rollouts: probability that a rollout nobody sampled is verified all the same; an auditor's is 1.
        time: largest share of the time in which a checker works for audits.
    """

    rollouts: float
    time: float


AUDITORS_SHARES: Final = AuditShares(rollouts=1.0, time=0.5)
"""An auditor owes every author its count; the other half of the time is for its own rounds."""


class Audit:
    """Verifies admitted rollouts in the background, whoever cost least first."""

    def __init__(
        self,
        heard: trio.MemoryReceiveChannel[AdmittedRollout],
        verifier: Verifier,
        pool: Pool,
        reputation: Reputation,
        beacons: Beacons,
        shares: AuditShares,
        events: EventLog,
        rng: random.Random,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._heard = heard
        self._verifier = verifier
        self._pool = pool
        self._reputation = reputation
        self._beacons = beacons
        self._shares = shares
        self._events = events
        self._rng = rng
        self._waiting = AuditQueue(most_waiting)
        self._filled = trio.Event()

    @property
    def waiting(self) -> int:
        """Rollouts whose turn has not come yet."""
        return len(self._waiting)

    async def run(self) -> None:
        """Audits until cancelled; may be run again after that."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sort)
            nursery.start_soon(self._work)

    async def _sort(self) -> None:
        """Draws what is to be audited as it is heard, so that no flood holds up what comes behind it."""
        async for admitted in self._heard:
            if self._rng.random() >= self._shares.rollouts:
                continue
            known = not self._reputation.is_newcomer(admitted.account)
            if (displaced := self._waiting.put(admitted, known=known)) is not None:
                self._events.write("audit_skipped", content_id=displaced.content_id)
            self._filled.set()

    async def _work(self) -> None:
        pause_per_second = 1.0 / self._shares.time - 1.0
        while True:
            await self._filled.wait()
            turn = self._waiting.take()
            if not len(self._waiting):
                self._filled = trio.Event()
            await self._beacons.obtain(turn.admitted.rollout.epoch)
            began = trio.current_time()
            await self._audit(turn.admitted)
            took_seconds = trio.current_time() - began
            self._waiting.charge(turn, took_seconds)
            await trio.sleep(took_seconds * pause_per_second)

    async def _audit(self, admitted: AdmittedRollout) -> None:
        try:
            verified = await self._verifier.verify(admitted)
        except RemoteProtocolError as error:
            if error.reason is not Reason.BEACON_UNKNOWN:
                self._pool.take(admitted.content_id)
            return
        if not verified.is_informative:
            self._pool.take(admitted.content_id)
