"""How long the number of islands has been unknown."""

from __future__ import annotations

import trio
from support.swarm import make_chain_manifest, make_manifest
from trio.testing import MockClock

from sapo_client.node.health import IslandWatch
from sapo_client.observe.health import IslandFacts
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.terms.islands import IslandTerms
from sapo_verification.islands import IslandMap

FOLLOWS = make_chain_manifest(
    version=2, islands=IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=16)
)


async def test_the_time_counts_from_the_first_look_until_the_number_is_known(
    autojump_clock: MockClock,
) -> None:
    islands = IslandMap(FOLLOWS, lambda _epoch: None)
    seconds = epoch_start_seconds(FOLLOWS, 20)
    watch = IslandWatch(FOLLOWS, islands, lambda: seconds)
    assert watch.facts() == IslandFacts(0.0, None)
    await trio.sleep(90)
    assert watch.facts() == IslandFacts(90.0, None)
    islands.learn(19, [10])
    assert watch.facts() == IslandFacts(90.0, 1)
    islands.learn(20, [10])
    assert watch.facts() == IslandFacts()


def test_an_undivided_swarm_reports_nothing() -> None:
    manifest = make_manifest()
    assert IslandWatch(manifest, IslandMap(manifest, lambda _epoch: None), lambda: 0.0).facts() is None
