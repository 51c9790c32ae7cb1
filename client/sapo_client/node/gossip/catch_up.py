"""Catch-up of a node that was away: ids from every peer, then each missing rollout from one of them.

A list only decides what is fetched. Fetched rollouts are validated like gossip, with the same penalties for
the peer that sent them. A peer whose answers are useless is not asked any more while it is connected; it has
no other penalty, since useless answers do not prove a fault. Neither do rollouts that are of no use here, but
whoever sends many more of those than of others is not asked for more, and has its turn after all others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.gossip.arrival_turns import ArrivalTurns
from sapo_client.node.gossip.fetch_plan import PATIENCE_SECONDS, FetchPlan
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.rate_limit import MIN_SLEEP_SECONDS, TokenBucket
from sapo_client.swarm.transport import Transport, TransportError
from sapo_protocol.constants import CLOCK_SLACK_SECONDS, EPOCH_WINDOW
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.identifiers import ContentId, NodeId
from sapo_protocol.islands.catch_up import (
    BUSY_SECONDS,
    MAX_FETCH_BYTES,
    MAX_FETCHED,
    MAX_LISTING_BYTES,
    CatchUpStatus,
    IdPage,
    IdRequest,
    parse_fetched,
    parse_id_page,
    to_fetch_request,
)
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.rules import Rule
from sapo_protocol.topics import rollout_ids_protocol, rollouts_protocol
from sapo_verification.admission.arrivals import Received
from sapo_verification.engine import Engine

MAX_FAULTS: Final = 3
"""Useless answers after which a peer is not asked any more."""

MAX_USELESS: Final = 256
"""Rollouts of no use that a peer may send beyond those that were accepted: eight requests of them. Honest
ones are such whose certificate, bond or island this node does not know yet."""

MAX_BUSY: Final = 60
"""Answers `BUSY` without an accepted rollout between them after which a peer is not asked any more: five
minutes of them."""

MAX_PAGES: Final = 64
"""Pages of one peer and epoch: 65,536 rollouts, far more than an island has."""

ASKED_OF_PEER: Final = Rate(per_second=2, burst=8)
"""Rate of requests to a peer; a peer accepts five per second, twenty at once, from all services together."""

ARRIVALS: Final = TransportLimits().messages
"""Rate of rollouts of all peers together: as much as one connection may deliver by gossip."""

MAX_DECIDED: Final = 16_384
"""Fetched rollouts remembered as refused, so that they are not fetched from the next peer again."""

_OF_ONE_COPY: Final = frozenset({Rule.ENVELOPE_RESERVED, Rule.KIND_RESERVED, Rule.AUTHOR_INTRODUCED})
"""Rules that one copy may break and another not: the author's certificate may come from another peer."""

_LOOK_SECONDS: Final = 0.5

Receive = Callable[[bytes, str], Received]
"""Validates a rollout from the peer with an id."""

AskForCertificates = Callable[[str, Sequence[NodeId]], Awaitable[None]]
"""Asks a peer for the certificates of some nodes, and validates them."""


class _EndedError(Exception):
    """A peer is not asked any more."""


@dataclass(slots=True)
class _Talk:
    """The state of catching up from one peer.

    Attributes:
        asked: rate limit of the requests to it.
        listed: number of rollouts in its lists that were missing here.
        brought: number of them that it sent and that were accepted.
        useless: number of them that it sent for nothing; all of a request of which none was accepted.
    """

    peer_id: str
    asked: TokenBucket
    faults: int = 0
    busy: int = 0
    listed: int = 0
    brought: int = 0
    useless: int = 0

    def use(self) -> int:
        """Return of how much use the peer has been: rollouts that were accepted less those for nothing."""
        return self.brought - self.useless


