"""The audit of a random share of what was admitted, so that reputation does not wait for the sampler."""

from __future__ import annotations

import random

import trio

from sapo_client.node.beacons import Beacons
from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_verification.pool import Pool
from sapo_verification.types import AdmittedRollout
from sapo_verification.verifier import Verifier


class Audit:
    """Verifies admitted rollouts in the background; an auditor's share is 1.

    Args:
        share: probability that a rollout nobody sampled is verified all the same.
    """

    def __init__(
        self,
        queue: trio.MemoryReceiveChannel[AdmittedRollout],
        verifier: Verifier,
        pool: Pool,
        beacons: Beacons,
        share: float,
        rng: random.Random,
    ) -> None:
        self._queue = queue
        self._verifier = verifier
        self._pool = pool
        self._beacons = beacons
        self._share = share
        self._rng = rng

    async def run(self) -> None:
        """Audits until cancelled."""
        async for admitted in self._queue:
            if self._rng.random() < self._share:
                await self._audit(admitted)

    async def _audit(self, admitted: AdmittedRollout) -> None:
        await self._beacons.obtain(admitted.rollout.epoch)
        try:
            verified = await self._verifier.verify(admitted)
        except RemoteProtocolError as error:
            if error.reason is not Reason.BEACON_UNKNOWN:
                self._pool.take(admitted.content_id)
            return
        if not verified.is_informative:
            self._pool.take(admitted.content_id)
