"""The node's own certificate: always valid, however long the node runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import Identity, make_manifest, moment
from trio.testing import MockClock

from sapo_client.node.gossip.own_certificate import CERTIFICATE_SECONDS, OwnCertificate
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.certificate import Certificate, open_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import parse_envelope

MANIFEST = make_manifest()
ALICE, BOB = Identity(1), Identity(2)
NOW = moment(MANIFEST)
DAY = 86_400


def opened(message: bytes) -> Certificate:
    return open_certificate(parse_envelope(message, MANIFEST.swarm_id), MANIFEST.binding_domain)


@pytest.mark.parametrize(
    ("step_seconds", "renewed"),
    [
        (0, False),
        (DAY, False),
        (14 * DAY, False),
        (16 * DAY, True),
        (400 * DAY, True),
        (-50, False),
        (-90, True),
    ],
)
def test_the_own_certificate_is_valid_at_once_and_renewed_at_half_its_duration(
    step_seconds: int, renewed: bool
) -> None:
    now = NOW
    shown: list[NodeBinding] = []
    own = OwnCertificate(
        node_seed=ALICE.seed,
        account_key=ALICE.secret,
        manifest=MANIFEST,
        clock=lambda: now,
        show=shown.append,
    )
    first = own.message()
    now += step_seconds
    certificate = opened(own.message())
    assert (own.message() != first) is renewed
    assert certificate.covers(now)
    assert len(shown) == 1 + renewed
    assert (shown[-1].node_key, shown[-1].not_after) == (ALICE.node, certificate.not_after_seconds)
    assert (certificate.node, certificate.account) == (ALICE.node, ALICE.account)


@pytest.mark.parametrize("step_seconds", [-7200, CERTIFICATE_SECONDS - DAY, CERTIFICATE_SECONDS + DAY])
async def test_nodes_keep_each_others_certificates_after_the_clock_moved(
    tmp_path: Path, autojump_clock: MockClock, step_seconds: int
) -> None:
    """After two months, or with a clock that was two hours ahead, rollouts are still admitted."""
    now, hub = NOW, MemoryHub()
    alice, bob = (
        GossipHarness(hub, who, MANIFEST, tmp_path / f"{who.number}", clock=lambda: now)
        for who in (ALICE, BOB)
    )
    async with trio.open_nursery() as nursery:
        for each in (alice, bob):
            await nursery.start(each.transport.run)
            nursery.start_soon(each.run)
        await alice.transport.connect(bob.address)
        await until(lambda: alice.knows(bob) and bob.knows(alice))
        now = max(NOW + step_seconds, MANIFEST.genesis_seconds)
        await trio.sleep(61)
        epoch = int(now - MANIFEST.genesis_seconds) // MANIFEST.epoch_seconds
        sent = await alice.publish(epoch=epoch)
        await until(bob.pooled)
        nursery.cancel_scope.cancel()
    assert bob.pooled() == {sent.content_id}
