"""Gossip topics and request protocols; the swarm id in each keeps swarms apart.

Rollouts, certificates and proofs of equivocation have a topic for every island. Island 0 has the names of a
swarm that is not divided, so half of its nodes keep their topics when it divides.
"""

from sapo_protocol.constants import PROTOCOL_VERSION
from sapo_protocol.identifiers import SwarmId


def rollouts_topic(swarm_id: SwarmId, island: int = 0) -> str:
    """Return the gossip topic of an island's rollouts."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/rollouts{_suffix(island)}"


def certificates_topic(swarm_id: SwarmId, island: int = 0) -> str:
    """Return the gossip topic of an island's certificates."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/certificates{_suffix(island)}"


def contributions_topic(swarm_id: SwarmId) -> str:
    """Return the gossip topic of the auditors' tallies, proposals and approvals."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/contributions"


def equivocations_topic(swarm_id: SwarmId, island: int = 0) -> str:
    """Return the gossip topic of an island's proofs of equivocation."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/equivocations{_suffix(island)}"


def commitments_topic(swarm_id: SwarmId, island: int = 0) -> str:
    """Return the gossip topic of an island's commitments; only in a swarm whose audits are by sample."""
    return f"sapo/{PROTOCOL_VERSION}/{swarm_id}/commitments{_suffix(island)}"


def certificates_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for the certificates that a peer holds."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/certificates"


def newest_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol by which nodes of release 0.1.0 catch up; this release only serves it."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/catch-up"


def rollout_ids_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for the ids of the rollouts that a peer holds."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/rollout-ids"


def rollouts_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for rollouts by their ids."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/rollouts"


def contributions_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for the contributions of recent epochs."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/contributions"


def equivocations_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for the proofs of equivocation that a peer holds."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/equivocations"


def pages_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for pages of tallies and proposals, by their digests."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/pages"


def addresses_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for address records, by island."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/addresses"


def successors_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for successors of the swarm's terms, by their digests."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/successors"


def groups_protocol(swarm_id: SwarmId) -> str:
    """Return the request protocol for drawn groups, by account, epoch and slots."""
    return f"/sapo/{PROTOCOL_VERSION}/{swarm_id}/groups"


def _suffix(island: int) -> str:
    return f"/{island}" if island else ""
