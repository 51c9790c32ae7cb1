"""Selection of the peers that an auditor asks for drawn groups, within the limits of each peer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from sapo_client.swarm.limits import Rate
from sapo_client.swarm.peer_id import key_from_peer_id, peer_id_from_key
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.transport import Transport, TransportError
from sapo_protocol.audits.commitment import Commitment
from sapo_protocol.identifiers import NodeId
from sapo_verification.engine import Engine

ASKED_OF_PEER: Final = Rate(per_second=2, burst=8)
"""Rate of requests to a peer; a peer accepts five per second, twenty at once, from all services together."""

MAX_AT_ONCE: Final = 2
"""Concurrent requests to one peer, so that a silent one does not delay more accounts."""

_REST_SECONDS: Final = 2.0
_LONGEST_REST_SECONDS: Final = 64.0
_MAX_PEERS: Final = 1024


class Holders:
    """The connected peers, the groups they may hold, and the requests to each of them."""

    def __init__(self, engine: Engine, transport: Transport) -> None:
        self._engine = engine
        self._transport = transport
        self._buckets = KeyedBuckets(ASKED_OF_PEER, _MAX_PEERS)
        self._asking: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._resting: dict[str, float] = {}
        self._peers: tuple[str, ...] = ()
        self._carried: dict[tuple[str, int], frozenset[int]] = {}

    def look(self) -> None:
        """Update the set of connected peers."""
        self._peers = tuple(peer.peer_id for peer in self._transport.peers())
        present = set(self._peers)
        self._failed = {peer: count for peer, count in self._failed.items() if peer in present}
        self._resting = {peer: until for peer, until in self._resting.items() if peer in present}
        self._carried.clear()

    def take(self, commitment: Commitment, asked: int) -> str | None:
        """Return the peer to ask next for an account's groups; None while none may be asked.

        First the author's node, then in turn the nodes that carry the account's island, then all others.

        Args:
            asked: number of peers asked before.
        """
        order = self._order(commitment)
        now_seconds = trio.current_time()
        for number in range(len(order)):
            peer_id = order[(asked + number) % len(order)]
            if self._asking.get(peer_id, 0) >= MAX_AT_ONCE or self._resting.get(peer_id, 0.0) > now_seconds:
                continue
            if self._buckets.take(peer_id, now_seconds):
                return peer_id
        return None

    @contextmanager
    def asking(self, peer_id: str) -> Iterator[None]:
        """Count a request to a peer while it lasts; after a failure the peer is not asked for a while."""
        self._asking[peer_id] = self._asking.get(peer_id, 0) + 1
        try:
            yield
        except (TransportError, trio.TooSlowError):
            failed = self._failed[peer_id] = self._failed.get(peer_id, 0) + 1
            rest_seconds = min(_LONGEST_REST_SECONDS, _REST_SECONDS * 2 ** min(failed, 8))
            self._resting[peer_id] = trio.current_time() + rest_seconds
            raise
        else:
            self._failed.pop(peer_id, None)
        finally:
            self._asking[peer_id] -= 1
            if not self._asking[peer_id]:
                del self._asking[peer_id]

    def _order(self, commitment: Commitment) -> list[str]:
        author, epoch = peer_id_from_key(commitment.node), commitment.epoch
        home = self._engine.islands.home(commitment.account, epoch)
        others = [peer for peer in self._peers if peer != author]
        near = [peer for peer in others if home in self._islands_of(peer, epoch)]
        far = [peer for peer in others if home not in self._islands_of(peer, epoch)]
        first = int.from_bytes(commitment.account[:4], "big")  # spreads the accounts over the peers
        return [author] * (author in self._peers) + _turned(near, first) + _turned(far, first)

    def _islands_of(self, peer_id: str, epoch: int) -> frozenset[int]:
        """Return the islands to whose rollouts a peer subscribes in an epoch, as far as its accounts are
        known."""
        if (known := self._carried.get((peer_id, epoch))) is not None:
            return known
        key, islands = key_from_peer_id(peer_id), self._engine.islands
        node = NodeId(key) if key is not None else None
        accounts = () if node is None else self._engine.certificates.accounts_of(node)
        found = {islands.home(account, epoch) for account in accounts}
        found |= {islands.visit(node, account, epoch) for account in accounts if node is not None}
        self._carried[peer_id, epoch] = known = frozenset(one for one in found if one is not None)
        return known


def _turned(peers: list[str], first: int) -> list[str]:
    at = first % len(peers) if peers else 0
    return peers[at:] + peers[:at]
