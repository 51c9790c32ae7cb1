"""Exchange of pages: those that tallies and posted proposals name are fetched from peers, and served to them.

A page is named by its digest, so it does not matter who sends it. A page that nobody has is asked for again
and again, of one peer after the other, as long as its message is remembered; it delays no other page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import trio

from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.node.runtime.clock import Clock
from sapo_client.swarm.transport import Transport, TransportError
from sapo_protocol.constants import MAX_REQUESTED_PAGES
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Digest, SwarmId
from sapo_protocol.requests import parse_page_request, parse_response, to_page_request
from sapo_protocol.topics import pages_protocol
from sapo_verification.admission.contribution_store import ContributionStore

_LOOK_SECONDS: Final = 1.0

_WANTED: Final = 2048
"""Pages that are asked for in a round: those of four auditors with half a million accounts."""


class PageExchange:
    """Service that completes this node's contributions with their pages.

    Args:
        uploads: bounds what a network may have of them. All pages that are here count as one full answer:
            how many they are follows from the accounts that auditors pay, and a newcomer needs them.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        uploads: ListUploads,
        contributions: ContributionStore,
        swarm_id: SwarmId,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._uploads = uploads
        self._contributions = contributions
        self._protocol = pages_protocol(swarm_id)
        self._clock = clock
        self._round = 0

    def serve(self) -> None:
        """Answer peers from now on."""

        async def answer(peer_id: str, request: bytes) -> bytes:
            pages = self._contributions.pages(parse_page_request(request))
            max_cost = MAX_ANSWER_BYTES / max(1, self._contributions.page_count())
            return self._uploads.response(peer_id, pages, max_cost=max_cost)

        self._transport.serve(self._protocol, answer)

    async def run(self) -> None:
        """Ask for missing pages until cancelled; may be run again after that."""
        while True:
            await self.look()
            await trio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Ask once for every missing page, in each round another peer."""
        missing = self._contributions.missing_pages(_WANTED)
        peers = [peer.peer_id for peer in self._transport.peers()]
        if not missing or not peers:
            return
        self._round += 1
        by_peer: dict[str, list[Sequence[Digest]]] = defaultdict(list)
        for number, begin in enumerate(range(0, len(missing), MAX_REQUESTED_PAGES)):
            peer_id = peers[(self._round + number) % len(peers)]
            by_peer[peer_id].append(missing[begin : begin + MAX_REQUESTED_PAGES])
        async with trio.open_nursery() as nursery:  # a peer that does not answer delays no other one
            for peer_id, requests in by_peer.items():
                nursery.start_soon(self._fetch, peer_id, requests)

    async def _fetch(self, peer_id: str, requests: Sequence[Sequence[Digest]]) -> None:
        """Request pages of a peer, as long as it answers; a failure is no reason to blame it."""
        for digests in requests:
            try:
                answer = await self._transport.request(
                    peer_id, self._protocol, to_page_request(digests), max_response_bytes=MAX_ANSWER_BYTES
                )
                pages = parse_response(answer)
            except (TransportError, RemoteProtocolError):
                return
            self._contributions.add_pages(pages, received_seconds=self._clock())
            await trio.lowlevel.checkpoint()
