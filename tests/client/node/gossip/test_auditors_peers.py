"""Which peers are auditors: they alone may ask for as much as they like."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.gossip_harness import GossipHarness
from support.swarm import Identity, make_chain_manifest

from sapo_client.node.gossip.ratings import auditor_of
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.terms.auditors import Auditors

MANIFEST = make_chain_manifest()
AUDITOR, WORKER, UNKNOWN, LATER = (Identity(number) for number in range(1, 5))
OTHER_KEY = Identity(1, key=1)


@pytest.fixture
def node(tmp_path: Path) -> GossipHarness:
    opened = GossipHarness(MemoryHub(), Identity(9), MANIFEST, tmp_path)
    for known in (AUDITOR, OTHER_KEY, WORKER):
        opened.certificates.admit(known.certificate(MANIFEST).to_bytes(), opened.now())
    opened.engine.set_auditors(Auditors((AUDITOR.account, UNKNOWN.account)))
    return opened


@pytest.mark.parametrize(
    ("who", "auditor"),
    [
        (AUDITOR, AUDITOR.account),
        (OTHER_KEY, AUDITOR.account),
        (WORKER, None),  # has a certificate, as everybody
        (UNKNOWN, None),  # an auditor whose certificate did not arrive
        (LATER, None),
    ],
)
def test_a_peer_is_an_auditors_if_its_certificate_names_one(
    node: GossipHarness, who: Identity, auditor: object
) -> None:
    assert auditor_of(node.engine, peer_id_from_key(who.node)) == auditor


@pytest.mark.parametrize("peer_id", ["", "peer", "12D3KooW"])
def test_a_peer_without_a_node_key_is_no_auditors(node: GossipHarness, peer_id: str) -> None:
    assert auditor_of(node.engine, peer_id) is None
