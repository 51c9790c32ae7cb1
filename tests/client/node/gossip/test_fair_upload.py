"""What n networks that ask get of a shared upload limit."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.node.gossip import fair_upload
from sapo_client.node.gossip.fair_upload import MAX_CREDIT, FairUpload
from sapo_client.swarm.limits import Rate

RATE = Rate(per_second=120_000, burst=600_000)
PIECE = 4_000


def taken_in(upload: FairUpload, pauses: dict[str, float], seconds: int) -> Counter[str]:
    """Return the bytes that each network got that asks after its pauses until it is refused."""
    got: Counter[str] = Counter()
    for tenth in range(10 * seconds):
        for network, pause in pauses.items():
            if tenth % int(10 * pause) == 0:
                while upload.take(network, PIECE, tenth / 10):
                    got[network] += PIECE
    return got


def test_a_network_that_waits_after_a_refusal_gets_as_much_as_one_that_does_not() -> None:
    pauses = {"203.0.113.1": 0.1, "203.1.113.1": 0.1, "198.51.100.1": 5.0}
    upload = FairUpload(RATE, 0.0)
    taken_in(upload, {"203.0.113.1": 0.1}, 1)  # the burst
    got = taken_in(upload, pauses, 60)
    assert 0.85 * RATE.per_second * 20 < got["198.51.100.1"] <= 1.05 * RATE.per_second * 20


def test_what_one_network_leaves_goes_to_the_others() -> None:
    upload = FairUpload(RATE, 0.0)
    got: Counter[str] = Counter()
    for second in range(60):
        assert upload.take("198.51.100.1", PIECE, second)
        while upload.take("203.0.113.1", PIECE, second):
            got["203.0.113.1"] += PIECE
    assert got["203.0.113.1"] >= 59 * (RATE.per_second - PIECE) - MAX_CREDIT


def test_a_rented_network_has_the_shares_of_four() -> None:
    others = [f"198.51.{n}.1" for n in range(4)]
    rented = [f"203.0.113.{n}" for n in range(1, 41)]
    upload = FairUpload(RATE, 0.0)
    taken_in(upload, {"192.0.2.1": 0.1}, 1)  # the burst
    got = taken_in(upload, dict.fromkeys(others + rented, 1.0), 60)
    of_rented = sum(got[each] for each in rented)
    assert 0.8 <= of_rented / sum(got[each] for each in others) <= 1.2


def test_any_number_of_networks_is_bounded_and_takes_no_other_sites_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_upload, "MAX_NETWORKS", 16)
    upload = FairUpload(RATE, 0.0)
    while upload.take("192.0.2.1", PIECE, 0.0):
        pass
    assert not upload.take("198.51.100.1", PIECE, 0.0)
    for number in range(1, 1000):
        upload.available(f"2001:db8:0:{number:x}::/64", number / 250)
    assert upload.available("198.51.100.1", 4.0) > RATE.per_second * 4 / 6 / 1.1


@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from([f"203.0.{n}.1" for n in range(6)]),
            st.integers(min_value=0, max_value=200_000),
            st.floats(min_value=-1.0, max_value=30.0),
        ),
        max_size=60,
    )
)
def test_all_together_never_get_more_than_the_limit(requests: list[tuple[str, int, float]]) -> None:
    upload, now_seconds, latest, taken = FairUpload(RATE, 0.0), 0.0, 0.0, 0
    for network, size, pause in requests:
        now_seconds = max(0.0, now_seconds + pause)
        latest = max(latest, now_seconds)
        taken += size * upload.take(network, size, now_seconds)
        assert taken <= RATE.burst + latest * RATE.per_second + 1
