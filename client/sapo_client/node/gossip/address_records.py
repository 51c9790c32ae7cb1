"""Exchange of address records, by which a node finds the members of its islands among all nodes of a swarm.

Peers of older releases do not serve this protocol; they are not penalised for it.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from sapo_client.node.gossip import record_cache
from sapo_client.node.gossip.island_turns import IslandTurns
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.ratings import Ratings
from sapo_client.node.gossip.record_directory import RecordDirectory, RecordSource
from sapo_client.node.runtime.clock import Clock
from sapo_client.swarm.addresses import PeerAddress, parse_address, scope_of
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.relays import Relays, Shortage
from sapo_client.swarm.sought import wanted_on_each
from sapo_client.swarm.transport import Direction, FoundPeer, PeerInfo, Transport, TransportError
from sapo_protocol.epochs import present_epoch
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.islands.address_record import (
    MAX_RECORD_ADDRESSES,
    MAX_RECORDS_BYTES,
    parse_record,
    parse_record_request,
    parse_records,
    to_record_request,
    to_records,
)
from sapo_protocol.topics import addresses_protocol
from sapo_verification.engine import Engine
from sapo_verification.types import AdmittedRollout

LOOK_SECONDS: Final = 5.0
"""Interval of the service, and of requests while members of the own islands are missing."""

WAIT_SECONDS: Final = 0.5
"""Interval of the service while no peer is connected, or one was not asked yet."""

REST_SECONDS: Final = 60.0
"""Interval of requests otherwise; a request also tells the peer this node's addresses."""


_RECALL_SECONDS: Final = 300.0
"""How long after the start the saved records are tried."""

_LOG = logging.getLogger(__name__)


