"""Section 9: names of topics and request protocols, and the ids of gossiped messages."""

from hashlib import sha256


def topics(swarm: bytes, island: int) -> dict[str, str]:
    """Return the names of an island's topics; contributions have one for all islands."""
    end = "" if island == 0 else "/" + str(island)
    of_islands = ("rollouts", "certificates", "equivocations", "commitments")
    named = {kind: f"sapo/1/{swarm.hex()}/{kind}{end}" for kind in of_islands}
    return named | {"contributions": f"sapo/1/{swarm.hex()}/contributions"}


def protocols(swarm: bytes) -> dict[str, str]:
    """Return the names of a swarm's request protocols, but for that of release 0.1.0."""
    kinds = "certificates rollout-ids rollouts contributions equivocations addresses pages successors groups"
    return {kind: f"/sapo/1/{swarm.hex()}/{kind}" for kind in kinds.split()}


def message_id(topic: str, data: bytes) -> bytes:
    """Return the id of a message in gossip."""
    return sha256(topic.encode() + bytes(1) + data).digest()