class CatchUp:
    """Service that asks each peer, once its certificates are known, for the rollouts that this node
    missed."""

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        telemetry: Telemetry,
        clock: Clock,
        receive: Receive,
        ask_for_certificates: AskForCertificates,
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._telemetry = telemetry
        self._clock = clock
        self._receive = receive
        self._ask_for_certificates = ask_for_certificates
        self._plan = FetchPlan()
        self._due: dict[str, None] = {}
        self._talking: set[str] = set()
        self._ended: set[str] = set()
        self._useless: set[str] = set()
        self._decided: dict[ContentId, None] = {}
        self._progress = trio.Event()

    def begin(self, peer_id: str) -> None:
        """Start to catch up from a peer, whose certificates are known by now."""
        self._due[peer_id] = None

    def reconsider(self) -> None:
        """Fetch refused rollouts again, which may be accepted now."""
        self._decided.clear()
        self._ended -= self._useless
        self._useless.clear()

    async def run(self) -> None:
        """Ask peers until cancelled; may be run again after that."""
        self._arrivals = ArrivalTurns(ARRIVALS)
        self._talking.clear()
        async with trio.open_nursery() as nursery:
            while True:
                present = {peer.peer_id for peer in self._transport.peers()}
                self._ended &= present
                self._useless &= present
                self._due = {peer_id: None for peer_id in self._due if peer_id in present}
                for peer_id in [each for each in self._due if each not in self._talking]:
                    del self._due[peer_id]
                    if peer_id not in self._ended:
                        self._talking.add(peer_id)
                        nursery.start_soon(self._talk_with, peer_id)
                await trio.sleep(_LOOK_SECONDS)

    async def _talk_with(self, peer_id: str) -> None:
        talk = _Talk(peer_id, TokenBucket(ASKED_OF_PEER, trio.current_time()))
        try:
            for epoch in self._timely_epochs():
                await self._catch_up_on(epoch, talk)
        except _EndedError:
            self._ended.add(peer_id)
        except trio.Cancelled:
            self.begin(peer_id)  # when the service runs again
            raise
        finally:
            self._plan.forget(peer_id)
            self._tell_progress()
            self._talking.discard(peer_id)
        if talk.listed:
            self._telemetry.events.write(
                "caught_up",
                peer_id=peer_id,
                listed=talk.listed,
                brought=talk.brought,
                faults=talk.faults,
            )

    def _timely_epochs(self) -> range:
        """Return the epochs whose rollouts are accepted now, oldest first since they expire first."""
        now_seconds = self._clock()
        last = self._engine.epoch(now_seconds)
        return range(max(0, self._engine.epoch(now_seconds - CLOCK_SLACK_SECONDS) - EPOCH_WINDOW), last + 1)

    async def _catch_up_on(self, epoch: int, talk: _Talk) -> None:
        """Fetch the rollouts that a peer lists of an epoch, page by page."""
        after: ContentId | None = None
        for _ in range(MAX_PAGES):
            page = await self._page(epoch, after, talk)
            new = (each for each in page.ids if not self._is_decided(each))
            lacking = self._engine.envelopes.lacking(new)
            talk.listed += len(lacking)
            self._plan.add(talk.peer_id, lacking)
            await self._fetch_listed(epoch, talk)
            if page.next is None:
                return
            after = page.next

    def _is_decided(self, content_id: ContentId) -> bool:
        """Whether a rollout was decided: it was refused, or admitted and then dropped because the space was
        full."""
        return content_id in self._decided or self._engine.admission.has_seen(content_id)

    async def _page(self, epoch: int, after: ContentId | None, talk: _Talk) -> IdPage:
        islands = self._engine.islands
        request = IdRequest(epoch, islands.rollouts if islands.is_divided else frozenset(), after).to_bytes()
        protocol = rollout_ids_protocol(self._engine.manifest.swarm_id)
        while True:
            answer = await self._ask(protocol, request, MAX_LISTING_BYTES, talk)
            page = None if answer is None else parse_id_page(answer, after)
            if page is not None and page.status is CatchUpStatus.GIVEN:
                return page
            await trio.sleep(self._after(None if page is None else page.status, talk))

    async def _fetch_listed(self, epoch: int, talk: _Talk) -> None:
        """Wait until none of the rollouts that the peer lists is missing, fetching them from it or from
        others; give up what is missing when the epoch is not accepted any more."""
        while self._plan.has(talk.peer_id):
            if epoch not in self._timely_epochs():
                self._plan.forget(talk.peer_id)
                return
            if not self._plan.has_free(talk.peer_id, trio.current_time()):
                with trio.move_on_after(PATIENCE_SECONDS):
                    await self._progress.wait()
                continue
            await self._wait(talk)
            await self._arrivals.take(MAX_FETCHED, talk.use())
            ids = self._plan.take(talk.peer_id, trio.current_time())  # not before: others may fetch them
            arrived = 0
            try:
                arrived, pause_seconds = await self._fetch(ids, talk)
            finally:
                self._arrivals.give_back(MAX_FETCHED - arrived)
                self._plan.release(talk.peer_id, ids)
                self._tell_progress()
            await trio.sleep(pause_seconds)

    async def _fetch(self, ids: Sequence[ContentId], talk: _Talk) -> tuple[int, float]:
        """Fetch rollouts from a peer; return how many came, and the seconds until it may be asked again."""
        lacking = self._engine.envelopes.lacking(ids)
        for content_id in ids:
            if content_id not in lacking:  # it came by gossip meanwhile
                self._plan.decided(content_id)
        if not lacking:
            return 0, 0.0
        protocol = rollouts_protocol(self._engine.manifest.swarm_id)
        answer = await self._ask(protocol, to_fetch_request(lacking), MAX_FETCH_BYTES, talk)
        fetched = None if answer is None else parse_fetched(answer, len(lacking))
        if fetched is None or fetched.status is not CatchUpStatus.GIVEN:
            return 0, self._after(None if fetched is None else fetched.status, talk)
        given = dict(zip(lacking, fetched.messages, strict=False))
        brought, useless = talk.brought, talk.useless
        is_as_listed = await self._take(given, talk)
        if talk.brought == brought and talk.useless > useless:
            talk.useless = useless + len(lacking)
        if talk.use() < -MAX_USELESS:
            self._useless.add(talk.peer_id)
            raise _EndedError
        arrived = sum(message is not None for message in fetched.messages)
        return arrived, 0.0 if is_as_listed else self._after(None, talk)

    async def _take(self, messages: dict[ContentId, bytes | None], talk: _Talk) -> bool:
        """Validate what a peer sent for some ids; return whether all messages could be the requested ones."""
        sent = [message for message in messages.values() if message is not None]
        if unknown := self._unknown_authors(sent):
            await self._ask_for_certificates(talk.peer_id, unknown)
        is_as_listed = True
        for content_id, message in messages.items():
            await trio.lowlevel.checkpoint()
            if content_id not in self._plan:  # it came from another peer meanwhile
                continue
            received = None if message is None else self._receive_if(message, content_id, talk)
            self._decide(content_id, received, talk)
            if received is None or received.verdict is Verdict.REJECT:
                is_as_listed = False
                if not self._is_present(talk.peer_id):  # the transport has disconnected it for that
                    break
        return is_as_listed

    def _unknown_authors(self, messages: Iterable[bytes]) -> tuple[NodeId, ...]:
        """Return the authors of rollouts whose certificates are missing here; the peer that admitted them has
        these."""
        found: dict[NodeId, None] = {}
        for message in messages:
            with suppress(RemoteProtocolError):  # refused below
                envelope = parse_envelope(message, self._engine.manifest.swarm_id)
                node = parse_rollout(open_payload(envelope, Kind.ROLLOUT)).node
                if not self._engine.certificates.accounts_of(node):
                    found[node] = None
        return tuple(found)

    def _receive_if(self, message: bytes, wanted: ContentId, talk: _Talk) -> Received | None:
        """Validate a message; a well-formed message that was not requested is dropped."""
        try:
            if parse_envelope(message, self._engine.manifest.swarm_id).content_id != wanted:
                return None
        except RemoteProtocolError:  # the decision includes the penalties
            pass
        received = self._receive(message, talk.peer_id)
        if received.verdict is Verdict.REJECT:
            self._transport.blame(talk.peer_id)
        return received

    def _decide(self, content_id: ContentId, received: Received | None, talk: _Talk) -> None:
        """Mark a rollout as decided, or as missing at this peer if another copy of it could be accepted.

        The id covers all but the signature and the reserved fields of an envelope. If these are not at fault,
        the decision is the same for every copy.
        """
        if received is not None and received.verdict is Verdict.ACCEPT:
            talk.brought += 1
            talk.busy = 0
        elif received is not None and received.rule is not Rule.ROLLOUT_NEW:  # it came by gossip meanwhile
            talk.useless += 1
        if received is None or received.verdict is Verdict.REJECT or received.rule in _OF_ONE_COPY:
            self._plan.missed(talk.peer_id, content_id)
            return
        self._plan.decided(content_id)
        if received.verdict is Verdict.ACCEPT:
            return
        self._decided[content_id] = None
        if len(self._decided) > MAX_DECIDED:
            del self._decided[next(iter(self._decided))]

    async def _ask(self, protocol: str, request: bytes, max_bytes: int, talk: _Talk) -> bytes | None:
        """Return a peer's answer to a request within its rate limit, or None if there is no answer."""
        await self._wait(talk)
        talk.asked.spend(1, trio.current_time())
        try:
            return await self._transport.request(
                talk.peer_id, protocol, request, max_response_bytes=max_bytes
            )
        except TransportError:
            return None  # it does not serve this protocol, is slow, or just left

    async def _wait(self, talk: _Talk) -> None:
        """Wait until the rate limit of requests to the peer allows one."""
        while (pause := talk.asked.seconds_until(1, trio.current_time())) > 0:
            await trio.sleep(max(pause, MIN_SLEEP_SECONDS))

    def _after(self, status: CatchUpStatus | None, talk: _Talk) -> float:
        """Return the seconds until a peer may be asked again after a useless answer; more after each.

        Args:
            status: of its answer; None if the answer was late, malformed, wrong or incomplete.

        Raises:
            _EndedError: it is not asked any more.
        """
        if status is CatchUpStatus.BUSY and talk.busy < MAX_BUSY:
            talk.busy += 1
            return BUSY_SECONDS
        talk.faults += 1
        if status is not None or talk.faults >= MAX_FAULTS or not self._is_present(talk.peer_id):
            raise _EndedError
        return 2.0**talk.faults

    def _is_present(self, peer_id: str) -> bool:
        return any(peer.peer_id == peer_id for peer in self._transport.peers())

    def _tell_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()
