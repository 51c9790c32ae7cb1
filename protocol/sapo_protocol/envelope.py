"""Signed envelopes: opaque payload bytes under one domain-separated signature.

The signature covers ``sapo/1/<kind>`` 0x00 swarm-id payload, the payload exactly as received,
so an object can be replayed in no other swarm, chain, version or role.
The content id is the SHA-256 of the same bytes.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from typing import Final

from sapo_protocol import ed25519
from sapo_protocol.constants import LAST_RESERVED, MAX_ENVELOPE_BYTES, PROTOCOL_VERSION
from sapo_protocol.decoding import Bound, Fields, Schema
from sapo_protocol.encoding import encode
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import ContentId, NodeId, SwarmId
from sapo_protocol.rules import Rule


class Kind(IntEnum):
    """The kind of a payload; part of the signed tag."""

    CERTIFICATE = 1
    ROLLOUT = 2
    TALLY = 3
    PROPOSAL = 4
    APPROVAL = 5
    EQUIVOCATION = 6
    COMMITMENT = 7
    """Accepted on the topic of commitments only; everywhere else the number counts as reserved, as in
    0.1.0."""

    @property
    def tag(self) -> bytes:
        """Return the ASCII domain tag."""
        return f"sapo/{PROTOCOL_VERSION}/{self.name.lower()}".encode()


_KINDS = {int(kind): kind for kind in Kind if kind is not Kind.COMMITMENT}
_TAGS = (b"", *(kind.tag + b"\x00" for kind in Kind))
"""By kind; a tuple, since a dictionary would call the hash of the enumeration, which is slow."""
_SCHEMA = Schema(Rule.ENVELOPE_KEYS, Rule.ENVELOPE_TYPES, Rule.ENVELOPE_RESERVED, required=5)
_SIGNATURE = Bound(Rule.ENVELOPE_SIGNATURE, minimum=ed25519.SIGNATURE_BYTES, maximum=ed25519.SIGNATURE_BYTES)
NO_SIGNATURE: Final = bytes(ed25519.SIGNATURE_BYTES)
"""Stands in place of a signature if the payload proves itself, so that one proof has exactly one message."""


@dataclass(frozen=True, slots=True)
class SignedEnvelope:
    """One message: well formed and of this swarm, its signature not yet checked."""

    kind: Kind
    swarm_id: SwarmId
    payload: bytes
    signature: bytes
    _content_id: ContentId | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def content_id(self) -> ContentId:
        """Return the digest of what is signed; two signatures over one content have one id."""
        if (known := self._content_id) is None:
            digest = sha256(_TAGS[self.kind] + self.swarm_id)
            digest.update(self.payload)  # two updates instead of one joined string: a payload may be large
            known = bytes.__new__(ContentId, digest.digest())  # of the right size: SHA-256's
            object.__setattr__(self, "_content_id", known)  # computed once, when it is first asked for
        return known

    def is_signed_by(self, node: NodeId) -> bool:
        """Whether the signature is the node's, under the strict rule of ``ed25519``."""
        return ed25519.verify_signed(
            node, b"".join((self.signature, _TAGS[self.kind], self.swarm_id, self.payload))
        )

    def to_bytes(self) -> bytes:
        """Return the bytes on the wire."""
        return encode(
            {
                0: PROTOCOL_VERSION,
                1: int(self.kind),
                2: bytes(self.swarm_id),
                3: self.payload,
                4: self.signature,
            }
        )


def signed_bytes(kind: Kind, swarm_id: SwarmId, payload: bytes) -> bytes:
    """Return the bytes under signature and content id."""
    return _TAGS[kind] + swarm_id + payload


def seal(kind: Kind, swarm_id: SwarmId, payload: bytes, seed: bytes) -> SignedEnvelope:
    """Return an envelope around a payload, signed with a node's secret seed.

    Raises:
        LocalProtocolError: the envelope would be larger than the wire allows.
    """
    signature = ed25519.sign(seed, signed_bytes(kind, swarm_id, payload))
    return _fitting(SignedEnvelope(kind, swarm_id, payload, signature))


def enclose(kind: Kind, swarm_id: SwarmId, payload: bytes) -> SignedEnvelope:
    """Return an envelope without a signature, around a payload that proves itself.

    Raises:
        LocalProtocolError: the envelope would be larger than the wire allows.
    """
    return _fitting(SignedEnvelope(kind, swarm_id, payload, NO_SIGNATURE))


def parse_envelope(data: bytes, swarm_id: SwarmId, *, also: Kind | None = None) -> SignedEnvelope:
    """Return the envelope in a message of this swarm (stages 0 to 2: size, encoding, version, swarm).

    Args:
        also: a kind to accept although it is reserved on other topics and protocols.

    Raises:
        RemoteProtocolError: ``OVERSIZE``, ``NOT_CANONICAL``, ``SCHEMA``, ``OUT_OF_BOUNDS``,
            ``WRONG_VERSION``, ``WRONG_KIND``, ``WRONG_SWARM`` or ``RESERVED``.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise RemoteProtocolError(Rule.MESSAGE_SIZE, f"{len(data)} bytes, at most {MAX_ENVELOPE_BYTES}")
    fields = Fields(data, _SCHEMA)
    if (version := fields.uint(0)) != PROTOCOL_VERSION:
        fields.refuse(Rule.VERSION, f"version {version}, not {PROTOCOL_VERSION}")
    kind = _KINDS.get(number := fields.uint(1), also if number == also else None)
    if kind is None and not 1 <= number <= LAST_RESERVED:
        fields.refuse(Rule.KNOWN_KIND, f"kind {number} is unknown")
    if (swarm := fields.data(2)) != swarm_id:
        if len(swarm) != SwarmId.SIZE:
            fields.refuse(Rule.ENVELOPE_TYPES, f"a swarm id takes {SwarmId.SIZE} bytes")
        fields.refuse(Rule.SWARM, "the message belongs to another swarm")
    payload, signature = fields.data(3), fields.data(4, _SIGNATURE)
    fields.require_end()
    if kind is None:
        raise RemoteProtocolError(Rule.KIND_RESERVED, f"kind {number} is reserved for a later version")
    return SignedEnvelope(kind, swarm_id, payload, signature)


def open_payload(envelope: SignedEnvelope, kind: Kind, rule: Rule = Rule.TOPIC_KIND) -> bytes:
    """Return the payload if the envelope is of the expected kind (stage 2).

    Raises:
        RemoteProtocolError: ``WRONG_KIND``.
    """
    if envelope.kind is not kind:
        raise RemoteProtocolError(rule, f"a {envelope.kind.name} instead of a {kind.name}")
    return envelope.payload


def _fitting(envelope: SignedEnvelope) -> SignedEnvelope:
    if len(envelope.to_bytes()) > MAX_ENVELOPE_BYTES:
        size = len(envelope.payload)
        raise LocalProtocolError(f"a {envelope.kind.name.lower()} of {size} bytes does not fit an envelope")
    return envelope
