"""What a connection may bring follows from the quotas of the accounts that are heard here."""

from __future__ import annotations

from itertools import islice
from typing import Final

from sapo_client.node.runtime.clock import Clock
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.transport import Transport
from sapo_protocol.identifiers import Account
from sapo_verification.engine import Engine

_LIMITS: Final = TransportLimits()

SHORTEST_EPOCH_SECONDS: Final = 600
"""Slots of a shorter epoch, as a swarm on one machine has, are spread over this time: nobody makes a thousand
groups in a minute, and a limit that allowed it would take a flood for traffic."""


class HeardQuotas:
    """Tells the transport how many rollouts the accounts that this node hears may send.

    They are those of which it knows a certificate, and that live on an island which it carries, or may soon.
    Under a gate only accounts with something behind it count: all others are free.
    """

    def __init__(self, engine: Engine, transport: Transport, clock: Clock) -> None:
        self._engine = engine
        self._transport = transport
        self._clock = clock
        self._told_for: tuple[int, bool, int, frozenset[int]] | None = None

    def look(self) -> None:
        """Tell the transport if anything changed that the quotas rest on."""
        engine, epoch = self._engine, self._engine.epoch(self._clock())
        rests_on = epoch, engine.standing.is_known(epoch), len(engine.certificates), engine.islands.carried
        if rests_on != self._told_for:
            self._told_for = rests_on
            self._transport.expect(self.per_second())

    def per_second(self) -> float:
        """Return how many rollouts a second they may send, all together.

        Nobody is counted where it makes no difference: whether an account is heard costs 16 us, and there
        may be thousands.
        """
        manifest, epoch = self._engine.manifest, self._engine.epoch(self._clock())
        accounts = {account for _, account in self._engine.certificates.pairs()}
        slots = max(manifest.limits_at(one).slots_per_epoch for one in (epoch, epoch + 1))
        of_one = slots / max(manifest.epoch_seconds, SHORTEST_EPOCH_SECONDS)
        if len(accounts) * of_one <= _LIMITS.least_quota:
            return len(accounts) * of_one
        most = int(_LIMITS.most_quota / of_one) + 1
        heard = (account for account in accounts if self._is_heard(account, epoch))
        return sum(1 for _ in islice(heard, most)) * of_one

    def _is_heard(self, account: Account, epoch: int) -> bool:
        engine = self._engine
        return bool(engine.standing.units_of(account, epoch)) and engine.islands.is_near(
            account, self._clock()
        )
