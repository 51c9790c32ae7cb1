"""Token bucket: never more than burst plus rate, never stuck."""

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.limits import Rate
from sapo_client.swarm.rate_limit import TokenBucket

RATES = st.builds(
    Rate,
    per_second=st.floats(0.01, 1000, allow_nan=False),
    burst=st.floats(1, 1000, allow_nan=False),
)
STEPS = st.lists(
    st.tuples(st.floats(-1, 10, allow_nan=False), st.floats(0, 50, allow_nan=False)), max_size=60
)


@given(RATES, STEPS)
def test_what_passes_never_exceeds_burst_plus_rate(rate: Rate, steps: list[tuple[float, float]]) -> None:
    now, latest, passed = 100.0, 100.0, 0.0
    bucket = TokenBucket(rate, now)
    for elapsed_seconds, amount in steps:
        now += elapsed_seconds  # the clock may step back
        latest = max(latest, now)
        if bucket.take(amount, now):
            passed += amount
        assert passed <= rate.burst + rate.per_second * (latest - 100.0) + 1e-6


@given(RATES, STEPS)
def test_after_a_rest_the_whole_burst_is_there_again(rate: Rate, steps: list[tuple[float, float]]) -> None:
    now = 100.0
    bucket = TokenBucket(rate, now)
    for elapsed_seconds, amount in steps:
        now += abs(elapsed_seconds)
        bucket.take(amount, now)
    rested = now + rate.burst / rate.per_second * 1.001 + 0.001
    assert abs(bucket.available(rested) - rate.burst) < 1e-6
    assert bucket.take(rate.burst * 0.999, rested)


@given(RATES, st.floats(0, 100, allow_nan=False))
def test_a_refused_message_uses_no_tokens(rate: Rate, spent_share: float) -> None:
    bucket = TokenBucket(rate, 0.0)
    bucket.take(rate.burst * min(spent_share, 100) / 100, 0.0)
    before = bucket.available(0.0)
    assert not bucket.take(before + 1, 0.0)
    assert bucket.available(0.0) == before
