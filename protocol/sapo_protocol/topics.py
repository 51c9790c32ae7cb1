"""Gossip topics and request protocols; the swarm id in each keeps swarms apart."""

from sapo_protocol.constants import PROTOCOL_VERSION
from sapo_protocol.identifiers import SwarmId


def rollouts_topic(swarm_id: SwarmId) -> str:
    """Return the gossip topic of rollouts."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/rollouts"


def certificates_topic(swarm_id: SwarmId) -> str:
    """Return the gossip topic of certificates."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/certificates"


def contributions_topic(swarm_id: SwarmId) -> str:
    """Return the gossip topic of the auditors' tallies, proposals and approvals."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/contributions"


def equivocations_topic(swarm_id: SwarmId) -> str:
    """Return the gossip topic of proofs of equivocation."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/equivocations"


def certificates_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for the certificates that a peer holds."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/certificates"


def catch_up_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for recent rollouts of the current epochs."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/catch-up"


def contributions_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for the contributions of recent epochs."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/contributions"


def equivocations_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for the proofs of equivocation that a peer holds."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/equivocations"
