"""This node's own certificate: the binding of its key and its account, signed in both directions."""

from __future__ import annotations

from typing import Final

from sapo_client.keystore import Identity
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.manifest import Manifest

CERTIFICATE_SECONDS: Final = 30 * 24 * 3600
"""A lost key stops counting within a month; a node renews its certificate at every start."""

_BACKDATED_SECONDS: Final = 60
"""Peers' clocks may be behind ours."""


def own_binding(identity: Identity, manifest: Manifest, now_seconds: float) -> NodeBinding:
    """What the account signs: that this node's key speaks for it from now on."""
    not_before = int(now_seconds) - _BACKDATED_SECONDS
    return NodeBinding(
        node_key=identity.node_id,
        swarm_id=manifest.swarm_id,
        not_before=not_before,
        not_after=not_before + CERTIFICATE_SECONDS,
    )


def own_certificate(identity: Identity, manifest: Manifest, now_seconds: float) -> bytes:
    """The sealed certificate of this node, valid from now on."""
    binding = own_binding(identity, manifest, now_seconds)
    domain = manifest.binding_domain
    return issue_certificate(identity.node_seed, identity.account_key, binding, domain).to_bytes()
