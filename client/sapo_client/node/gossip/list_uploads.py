"""Upload limits, by network, of the lists that any peer may request from this node.

A request has a few bytes, and its answer up to a megabyte: of certificates, proofs, contributions, pages of
these, successors of the terms, or drawn groups. Peer ids are free, so the limit is a network's. It is no
shared one, for then strangers could leave newcomers of other networks without certificates, and without them
a newcomer understands nothing. Auditors have no limit: they are few, the chain names them, and whoever rents
a host beside one could otherwise spend what pay rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from math import inf
from typing import Final

import trio

from sapo_client.node.gossip.sync import bounded_response
from sapo_client.swarm.addresses import Scope, network_of, scope_of, site_of
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.transport import PeerInfo, Transport

LISTS_TO_NETWORK: Final = Rate(per_second=64 * 1024, burst=4 * 2**20)
"""Four full answers at once, and one every sixteen seconds: a node asks each peer once, and then by name."""

NETWORKS_OF_SITE: Final = 4
"""So many networks' limits has what is rented as a whole (IPv4 /24, IPv6 /48): forty addresses of it would
otherwise draw 21 Mbit/s, an IPv6 /48 any number."""

LOOK_COST: Final = 16 * 1024
"""Bytes as which it counts to have something looked up that takes milliseconds."""

MAX_NETWORKS: Final = 1024


def _is_none(_peer_id: str) -> bool:
    """Call no peer an auditor's: where there is no ledger."""
    return False


class ListUploads:
    """Bounds of the answers that hold as many messages as fit.

    Args:
        transport: knows from where a peer is connected.
        is_auditor: whether a peer is the node of an auditor at work.
    """

    def __init__(self, transport: Transport, is_auditor: Callable[[str], bool] = _is_none) -> None:
        self._transport = transport
        self._is_auditor = is_auditor
        self._networks = KeyedBuckets(LISTS_TO_NETWORK, MAX_NETWORKS)
        self._sites = KeyedBuckets(LISTS_TO_NETWORK.times(NETWORKS_OF_SITE), MAX_NETWORKS)

    def may_ask(self, peer_id: str) -> bool:
        """Whether a peer may have something looked up now; if so, it counts as ``LOOK_COST`` bytes."""
        return self._allowance(peer_id)(LOOK_COST)

    def response(self, peer_id: str, messages: tuple[bytes, ...], *, max_cost: float = inf) -> bytes:
        """Return a response with the newest of the messages that fit, and that its network may have now.

        Args:
            max_cost: bytes as which a message counts at most.
        """
        take = self._allowance(peer_id)
        return response_within(reversed(messages), lambda message: take(min(len(message), max_cost)))

    def _allowance(self, peer_id: str) -> Callable[[float], bool]:
        """Return a function that takes a number of bytes from what a peer may have now, if enough is left."""
        if self._is_auditor(peer_id):
            return lambda _cost: True
        network = network_of_peer(peer_of(self._transport, peer_id), peer_id)
        return partial(self._take, network, site_of(network), trio.current_time())

    def _take(self, network: str, site: str, now_seconds: float, cost: float) -> bool:
        if self._networks.available(network, now_seconds) < cost:
            return False
        return self._sites.take(site, now_seconds, cost) and self._networks.take(network, now_seconds, cost)


def response_within(newest_first: Iterable[bytes], may_have: Callable[[bytes], bool]) -> bytes:
    """Return a response with the newest messages that fit, up to the first one that a peer may not have."""
    return bounded_response(tuple(reversed(list(takewhile(may_have, newest_first)))))


def peer_of(transport: Transport, peer_id: str) -> PeerInfo | None:
    """Return the transport's record of a peer, if it is connected."""
    return next((peer for peer in transport.peers() if peer.peer_id == peer_id), None)


def network_of_peer(peer: PeerInfo | None, peer_id: str) -> str:
    """Return the network of a peer; on this machine, where all nodes have one host, a peer is its own."""
    host = "" if peer is None else peer.remote_host or ""
    return peer_id if scope_of(host) is Scope.MACHINE else network_of(host)
