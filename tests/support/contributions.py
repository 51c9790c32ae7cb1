"""Contribution messages of any author, also false ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from support.swarm import Identity

from sapo_protocol import merkle
from sapo_protocol.contributions import Approval, Proposal, Tally
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest

KINDS: Final = {Tally: Kind.TALLY, Proposal: Kind.PROPOSAL, Approval: Kind.APPROVAL}


def tally_of(auditor: Identity, epoch: int, points: Mapping[Account, int]) -> Tally:
    """Return a tally that an auditor could publish."""
    return Tally(
        node=auditor.node,
        account=auditor.account,
        epoch=epoch,
        points=tuple(sorted(points.items())),
        evidence_root=merkle.EMPTY_ROOT,
    )


def sealed_by(author: Identity, manifest: Manifest, message: Tally | Proposal | Approval) -> bytes:
    """Return a contribution message signed by a node, whichever node it names."""
    kind = KINDS[type(message)]
    return seal(kind, manifest.swarm_id, message.to_payload(), author.seed).to_bytes()
