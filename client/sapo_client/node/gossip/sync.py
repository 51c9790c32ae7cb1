"""Asks each new peer for what this node may have missed: certificates, recent rollouts, proofs.

Protocols are asked in a fixed order, for without the certificates nothing else is understood. A peer that
does not answer, or answers badly, is asked again after a pause that grows; it may only have been starting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport, TransportError, Validator
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.requests import parse_response, to_response

MAX_ANSWER_BYTES: Final = 1024 * 1024

_LOOK_SECONDS: Final = 1.0

_LONGEST_PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True)
class _Question:
    """One protocol on which one connected peer is asked.

    Attributes:
        due_seconds: when it may be asked again, on trio's clock.
    """

    answered: bool = False
    failures: int = 0
    due_seconds: float = 0.0

    def postpone(self) -> None:
        """Wait longer after every failure."""
        self.due_seconds = trio.current_time() + min(_LONGEST_PAUSE_SECONDS, 2.0**self.failures)
        self.failures += 1


class PeerSync:
    """Asks every peer once on every protocol.

    Args:
        validators: by protocol, in the order in which they are asked; each takes the messages of an answer.
    """

    def __init__(
        self, *, transport: Transport, telemetry: Telemetry, validators: Mapping[str, Validator]
    ) -> None:
        self._transport = transport
        self._telemetry = telemetry
        self._validators = dict(validators)
        self._first = next(iter(self._validators))
        self._questions: dict[str, dict[str, _Question]] = {}
        self._urgent: set[str] = set()

    def add(self, protocol: str, validator: Validator) -> None:
        """Ask every peer, also those that are here already, on one more protocol."""
        self._validators[protocol] = validator

    def ask_again(self, peer_id: str) -> None:
        """Ask a peer for certificates soon: it forwarded a message of an author that is unknown here."""
        self._urgent.add(peer_id)

    async def run(self) -> None:
        """Ask new peers until cancelled; may be run again after that."""
        while True:
            present = {peer.peer_id for peer in self._transport.peers()}
            self._note_changes(present)
            urgent, self._urgent = self._urgent, set()
            async with trio.open_nursery() as nursery:  # a silent peer delays no other one of its round
                for peer_id in sorted(present):
                    nursery.start_soon(self._meet, peer_id, peer_id in urgent)
            await trio.sleep(_LOOK_SECONDS)

    def _note_changes(self, present: set[str]) -> None:
        for peer_id in sorted(self._questions.keys() - present):
            questions = self._questions.pop(peer_id)
            if questions[self._first].answered:
                self._telemetry.events.write("peer_lost", peer_id=peer_id)
        self._telemetry.metrics.peers(len(present))

    async def _meet(self, peer_id: str, is_urgent: bool) -> None:
        """Ask a peer what it has not answered yet, in order, and for certificates if that is urgent."""
        questions = self._questions.setdefault(peer_id, defaultdict(_Question))
        for protocol in tuple(self._validators):
            question = questions[protocol]
            must_ask = is_urgent and protocol == self._first
            if question.answered and not must_ask:
                continue
            if trio.current_time() < question.due_seconds and not must_ask:
                return
            try:
                await self._learn(peer_id, protocol)
            except (TransportError, RemoteProtocolError) as error:
                question.postpone()
                self._telemetry.events.write("introduction_failed", peer_id=peer_id, detail=str(error))
                return
            if protocol == self._first and not question.answered:
                self._telemetry.events.write("peer_connected", peer_id=peer_id)
            question.answered = True

    async def _learn(self, peer_id: str, protocol: str) -> None:
        """Validate what a peer answers, up to the first message that no honest node forwards.

        Raises:
            TransportError: it does not answer, or forwards such a message.
            RemoteProtocolError: it does not answer in messages.
        """
        answer = await self._transport.request(peer_id, protocol, b"", max_response_bytes=MAX_ANSWER_BYTES)
        for message in parse_response(answer):
            if self._validators[protocol](message, peer_id) is Verdict.REJECT:
                raise TransportError("it forwards what every node refuses")
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
