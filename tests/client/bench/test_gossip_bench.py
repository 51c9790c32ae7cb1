"""The gossip benchmark with few processes: real TCP, both kinds."""

import pytest

from sapo_client.bench.gossip import GossipTerms, gossip_rates

pytestmark = pytest.mark.e2e


def test_every_message_reaches_every_process_of_both_kinds() -> None:
    rates = gossip_rates(GossipTerms(peers=3, messages=4, pause_seconds=0.1, rounds=1))
    assert [(rate.kind, rate.delivery) for rate in rates] == [("sapo", 1.0), ("py-libp2p", 1.0)]
    assert all(0 < rate.p50_seconds <= rate.p99_seconds and rate.cpu_seconds > 0 for rate in rates)
