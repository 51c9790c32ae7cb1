"""A node connects while it still starts, and hears nothing yet: nobody refuses anybody."""

from __future__ import annotations

import trio
from support.health_trial import Begin
from support.nodes import manifest_of
from trio.testing import MockClock

from sapo_client.node.health import SUBSCRIPTION_SECONDS
from sapo_client.observe.health import INTERVAL_SECONDS
from sapo_client.swarm.simulated.memory import MemoryTransport
from sapo_protocol.suite import Suite


async def test_a_peer_that_connected_just_now_refuses_nothing(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        async with trio.open_nursery() as others:
            peer = MemoryTransport(trial.hub, "starting", on_bug=_raise)
            await others.start(peer.run)
            trial.clock.rate = 0.01  # however slow the machine is, the connection stays younger than a start
            await peer.connect(trial.home.address)
            trial.hub.partition(["starting"])  # connected, and nothing comes through
            await trial.rounds(6)
            trial.pass_by(INTERVAL_SECONDS)
            await trial.rounds(2)
            assert await trial.codes() == []
            trial.pass_by(SUBSCRIPTION_SECONDS)
            await trial.rounds(3)
            trial.clock.rate = 1.0
            await trial.until_told("peers_refuse")
            others.cancel_scope.cancel()
        await trial.stop()


def _raise(error: Exception) -> None:
    raise error