class RecordExchange:
    """Service that sends peers this node's record, asks them for members of its islands, and has those
    dialled.

    It does nothing in a swarm that is not divided.

    Args:
        file: keeps records for the next start; None keeps none.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        node: NodeId,
        own_certificate: OwnCertificate,
        clock: Clock,
        file: Path | None,
    ) -> None:
        manifest = engine.manifest
        self._engine = engine
        self._transport = transport
        self._own_certificate = own_certificate
        self._clock = clock
        self._protocol = addresses_protocol(manifest.swarm_id)
        self._asked_seconds: dict[str, float] = {}
        self._turns = IslandTurns()
        self._file = file
        self._recalled = () if file is None or manifest.islands is None else record_cache.load(file)
        self._saved_seconds = self._started_seconds = self._ask_seconds = 0.0
        self._relays = Relays()
        self._ratings = Ratings(engine.certificates, engine.reputation)
        self.directory = RecordDirectory(
            manifest.swarm_id,
            manifest.binding_domain,
            node,
            engine.islands.due,
            random.SystemRandom(),
            vouches=self._vouches,
            carried=lambda: engine.islands.carried,
        )

    async def run(self) -> None:
        """Answer, ask and have members dialled until cancelled; may be run again after that."""
        if self._engine.manifest.islands is None:
            return
        self._transport.serve(self._protocol, self._answer)
        self._saved_seconds = self._started_seconds = trio.current_time()
        try:
            while True:
                await trio.sleep(await self._look())
        finally:
            self._save()

    async def _look(self) -> float:
        """Ask a peer if it is time, and have members dialled; return the seconds until the next look."""
        if not self._is_divided():
            self._transport.seek(())
            return REST_SECONDS
        peers = self._to_ask()
        self._asked_seconds = {each: when for each, when in self._asked_seconds.items() if each in peers}
        now_seconds = trio.current_time()
        if peers and (now_seconds >= self._ask_seconds or not peers.keys() <= self._asked_seconds.keys()):
            longest_ago = min(peers, key=lambda each: self._asked_seconds.get(each, -1.0))
            self._asked_seconds[longest_ago] = now_seconds
            await self._ask(peers[longest_ago])
            self._ask_seconds = now_seconds + REST_SECONDS
        members, short = self._members(), self._short()
        own = self._relays.published_on(self._engine.islands.carried, time.monotonic())
        self._transport.seek((*members, *self._recall()), short, own)
        if trio.current_time() - self._saved_seconds >= REST_SECONDS:
            self._save()
        if short or self._lacking(members):
            self._ask_seconds = min(self._ask_seconds, now_seconds + LOOK_SECONDS)
        return LOOK_SECONDS if peers and peers.keys() <= self._asked_seconds.keys() else WAIT_SECONDS

    def received(self, admitted: AdmittedRollout, forwarder: str) -> None:
        """Record that a new rollout came by gossip, and the peer that delivered it first."""
        home = self._engine.islands.home(admitted.account, admitted.rollout.epoch)
        if home is not None:
            author = peer_id_from_key(admitted.rollout.node)
            self._relays.came(home, author, forwarder, time.monotonic())

    def published(self, island: int) -> None:
        """Record that this node has published an own rollout on an island."""
        self._relays.published(island, time.monotonic())

    def _short(self) -> dict[int, Shortage]:
        """Return the islands of which this node receives too few rollouts."""
        connected = [peer.peer_id for peer in self._transport.peers()]
        return self._relays.shortages(self._engine.islands.carried, connected, time.monotonic())

    async def _ask(self, peer: PeerInfo) -> None:
        host = peer.remote_host or ""
        counts = Counter(island for member in self._members() for island in member.islands)
        islands = self._turns.next(self._engine.islands.carried, counts)
        request = to_record_request(islands, self._own_record(host))
        try:
            answer = await self._transport.request(
                peer.peer_id, self._protocol, request, max_response_bytes=MAX_RECORDS_BYTES
            )
        except TransportError:
            return  # it is older, or just left
        for message in parse_records(answer):
            self.directory.take(message, _source(peer), self._clock())
            await trio.lowlevel.checkpoint()

    async def _answer(self, peer_id: str, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked = parse_record_request(request)
        peer = next((peer for peer in self._transport.peers() if peer.peer_id == peer_id), None)
        if asked is None or peer is None or peer.remote_host is None:
            return to_records(())
        now_seconds = self._clock()
        if asked.own is not None and self._is_of(asked.own, peer_id):
            self.directory.take(asked.own, _source(peer), now_seconds)
        return to_records(self.directory.answer(asked.islands, peer.remote_host, now_seconds))

    def _recall(self) -> tuple[FoundPeer, ...]:
        """Take over the saved records that are still valid; return the nodes of others that may still be
        reachable.

        The islands of some are known only when their beacons are, so the saved records are tried for some
        minutes.
        """
        if trio.current_time() - self._started_seconds > _RECALL_SECONDS:
            self._recalled = ()
        carried, now_seconds = self._engine.islands.carried, self._clock()
        found = (self.directory.recall(message, source, now_seconds) for message, source in self._recalled)
        old = (replace(peer, islands=peer.islands & carried) for peer in found if peer is not None)
        return tuple(peer for peer in old if peer.islands)

    def _save(self) -> None:
        """Keep the records of the own islands for the next start, once there are any."""
        self._saved_seconds = trio.current_time()
        saved = self.directory.saved(self._engine.islands.carried, self._clock())
        if self._file is None or not saved:
            return
        try:
            record_cache.save(self._file, saved)
        except OSError as error:
            _LOG.warning("address records are not kept for the next start: %s", error)

    def _members(self) -> tuple[FoundPeer, ...]:
        return self.directory.members(self._engine.islands.carried, self._clock())

    def _to_ask(self) -> dict[str, PeerInfo]:
        """Return the peers that may be asked: those to which this node connected itself, or all if there are
        none.

        Otherwise attackers, which can connect in any number, would give most of the answers.
        """
        peers = {peer.peer_id: peer for peer in self._transport.peers() if peer.remote_host is not None}
        chosen = {each: peer for each, peer in peers.items() if peer.direction is Direction.OUTBOUND}
        return chosen or peers

    def _is_of(self, message: bytes, peer_id: str) -> bool:
        """Whether a record is the peer's own: for another node's record the peer would need no key of its
        own."""
        record = parse_record(message, self._engine.manifest.swarm_id)
        return record is not None and peer_id_from_key(record.node) == peer_id

    def _vouches(self, account: Account) -> bool:
        manifest = self._engine.manifest
        epoch = present_epoch(manifest, self._clock())
        return self._ratings.vouches_for(account, epoch)

    def _is_divided(self) -> bool:
        islands = self._engine.islands
        return any(islands.count(epoch) not in (None, 1) for epoch in islands.epochs_at(self._clock()))

    def _lacking(self, members: Iterable[FoundPeer]) -> frozenset[int]:
        """Return the islands of which this node has not dialled its number of members.

        Members that connected themselves are not counted, as in `SoughtPeers`.
        """
        carried = self._engine.islands.carried
        chosen = {peer.peer_id for peer in self._transport.peers() if peer.direction is Direction.OUTBOUND}
        counts = Counter(island for each in members if each.peer_id in chosen for island in each.islands)
        wanted = wanted_on_each(len(carried), DialLimits())
        return frozenset(island for island in carried if counts[island] < wanted)

    def _own_record(self, host: str) -> bytes | None:
        """Return the own record for a peer at an IP address; None if the peer could not use the addresses.

        It includes the addresses at which peers have reached this node, which may listen on all interfaces,
        or behind a router that forwards a port.
        """
        known = (*self._transport.addresses, *self._transport.reached_at())
        told = widest(dict.fromkeys(_specified(known)))
        if not told or not all(address.means_the_same(host) for address in told):
            return None
        return self._own_certificate.record(tuple(map(str, told[:MAX_RECORD_ADDRESSES])))


def _source(peer: PeerInfo) -> RecordSource:
    return RecordSource(peer.peer_id, peer.remote_host or "", peer.direction is Direction.OUTBOUND)


def _specified(texts: Iterable[str]) -> tuple[PeerAddress, ...]:
    """Return the addresses that are not unspecified (such as 0.0.0.0)."""
    parsed = (parse_address(text) for text in texts)
    return tuple(address for address in parsed if address is not None and not address.unspecified)


def widest(addresses: Iterable[PeerAddress]) -> tuple[PeerAddress, ...]:
    """Return the addresses of the widest scope among them, in which the record may be forwarded."""
    listed = tuple(addresses)
    scope = max((scope_of(address.host) for address in listed), default=None)
    return tuple(address for address in listed if scope_of(address.host) == scope)
