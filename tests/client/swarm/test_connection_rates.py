"""The rate limit of a connection follows the quotas of the received accounts."""

from __future__ import annotations

import pytest

from sapo_client.swarm.limits import ConnectionRates, Rate, TransportLimits
from sapo_client.swarm.rate_limit import Meter

LIMITS = TransportLimits()
OF_ONE = 1024 / 600
"""Groups a second of one account of a public swarm: 1,024 slots in ten minutes."""

MIB = 2**20


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        (0.0, ConnectionRates(Rate(200, 800), Rate(4 * MIB, 16 * MIB), proves_flood=True)),
        (8 * OF_ONE, ConnectionRates(Rate(200, 800), Rate(4 * MIB, 16 * MIB), proves_flood=True)),
        (100.0, ConnectionRates(Rate(200, 800), Rate(4 * MIB, 16 * MIB), proves_flood=True)),
        (150.0, ConnectionRates(Rate(300, 1200), Rate(6 * MIB, 24 * MIB), proves_flood=True)),
        (300.0, ConnectionRates(Rate(600, 2400), Rate(12 * MIB, 48 * MIB), proves_flood=True)),
        (500.0, ConnectionRates(Rate(1000, 4000), Rate(20 * MIB, 80 * MIB), proves_flood=True)),
        (501.0, ConnectionRates(Rate(1000, 4000), Rate(20 * MIB, 80 * MIB), proves_flood=False)),
        (8192 * OF_ONE, ConnectionRates(Rate(1000, 4000), Rate(20 * MIB, 80 * MIB), proves_flood=False)),
        (1e12, ConnectionRates(Rate(1000, 4000), Rate(20 * MIB, 80 * MIB), proves_flood=False)),
    ],
)
def test_rates_are_twice_the_quotas_between_a_floor_and_a_ceiling(
    quota: float, expected: ConnectionRates
) -> None:
    assert LIMITS.rates_for(quota) == expected


def test_ids_are_remembered_as_long_as_they_arrive_at_the_ceiling() -> None:
    """At the ceiling every message comes twice on average, so half of them are new."""
    ceiling = LIMITS.rates_for(1e12).messages.per_second
    assert ceiling / LIMITS.copies * LIMITS.seen_seconds <= LIMITS.seen_messages


def _passed(meter: Meter, seconds: int, per_second: int, start: int = 0) -> int:
    times = (start + number / per_second for number in range(seconds * per_second))
    return sum(meter.take("relay", 1, 1000, now) for now in times)


def test_messages_of_an_honest_relay_of_a_large_island_pass() -> None:
    """A hundred and eighty accounts that use their quotas: more than 200 messages a second."""
    quota, seconds = 180 * OF_ONE, 30
    sent = seconds * int(quota)
    assert _passed(Meter(LIMITS), seconds, int(quota)) < sent
    meter = Meter(LIMITS)
    meter.expect(quota, 0.0)
    assert _passed(meter, seconds, int(quota)) == sent


def test_open_connections_get_changed_rates() -> None:
    meter, quota = Meter(LIMITS), 180 * OF_ONE
    assert _passed(meter, 2, 300) == 600
    meter.expect(quota, 2.0)
    assert _passed(meter, 30, 300, start=2) == 30 * 300
    meter.expect(0.0, 32.0)
    assert _passed(meter, 30, 300, start=32) <= 800 + 30 * 200


@pytest.mark.parametrize("accounts", [0, 180, 8192])
def test_a_flood_is_cut_whatever_accounts_an_attacker_makes(accounts: int) -> None:
    """Without a gate accounts are free: they raise the limit to the ceiling, and no further."""
    meter, seconds = Meter(LIMITS), 5
    meter.expect(accounts * OF_ONE, 0.0)
    rates = LIMITS.rates_for(accounts * OF_ONE).messages
    assert _passed(meter, seconds, 10_000) <= rates.burst + seconds * rates.per_second
    assert rates.per_second <= 1000


def test_accounts_that_come_and_go_refill_no_bucket() -> None:
    meter, passed = Meter(LIMITS), 0
    for tenth in range(200):
        meter.expect(0.0 if tenth % 2 else 1e12, tenth / 10)
        passed += sum(meter.take("relay", 1, 1000, tenth / 10) for _ in range(500))
    assert passed <= 4000 + 20 * 1000
