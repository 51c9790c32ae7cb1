"""The proof of an equivocation: two contents that one account signed for one slot.

It needs no signature of its own: only the account's nodes can sign the two contents.
The two envelopes stand in the order of their content ids and nothing says who found them, so one pair of
messages has exactly one proof.
Two signatures over one content are no equivocation: they have one content id.
"""

from dataclasses import dataclass

from sapo_protocol.constants import PROOF_EPOCHS
from sapo_protocol.decoding import Fields, Schema
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import (
    NO_SIGNATURE,
    Kind,
    SignedEnvelope,
    enclose,
    open_payload,
    parse_envelope,
)
from sapo_protocol.epochs import epoch_start_seconds, require_begun
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import Account, SwarmId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout, parse_rollout
from sapo_protocol.rules import Rule

_SCHEMA = Schema(Rule.PROOF_KEYS, Rule.PROOF_TYPES, Rule.PROOF_RESERVED, required=2)

Place = tuple[int, Account, int]
"""Epoch, account and slot, for which an honest account signs one content."""


@dataclass(frozen=True, slots=True)
class EquivocationProof:
    """Two well-formed rollouts for one slot, by ascending content id; signatures not yet checked."""

    envelopes: tuple[SignedEnvelope, SignedEnvelope]
    rollouts: tuple[Rollout, Rollout]

    @property
    def place(self) -> Place:
        """Return the epoch, account and slot of the two contents."""
        return place_of(self.rollouts[0])

    @property
    def account(self) -> Account:
        """Return the account that owns the slot."""
        return self.rollouts[0].account

    def require_signatures(self) -> None:
        """Raise unless each rollout is signed by the node that it names (stage 7).

        Raises:
            RemoteProtocolError: ``BAD_SIGNATURE``.
        """
        for envelope, rollout in zip(self.envelopes, self.rollouts, strict=True):
            if not envelope.is_signed_by(rollout.node):
                raise RemoteProtocolError(Rule.PROOF_CONTENTS_SIGNED, "one of the two contents is forged")

    def to_envelope(self) -> SignedEnvelope:
        """Return the envelope that carries the proof.

        Raises:
            LocalProtocolError: the two do not fit into one message.
        """
        first, second = self.envelopes
        payload = encode({0: first.to_bytes(), 1: second.to_bytes()})
        return enclose(Kind.EQUIVOCATION, first.swarm_id, payload)


def place_of(rollout: Rollout) -> Place:
    """Return the epoch, account and slot of a rollout."""
    return rollout.epoch, rollout.account, rollout.slot


def prove_equivocation(one: bytes, other: bytes, swarm_id: SwarmId) -> EquivocationProof:
    """Return the proof that two messages make together, in whatever order they are given.

    Raises:
        LocalProtocolError: they prove nothing.
    """
    try:
        envelopes = [parse_envelope(data, swarm_id) for data in (one, other)]
        first, second = sorted(envelopes, key=lambda envelope: envelope.content_id)
        return _proof(first, second)
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"these two messages prove nothing: {error.detail}") from error


def open_proof(envelope: SignedEnvelope) -> EquivocationProof:
    """Return the proof in an envelope (stages 1, 2 and 6: closed schema, bounds, one place).

    Raises:
        RemoteProtocolError: a parsing reason; ``OUT_OF_BOUNDS`` where the two are one content, out of order
            or of different places; ``BAD_SIGNATURE`` where the proof itself is signed.
    """
    proof = _proof(*_contents(envelope))
    if envelope.signature != NO_SIGNATURE:
        raise RemoteProtocolError(Rule.PROOF_UNSIGNED, "a proof carries no signature of its own")
    return proof


def require_timely(proof: EquivocationProof, manifest: Manifest, now_seconds: float) -> None:
    """Raise unless the proof is accepted at this moment (stage 3).

    Raises:
        RemoteProtocolError: ``EPOCH_FUTURE`` or ``EPOCH_PAST``.
    """
    epoch = proof.rollouts[0].epoch
    require_begun(manifest, epoch, now_seconds)
    if now_seconds >= epoch_start_seconds(manifest, epoch + 1 + PROOF_EPOCHS):
        raise RemoteProtocolError(
            Rule.PROOF_IN_TIME, f"an equivocation of epoch {epoch} no longer has consequences"
        )


def _contents(envelope: SignedEnvelope) -> tuple[SignedEnvelope, SignedEnvelope]:
    """Return the two messages in a proof; their bytes are released before their payloads are parsed."""
    fields = Fields(open_payload(envelope, Kind.EQUIVOCATION), _SCHEMA)
    inner = [fields.data(key) for key in range(2)]
    fields.require_end()
    first, second = (parse_envelope(data, envelope.swarm_id) for data in inner)
    return first, second


def _proof(first: SignedEnvelope, second: SignedEnvelope) -> EquivocationProof:
    rollouts = tuple(
        parse_rollout(open_payload(envelope, Kind.ROLLOUT, Rule.PROOF_KIND)) for envelope in (first, second)
    )
    if first.content_id >= second.content_id:
        raise RemoteProtocolError(Rule.PROOF_ORDER, "the two contents are one, or out of order")
    if place_of(rollouts[0]) != place_of(rollouts[1]):
        raise RemoteProtocolError(Rule.PROOF_PLACE, "the two contents are of different slots")
    return EquivocationProof((first, second), (rollouts[0], rollouts[1]))
