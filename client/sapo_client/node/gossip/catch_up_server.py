"""Server side of catch-up: ids of rollouts, and rollouts by their ids, within limits of upload.

Peer ids are free, so the limits are per network, and the networks that ask share what all peers together get.
Peers that are vouched for, or that this node dialled, have a separate limit, which other peers, however many,
cannot use up. Auditors have one each: accounts are paid
what auditors have heard of, so who puts them off takes others' pay. They are few, and one of them may be an
attacker, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

import trio

from sapo_client.node.gossip.fair_upload import FairUpload
from sapo_client.node.gossip.list_uploads import MAX_NETWORKS, network_of_peer, peer_of, response_within
from sapo_client.node.gossip.ratings import Ratings, auditor_of
from sapo_client.node.runtime.clock import Clock
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.rate_limit import KeyedBuckets, TokenBucket
from sapo_client.swarm.transport import Direction, Transport
from sapo_protocol.identifiers import Account
from sapo_protocol.islands.catch_up import (
    MAX_FETCH_BYTES,
    MAX_LISTED,
    CatchUpStatus,
    FetchedRollouts,
    IdPage,
    IdRequest,
    parse_fetch_request,
    parse_id_request,
)
from sapo_protocol.topics import newest_protocol, rollout_ids_protocol, rollouts_protocol
from sapo_verification.engine import Engine

UPLOAD: Final = Rate(per_second=256 * 1024, burst=4 * 2**20)
"""Limit for all peers of one kind together, in equal parts by network: 2 Mbit/s; the islands' gossip takes 2
to 3."""

UPLOAD_TO_NETWORK: Final = Rate(per_second=128 * 1024, burst=2 * 2**20)
"""Limit for one network: 30 rollouts of 4 KiB per second, 500 at once."""

UPLOAD_TO_AUDITOR: Final = Rate(per_second=256 * 1024, burst=4 * 2**20)
"""Limit for one auditor: with those of three nodes an island's epoch comes in a minute."""

MIN_COST: Final = 1024
"""Least bytes charged for a requested rollout, held or not, since the look-up costs time."""

LISTING_COST: Final = 32 * 1024
"""Bytes charged for a list: those of a full one."""

LOOKED_THROUGH: Final = 8192
"""Stored rollouts read for one list, which bounds its cost if most of them are of other islands."""

NEWEST: Final = 128
"""Rollouts sent to a node of release 0.1.0: enough for its first batches."""

_FRAMING: Final = 1024


@dataclass(frozen=True, slots=True)
class _Upload:
    """The upload limits of one request of a peer: that of its kind, and that of its network.

    Attributes:
        together: shared by the networks of all peers of its kind.
        network: the peer's.
        now_seconds: the time of the request.
    """

    together: FairUpload
    networks: KeyedBuckets
    network: str
    now_seconds: float

    def take(self, size_bytes: int) -> bool:
        """Whether so much may be sent now; if so, it is charged."""
        if self.together.available(self.network, self.now_seconds) < size_bytes:
            return False
        is_within = self.networks.take(self.network, self.now_seconds, size_bytes)
        return is_within and self.together.take(self.network, size_bytes, self.now_seconds)


@dataclass(frozen=True, slots=True)
class _AuditorUpload:
    """The upload limit of an auditor at the time of a request."""

    own: TokenBucket
    now_seconds: float

    def take(self, size_bytes: int) -> bool:
        """Whether so much may be sent now; if so, it is charged."""
        return self.own.take(size_bytes, self.now_seconds)


class CatchUpServer:
    """Server of the catch-up protocols."""

    def __init__(self, engine: Engine, transport: Transport, clock: Clock) -> None:
        self._engine = engine
        self._transport = transport
        self._clock = clock
        self._ratings = Ratings(engine.certificates, engine.reputation)
        self._uploads: dict[bool, FairUpload] = {}
        self._auditors: dict[Account, TokenBucket] = {}
        self._networks = KeyedBuckets(UPLOAD_TO_NETWORK, MAX_NETWORKS)

    def serve(self) -> None:
        """Answer on the catch-up protocols from now on."""
        swarm_id = self._engine.manifest.swarm_id
        self._transport.serve(rollout_ids_protocol(swarm_id), self._answer_ids)
        self._transport.serve(rollouts_protocol(swarm_id), self._answer_rollouts)
        self._transport.serve(newest_protocol(swarm_id), self._answer_newest)

    async def _answer_ids(self, peer_id: str, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked, upload = parse_id_request(request), self._upload_to(peer_id)
        if asked is None:
            return IdPage(CatchUpStatus.MALFORMED).to_bytes()
        if not upload.take(LISTING_COST):
            return IdPage(CatchUpStatus.BUSY).to_bytes()
        return self._page(asked).to_bytes()

    def _page(self, asked: IdRequest) -> IdPage:
        """Return the requested ids among the next ``LOOKED_THROUGH`` stored rollouts."""
        rows = self._engine.envelopes.listed(asked.epoch, asked.after, LOOKED_THROUGH)
        there = (content_id for content_id, account in rows if self._is_asked(account, asked))
        ids = tuple(islice(there, MAX_LISTED))
        looked_until = ids[-1] if len(ids) == MAX_LISTED else rows[-1][0] if rows else None
        is_last = len(rows) < LOOKED_THROUGH and (not rows or looked_until == rows[-1][0])
        return IdPage(CatchUpStatus.GIVEN, ids, None if is_last else looked_until)

    def _is_asked(self, account: Account, asked: IdRequest) -> bool:
        return not asked.islands or self._engine.islands.home(account, asked.epoch) in asked.islands

    async def _answer_rollouts(self, peer_id: str, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        ids, upload = parse_fetch_request(request), self._upload_to(peer_id)
        if ids is None:
            return FetchedRollouts(CatchUpStatus.MALFORMED).to_bytes()
        found: list[bytes | None] = []
        room = MAX_FETCH_BYTES - _FRAMING
        for content_id in ids:
            message = self._engine.envelopes.envelope(content_id)
            cost = max(len(message or b""), MIN_COST)
            if len(message or b"") > room or not upload.take(cost):
                break
            room -= cost
            found.append(message)
        status = CatchUpStatus.GIVEN if found else CatchUpStatus.BUSY
        return FetchedRollouts(status, tuple(found)).to_bytes()

    async def _answer_newest(self, peer_id: str, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        upload = self._upload_to(peer_id)
        newest = (envelope for _, envelope in self._engine.envelopes.latest(NEWEST))
        return response_within(newest, lambda envelope: upload.take(len(envelope)))

    def _upload_to(self, peer_id: str) -> _Upload | _AuditorUpload:
        now_seconds = trio.current_time()
        if (auditor := auditor_of(self._engine, peer_id)) is not None:
            own = self._auditors.setdefault(auditor, TokenBucket(UPLOAD_TO_AUDITOR, now_seconds))
            return _AuditorUpload(own, now_seconds)
        peer = peer_of(self._transport, peer_id)
        is_chosen = peer is not None and peer.direction is Direction.OUTBOUND
        is_preferred = is_chosen or self._ratings.vouches_for_peer(peer_id, self._engine.epoch(self._clock()))
        together = self._uploads.setdefault(is_preferred, FairUpload(UPLOAD, now_seconds))
        return _Upload(together, self._networks, network_of_peer(peer, peer_id), now_seconds)
