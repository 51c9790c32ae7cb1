"""Requests to each new peer for what this node may have missed: certificates, proofs, contributions.

The protocols are used in a fixed order, because without the certificates nothing else can be admitted. A peer
that does not answer, or not correctly, is asked again after a growing pause, since it may just be starting.

Who forwards messages of unknown authors is asked for their certificates at once. Such messages cost nothing,
and an answer may have a megabyte: a peer whose answers are useless is asked for them after a growing pause as
well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
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

_MAX_PAUSE_SECONDS: Final = 30.0

_LONGEST_NAMED_PAUSE_SECONDS: Final = 64.0

MAX_OF_NODE: Final = 8
"""Certificates of one node that are validated of an answer; any number of accounts may certify its key."""


@dataclass(slots=True)
class _Request:
    """State of one request protocol with one connected peer.

    Attributes:
        due_seconds: when it may be asked again, on trio's clock.
    """

    answered: bool = False
    failures: int = 0
    due_seconds: float = 0.0

    def postpone(self, longest_seconds: float = _MAX_PAUSE_SECONDS) -> None:
        """Set the next attempt; the pause grows with every failure."""
        self.due_seconds = trio.current_time() + min(longest_seconds, 2.0 ** min(self.failures, 10))
        self.failures += 1


class PeerSync:
    """Service that sends every peer one request on every protocol.

    Args:
        validators: by protocol, in the order of the requests; each is called with the messages of a response.
        node_of: returns the node that a certificate names; None if a message is no certificate.
        introduced: called with the id of each peer that has answered on the first protocol.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        telemetry: Telemetry,
        validators: Mapping[str, Validator],
        node_of: Callable[[bytes], NodeId | None],
        introduced: Callable[[str], None],
    ) -> None:
        self._introduced = introduced
        self._node_of = node_of
        self._transport = transport
        self._telemetry = telemetry
        self._validators = dict(validators)
        self._first = next(iter(self._validators))
        self._requests: dict[str, dict[str, _Request]] = {}
        self._wanted: dict[str, dict[NodeId, None]] = {}
        self._named: dict[str, _Request] = {}
        self._missing: list[set[NodeId]] = []
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
        for missing in self._missing:
            missing.discard(node)

    async def fetch_certificates(self, peer_id: str, nodes: Sequence[NodeId]) -> None:
        """Request the certificates of at most ``MAX_WANTED`` nodes from a peer now, and validate them."""
        try:
            await self._fetch_named(peer_id, nodes)
        except (TransportError, RemoteProtocolError) as error:
            self._telemetry.events.write("introduction_failed", peer_id=peer_id, detail=str(error))

    async def run(self) -> None:
        """Ask new peers until cancelled; may be run again after that."""
        async with trio.open_nursery() as nursery:  # a peer that does not answer delays no other one
            while True:
                present = {peer.peer_id for peer in self._transport.peers()}
                self._note_changes(present)
                for peer_id in sorted(present - self._busy):
                    nursery.start_soon(self._ask_alone, peer_id, self._take_wanted(peer_id))
                self._wanted = {each: wanted for each, wanted in self._wanted.items() if each in present}
                await trio.sleep(_LOOK_SECONDS)

    def _take_wanted(self, peer_id: str) -> tuple[NodeId, ...]:
        """Return the nodes whose certificates a peer is asked for now; none while it is asked for none."""
        named = self._named.get(peer_id)
        if named is not None and trio.current_time() < named.due_seconds:
            return ()
        return tuple(self._wanted.pop(peer_id, ()))

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
        self._named = {peer_id: named for peer_id, named in self._named.items() if peer_id in present}
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
                if wanted and request.answered:
                    await self._fetch_named(peer_id, wanted)
                else:
                    await self._fetch(peer_id, protocol)
            except (TransportError, RemoteProtocolError) as error:
                request.postpone()
                self._telemetry.events.write("introduction_failed", peer_id=peer_id, detail=str(error))
                return
            if protocol == self._first and not request.answered:
                self._telemetry.events.write("peer_connected", peer_id=peer_id)
                self._introduced(peer_id)
            request.answered = True

    async def _fetch_named(self, peer_id: str, wanted: Sequence[NodeId]) -> None:
        """Request the certificates of some nodes.

        If none of them has come by the end, from whomever, or if the answer holds others, the next such
        request to this peer is made after a growing pause.

        Raises:
            TransportError: see ``_fetch``.
            RemoteProtocolError: see ``_fetch``.
        """
        named = self._named.setdefault(peer_id, _Request())
        named.postpone(_LONGEST_NAMED_PAUSE_SECONDS)
        missing = set(wanted)
        self._missing.append(missing)
        try:
            are_all_wanted = await self._fetch(peer_id, self._first, wanted)
        finally:
            self._missing = [each for each in self._missing if each is not missing]
        if are_all_wanted and len(missing) < len(wanted):
            self._named.pop(peer_id, None)

    async def _fetch(self, peer_id: str, protocol: str, wanted: Sequence[NodeId] = ()) -> bool:
        """Request a peer's messages and validate them, up to the first REJECT.

        Certificates of nodes other than the requested ones are dropped without validation.

        Returns:
            Whether none were dropped for that.

        Raises:
            TransportError: it does not answer, or a message is a REJECT.
            RemoteProtocolError: its answer is malformed.
        """
        answer = await self._transport.request(
            peer_id, protocol, to_request(wanted) if wanted else b"", max_response_bytes=MAX_ANSWER_BYTES
        )
        validated: Counter[NodeId] = Counter()
        for message in parse_response(answer):
            await trio.lowlevel.checkpoint()  # validating a full answer takes a second or more
            if wanted and (node := self._node_of(message)) is not None:
                validated[node] += 1
                if node not in wanted or validated[node] > MAX_OF_NODE:
                    continue
            if self._validators[protocol](message, peer_id) is Verdict.REJECT:
                raise TransportError("it forwards a message that every node refuses")
        return all(node in wanted for node in validated)


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
