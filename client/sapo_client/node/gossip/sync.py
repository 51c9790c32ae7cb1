"""Requests to each new peer for what this node may have missed: certificates, proofs, contributions.

The protocols are used in a fixed order, because without the certificates nothing else can be admitted. A peer
that does not answer, or not correctly, is asked again after a growing pause, since it may just be starting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport, TransportError, Validator
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.identifiers import NodeId
from sapo_protocol.requests import MAX_WANTED, parse_response, to_request, to_response

MAX_ANSWER_BYTES: Final = 1024 * 1024

_LOOK_SECONDS: Final = 1.0

_LONGEST_PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True)
class _Request:
    """State of one request protocol with one connected peer.

    Attributes:
        due_seconds: when it may be asked again, on trio's clock.
    """

    answered: bool = False
    failures: int = 0
    due_seconds: float = 0.0

    def postpone(self) -> None:
        """Set the next attempt; the pause grows with every failure."""
        self.due_seconds = trio.current_time() + min(_LONGEST_PAUSE_SECONDS, 2.0**self.failures)
        self.failures += 1


class PeerSync:
    """Service that sends every peer one request on every protocol.

    Args:
        validators: by protocol, in the order of the requests; each is called with the messages of a response.
        is_of: whether a message is a certificate of one of some nodes, or not a certificate.
        introduced: called with the id of each peer that has answered on the first protocol.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        telemetry: Telemetry,
        validators: Mapping[str, Validator],
        is_of: Callable[[bytes, Collection[NodeId]], bool],
        introduced: Callable[[str], None],
    ) -> None:
        self._introduced = introduced
        self._is_of = is_of
        self._transport = transport
        self._telemetry = telemetry
        self._validators = dict(validators)
        self._first = next(iter(self._validators))
        self._requests: dict[str, dict[str, _Request]] = {}
        self._wanted: dict[str, dict[NodeId, None]] = {}
        self._busy: set[str] = set()

    def add(self, protocol: str, validator: Validator) -> None:
        """Send every peer, also those already connected, a request on an additional protocol."""
        self._validators[protocol] = validator

    def repeat(self, protocol: str) -> None:
        """Send every peer a request on a protocol once more."""
        for requests in self._requests.values():
            requests[protocol] = _Request()

    def repeat_all(self) -> None:
        """Send every peer a request on every protocol once more."""
        for protocol in self._validators:
            self.repeat(protocol)

    def ask_for(self, node: NodeId, peer_id: str) -> None:
        """Ask a peer soon for the certificate of a node, of which the peer has forwarded a message."""
        wanted = self._wanted.setdefault(peer_id, {})
        if len(wanted) < MAX_WANTED:
            wanted[node] = None

    def has_come(self, node: NodeId) -> None:
        """Stop asking for the certificate of a node, which has arrived."""
        for wanted in self._wanted.values():
            wanted.pop(node, None)

    async def fetch_certificates(self, peer_id: str, nodes: Sequence[NodeId]) -> None:
        """Request the certificates of at most ``MAX_WANTED`` nodes from a peer now, and validate them."""
        try:
            await self._fetch(peer_id, self._first, nodes)
        except (TransportError, RemoteProtocolError) as error:
            self._telemetry.events.write("introduction_failed", peer_id=peer_id, detail=str(error))

    async def run(self) -> None:
        """Ask new peers until cancelled; may be run again after that."""
        async with trio.open_nursery() as nursery:  # a peer that does not answer delays no other one
            while True:
                present = {peer.peer_id for peer in self._transport.peers()}
                self._note_changes(present)
                for peer_id in sorted(present - self._busy):
                    nursery.start_soon(self._ask_alone, peer_id, tuple(self._wanted.pop(peer_id, ())))
                self._wanted = {each: wanted for each, wanted in self._wanted.items() if each in present}
                await trio.sleep(_LOOK_SECONDS)

    async def _ask_alone(self, peer_id: str, wanted: Sequence[NodeId]) -> None:
        """Ask a peer, at most once at a time."""
        self._busy.add(peer_id)
        try:
            await self._ask(peer_id, wanted)
        finally:
            self._busy.discard(peer_id)

    def _note_changes(self, present: set[str]) -> None:
        for peer_id in sorted(self._requests.keys() - present):
            requests = self._requests.pop(peer_id)
            if requests[self._first].answered:
                self._telemetry.events.write("peer_lost", peer_id=peer_id)
        self._telemetry.metrics.peers(len(present))

    async def _ask(self, peer_id: str, wanted: Sequence[NodeId]) -> None:
        """Send a peer the requests that it has not answered yet, in order, and ask for the wanted
        certificates."""
        requests = self._requests.setdefault(peer_id, defaultdict(_Request))
        for protocol in tuple(self._validators):
            request = requests[protocol]
            must_ask = bool(wanted) and protocol == self._first
            if request.answered and not must_ask:
                continue
            if trio.current_time() < request.due_seconds and not must_ask:
                return
            try:
                await self._fetch(peer_id, protocol, wanted if request.answered else ())
            except (TransportError, RemoteProtocolError) as error:
                request.postpone()
                self._telemetry.events.write("introduction_failed", peer_id=peer_id, detail=str(error))
                return
            if protocol == self._first and not request.answered:
                self._telemetry.events.write("peer_connected", peer_id=peer_id)
                self._introduced(peer_id)
            request.answered = True

    async def _fetch(self, peer_id: str, protocol: str, wanted: Sequence[NodeId]) -> None:
        """Request a peer's messages and validate them, up to the first REJECT.

        Certificates of nodes other than the requested ones are dropped without validation.

        Raises:
            TransportError: it does not answer, or a message is a REJECT.
            RemoteProtocolError: its answer is malformed.
        """
        asked = to_request(wanted) if wanted else b""
        answer = await self._transport.request(peer_id, protocol, asked, max_response_bytes=MAX_ANSWER_BYTES)
        for message in parse_response(answer):
            if wanted and not self._is_of(message, wanted):
                continue
            if self._validators[protocol](message, peer_id) is Verdict.REJECT:
                raise TransportError("it forwards a message that every node refuses")
            await trio.lowlevel.checkpoint()  # validating a full answer takes a second or more


def bounded_response(messages: tuple[bytes, ...]) -> bytes:
    """Return a response with as many of the newest messages as fit an answer."""
    room = MAX_ANSWER_BYTES - 1024  # for the framing
    kept: list[bytes] = []
    for message in reversed(messages):
        room -= len(message) + 5  # its CBOR head
        if room < 0:
            break
        kept.append(message)
    return to_response(tuple(reversed(kept)))
