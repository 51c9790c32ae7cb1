"""The certificate: a node key and an account, each naming the other.

The node signs the envelope (Ed25519), the account signs the binding (EIP-712).
With one direction alone, anyone could claim another's node or another's account.
"""

from dataclasses import dataclass

from sapo_protocol import secp256k1
from sapo_protocol.constants import MAX_CERTIFICATE_SECONDS
from sapo_protocol.decoding import Bound, Fields, Schema
from sapo_protocol.eip712 import Domain, NodeBinding
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope, open_payload, seal
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, NodeId, SwarmId
from sapo_protocol.rules import Rule

_SCHEMA = Schema(Rule.CERTIFICATE_KEYS, Rule.CERTIFICATE_TYPES, Rule.CERTIFICATE_RESERVED, required=5)
_DURATION = Bound(Rule.CERTIFICATE_DURATION, minimum=1, maximum=MAX_CERTIFICATE_SECONDS)
_SIGNATURE = Bound(
    Rule.CERTIFICATE_SIGNATURE, minimum=secp256k1.SIGNATURE_BYTES, maximum=secp256k1.SIGNATURE_BYTES
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The account that a node signs for, and for how long; times are Unix seconds."""

    node: NodeId
    account: Account
    not_before_seconds: int
    not_after_seconds: int
    account_signature: bytes

    def covers(self, now_seconds: float) -> bool:
        """Whether the certificate counts at a moment."""
        return self.not_before_seconds <= now_seconds < self.not_after_seconds

    def to_payload(self) -> bytes:
        """Return the payload to seal."""
        return encode(
            {
                0: bytes(self.node),
                1: bytes(self.account),
                2: self.not_before_seconds,
                3: self.not_after_seconds,
                4: self.account_signature,
            }
        )


def parse_certificate(payload: bytes) -> Certificate:
    """Return the certificate in a payload, its signatures not yet checked.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    fields = Fields(payload, _SCHEMA)
    node, account = fields.fixed(0, NodeId), fields.fixed(1, Account)
    not_before, not_after = fields.uint(2), fields.uint(3)
    fields.require(_DURATION, not_after - not_before)
    signature = fields.data(4, _SIGNATURE)
    fields.require_end()
    return Certificate(
        node=node,
        account=account,
        not_before_seconds=not_before,
        not_after_seconds=not_after,
        account_signature=signature,
    )


def open_certificate(envelope: SignedEnvelope, domain: Domain) -> Certificate:
    """Return the certificate of an envelope, both signatures checked (stage 5).

    Raises:
        RemoteProtocolError: a parsing reason, ``BAD_SIGNATURE`` (the node's) or
            ``CERTIFICATE_MALFORMED`` (the account's).
    """
    certificate = parse_certificate(open_payload(envelope, Kind.CERTIFICATE))
    if not envelope.is_signed_by(certificate.node):
        raise RemoteProtocolError(Rule.NODE_SIGNED, "not signed by the node that it names")
    digest = _binding(certificate, envelope.swarm_id).digest(domain)
    if secp256k1.recover(digest, certificate.account_signature) != certificate.account:
        raise RemoteProtocolError(Rule.ACCOUNT_SIGNED, "not signed by the account that it names")
    return certificate


def issue_certificate(
    node_seed: bytes, account_secret: bytes, binding: NodeBinding, domain: Domain
) -> SignedEnvelope:
    """Return a certificate signed in both directions."""
    signature = secp256k1.sign(account_secret, binding.digest(domain))
    account = secp256k1.account_of(account_secret)
    certificate = Certificate(
        node=binding.node_key,
        account=account,
        not_before_seconds=binding.not_before,
        not_after_seconds=binding.not_after,
        account_signature=signature,
    )
    return seal(Kind.CERTIFICATE, binding.swarm_id, certificate.to_payload(), node_seed)


def _binding(certificate: Certificate, swarm_id: SwarmId) -> NodeBinding:
    return NodeBinding(
        certificate.node, swarm_id, certificate.not_before_seconds, certificate.not_after_seconds
    )
