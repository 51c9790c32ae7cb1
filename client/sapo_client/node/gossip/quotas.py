"""The transport's limit of rollouts per connection, derived from the quotas of the relevant accounts."""

from __future__ import annotations

from itertools import islice
from typing import Final

import trio

from sapo_client.node.runtime.clock import Clock
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.transport import Transport
from sapo_protocol.identifiers import Account
from sapo_verification.engine import Engine

_LIMITS: Final = TransportLimits()

MIN_EPOCH_SECONDS: Final = 600
"""The slots of a shorter epoch (as in a swarm on one machine) are spread over this time: no account makes a
thousand groups in a minute, and a limit that allowed it would not stop a flood."""


LEARNING_SECONDS: Final = 120.0
"""Time after the start, and after an island was joined, for which nobody is taken for a flooder: peers are
asked for their certificates then, and what unknown accounts send is more than this node expects."""


class HeardQuotas:
    """Sets the transport's limit from the number of rollouts that the relevant accounts may send.

    These are the accounts with a known certificate whose home is, or soon may be, an island that this node
    carries. Under a gate only accounts that meet it are counted, since all others cost nothing.
    """

    def __init__(self, engine: Engine, transport: Transport, clock: Clock) -> None:
        self._engine = engine
        self._transport = transport
        self._clock = clock
        self._told_for: tuple[int, bool, int, frozenset[int], bool] | None = None
        self._carried: frozenset[int] = frozenset()
        self._learns_until_seconds = 0.0

    def look(self) -> None:
        """Update the transport's limit if anything that it depends on has changed."""
        engine, epoch = self._engine, self._engine.epoch(self._clock())
        carried, now_seconds = engine.islands.carried, trio.current_time()
        if carried - self._carried:
            self._learns_until_seconds = now_seconds + LEARNING_SECONDS
        self._carried = carried
        knows_all = now_seconds >= self._learns_until_seconds
        rests_on = epoch, engine.standing.is_known(epoch), len(engine.certificates), carried, knows_all
        if rests_on != self._told_for:
            self._told_for = rests_on
            self._transport.expect(self.per_second(), knows_all=knows_all)

    def per_second(self) -> float:
        """Return how many rollouts per second they may send, all together.

        The accounts are not counted if it makes no difference: the check takes 16 us for each of perhaps
        thousands.
        """
        manifest, epoch = self._engine.manifest, self._engine.epoch(self._clock())
        accounts = {account for _, account in self._engine.certificates.pairs()}
        slots = max(manifest.limits_at(one).slots_per_epoch for one in (epoch, epoch + 1))
        of_one = slots / max(manifest.epoch_seconds, MIN_EPOCH_SECONDS)
        if len(accounts) * of_one <= _LIMITS.min_quota:
            return len(accounts) * of_one
        max_accounts = int(_LIMITS.max_quota / of_one) + 1
        received = (account for account in accounts if self._is_received(account, epoch))
        return sum(1 for _ in islice(received, max_accounts)) * of_one

    def _is_received(self, account: Account, epoch: int) -> bool:
        engine = self._engine
        return bool(engine.standing.units_of(account, epoch)) and engine.islands.is_near(
            account, self._clock()
        )
