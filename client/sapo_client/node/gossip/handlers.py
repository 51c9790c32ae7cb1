"""Handlers of gossip topics and request protocols: validate with the engine, send certificates, answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.publisher import Publisher
from sapo_client.node.gossip.sync import PeerSync, bounded_response
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.transport import Transport
from sapo_protocol.errors import Reason, Verdict
from sapo_protocol.identifiers import Account
from sapo_protocol.topics import (
    catch_up_protocol,
    certificates_protocol,
    certificates_topic,
    contributions_protocol,
    contributions_topic,
    equivocations_protocol,
    equivocations_topic,
    rollouts_topic,
)
from sapo_verification.admission.certificates import MAX_CERTIFICATES
from sapo_verification.engine import Engine, Received
from sapo_verification.types import AdmittedRollout

_REPEAT_SECONDS: Final = 60.0
"""The own certificate is repeated, because nodes beyond the direct peers may have joined."""


class GossipHandlers:
    """Connection of the transport's topics and protocols to the engine; keeps no trust state of its own."""

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        own_certificate: OwnCertificate,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._swarm_id = swarm_id = engine.manifest.swarm_id
        self._certificates = certificates_topic(swarm_id)
        self._rollouts = rollouts_topic(swarm_id)
        self._equivocations = equivocations_topic(swarm_id)
        self._contributions = contributions_topic(swarm_id)
        self._transport = transport
        self._own_certificate = own_certificate
        self._clock = clock
        self._publisher = Publisher(swarm_id=swarm_id, transport=transport, telemetry=telemetry)
        self._sync = PeerSync(
            transport=transport,
            telemetry=telemetry,
            validators={
                certificates_protocol(swarm_id): self.validate_certificate,
                catch_up_protocol(swarm_id): self.validate_past_rollout,
                equivocations_protocol(swarm_id): self.validate_proof,
            },
        )
        self._located: set[Account] = set()
        self._subscribed: set[str] = set()

    async def run(self) -> None:
        """Validate, answer requests and send the own certificate until cancelled; may be run again."""
        engine, swarm_id = self._engine, self._swarm_id
        self._admit_own_certificate()
        self._serve(certificates_protocol(swarm_id), engine.certificates.envelopes)
        self._serve(catch_up_protocol(swarm_id), engine.recent)
        self._serve(equivocations_protocol(swarm_id), engine.proofs.messages)
        self._subscribe(self._certificates, self.validate_certificate)
        self._subscribe(self._rollouts, self.validate_rollout)
        self._subscribe(self._equivocations, self.validate_proof)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._publisher.run)
            nursery.start_soon(self._sync.run)
            nursery.start_soon(self._repeat_certificate)

    def open_contributions(self, recent: Callable[[], tuple[bytes, ...]]) -> None:
        """Take part in the exchange of contributions; the engine must know the auditors by now.

        Args:
            recent: returns the contributions that a new peer is sent.
        """
        self._serve(contributions_protocol(self._swarm_id), recent)
        self._sync.add(contributions_protocol(self._swarm_id), self.validate_contribution)
        self._subscribe(self._contributions, self.validate_contribution)

    def ask_for_contributions(self) -> None:
        """Ask all peers for their contributions again: one that the chain names is missing here."""
        self._sync.repeat(contributions_protocol(self._swarm_id))

    async def publish(self, admitted: AdmittedRollout) -> None:
        """Send an own rollout that the engine has admitted."""
        await self._publisher.publish(admitted)

    @property
    def peer_count(self) -> int:
        """The number of connected peers."""
        return len(self._transport.peers())

    def validate_certificate(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on a certificate."""
        return self._receive(self._certificates, message, forwarder).verdict

    def validate_proof(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on a proof of equivocation."""
        return self._receive(self._equivocations, message, forwarder).verdict

    def validate_contribution(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on a tally, proposal or approval."""
        return self._receive(self._contributions, message, forwarder).verdict

    def validate_rollout(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on a rollout that came by gossip."""
        received = self._receive(self._rollouts, message, forwarder)
        if received.rule is not None and received.rule.reason is Reason.CERTIFICATE_UNKNOWN:
            self._sync.ask_again(forwarder)
        return received.verdict

    def validate_past_rollout(self, message: bytes, forwarder: str) -> Verdict:
        """Return the verdict on an older rollout that a peer sent for catch-up."""
        return self._receive(self._rollouts, message, forwarder, live=False).verdict

    def _receive(self, topic: str, message: bytes, forwarder: str, *, live: bool = True) -> Received:
        received = self._engine.receive(topic, message, self._clock(), source=forwarder, live=live)
        if received.proof is not None:
            self._publisher.queue_proof(received.proof)
        if isinstance(received.admitted, AdmittedRollout):
            self._learn_origin(received.admitted, forwarder)
        return received

    def _learn_origin(self, admitted: AdmittedRollout, forwarder: str) -> None:
        """Record an author's network, once per run, if its own node sent its rollout."""
        account = admitted.account
        if account == self._engine.own or account in self._located:
            return
        if forwarder != peer_id_from_key(admitted.rollout.node):
            return
        if len(self._located) >= MAX_CERTIFICATES:  # accounts cost nothing to create: forget, and look again
            self._located.clear()
        self._located.add(account)
        for peer in self._transport.peers():
            if peer.peer_id == forwarder and peer.remote_host is not None:
                self._engine.learn_origin(account, peer.remote_host)

    def _serve(self, protocol: str, messages: Callable[[], tuple[bytes, ...]]) -> None:
        """Answer requests with the newest messages that fit."""

        async def answer(peer_id: str, request: bytes) -> bytes:
            return bounded_response(messages())

        self._transport.serve(protocol, answer)

    def _subscribe(self, topic: str, validator: Callable[[bytes, str], Verdict]) -> None:
        if topic not in self._subscribed:  # a topic has one validator, also after this service's restart
            self._subscribed.add(topic)
            self._transport.subscribe(topic, validator)

    async def _repeat_certificate(self) -> None:
        while True:
            await self._transport.publish(self._certificates, self._admit_own_certificate())
            await trio.sleep(_REPEAT_SECONDS)

    def _admit_own_certificate(self) -> bytes:
        """Admit the own certificate here, for own rollouts are admitted like any other, and return it."""
        message = self._own_certificate.message()
        self.validate_certificate(message, self._transport.peer_id)
        return message
