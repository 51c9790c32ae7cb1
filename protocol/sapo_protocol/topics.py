"""Gossip topics and request protocols; the swarm id in each keeps swarms apart."""

from sapo_protocol.constants import PROTOCOL_VERSION
from sapo_protocol.identifiers import SwarmId


def rollouts_topic(swarm_id: SwarmId) -> str:
    """Where rollouts are gossiped."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/rollouts"


def certificates_topic(swarm_id: SwarmId) -> str:
    """Where certificates are gossiped."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/certificates"


def contributions_topic(swarm_id: SwarmId) -> str:
    """Where auditors gossip tallies, proposals and approvals."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/contributions"


def equivocations_topic(swarm_id: SwarmId) -> str:
    """Where proofs of equivocation are gossiped."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/equivocations"


def certificates_protocol(swarm_id: SwarmId) -> str:
    """Request: the certificates that a peer holds."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/certificates"


def catch_up_protocol(swarm_id: SwarmId) -> str:
    """Request: recent messages of the current epochs."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/catch-up"


def contributions_protocol(swarm_id: SwarmId) -> str:
    """Request: the contribution messages of recent epochs."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/contributions"


def equivocations_protocol(swarm_id: SwarmId) -> str:
    """Request: the proofs of equivocation that a peer holds."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/equivocations"
