"""A real node that is sent more than one connection may bring forwards no more than that to each peer."""

from __future__ import annotations

from typing import Any

import trio

from sapo_client.swarm.limits import Rate, TransportLimits

LIMITS = TransportLimits(messages=Rate(per_second=20, burst=40), flood_pause_seconds=0.02, outbound_queue=32)
FLOODERS = 6


async def test_an_honest_relay_of_several_flooders_is_not_disconnected(swarm: Any, tools: Any) -> None:
    """Each flooder stays within what a connection may bring; together they send four times as much.

    What does not fit into the queue of a peer is dropped, but no message of the relay's own.
    """
    victim = await swarm.start(1, limits=LIMITS)
    relay = await swarm.start(2, limits=LIMITS, bootstrap=victim.transport.addresses)
    await tools.eventually(lambda: tools.subscribed_peers(relay) == 1)
    alone = tools.replace(tools.QUICK_DIAL, target_peers=1)
    flooders = [
        await swarm.start(number, bootstrap=relay.transport.addresses, dial=alone)
        for number in range(3, 3 + FLOODERS)
    ]
    await tools.eventually(lambda: tools.subscribed_peers(relay) >= 1 + FLOODERS)
    for number in range(80):
        for flooder in flooders:
            await flooder.publish(b"%s %d" % (flooder.peer_id.encode(), number))
        if number % 4 == 0:
            await relay.publish(b"own %d" % number)
        await trio.sleep(1 / 15)
    await tools.eventually(lambda: len(relay.accepted) > 300)
    await tools.eventually(lambda: len(victim.accepted) > 100)
    await tools.eventually(lambda: sum(data.startswith(b"own") for data in victim.accepted) == 20)
    assert relay.transport.counters()["dropped_before_sending"] > 0
    assert relay.peer_id in victim.peer_ids()
    assert victim.transport.score(relay.peer_id) == 0
    assert relay.transport.score(victim.peer_id) == 0
