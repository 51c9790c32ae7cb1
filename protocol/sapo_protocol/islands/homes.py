"""The home island of each account and the visited island of each node, drawn by the beacons of their periods.

A period of ``period_epochs`` begins for every account in another epoch, so that in each epoch about one in
``period_epochs`` accounts moves. What holds in an epoch follows from beacons up to that of the epoch before:
the members of an island are connected by the time its first rollouts come.
"""

from sapo_protocol.epochs import tagged_digest
from sapo_protocol.identifiers import Account, Digest, NodeId, SwarmId


def drawing_epoch(swarm_id: SwarmId, subject: Account | NodeId, epoch: int, period_epochs: int) -> int:
    """Return the earlier epoch whose beacon determines the island of an account or node key in an epoch."""
    offset = _number(tagged_digest("island-offset", swarm_id, subject)) % period_epochs
    before = max(epoch, 1) - 1
    return max(0, before - (before + offset) % period_epochs)


def home_island(swarm_id: SwarmId, beacon: Digest, account: Account, count: int) -> int:
    """Return the island of an account, from 0 to ``count - 1``.

    Args:
        beacon: that of the account's ``drawing_epoch``.
        count: number of islands, a power of two. When it doubles, half of an island's accounts stay.
    """
    return _number(tagged_digest("island", swarm_id, beacon, account)) % count


def visited_island(swarm_id: SwarmId, beacon: Digest, node: NodeId, *, home: int, count: int) -> int:
    """Return the island that a node visits beside its account's home; the home itself if there is no other.

    Args:
        beacon: that of the node key's ``drawing_epoch``.
    """
    if count == 1:
        return home
    drawn = _number(tagged_digest("visit", swarm_id, beacon, node)) % (count - 1)
    return drawn if drawn < home else drawn + 1


def _number(digest: Digest) -> int:
    return int.from_bytes(digest[:8], "big")
