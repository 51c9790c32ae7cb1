"""A swarm for tests: manifest, identities, certificates and sealed rollouts, all of them valid.

Nothing here replaces the code under test: messages are built by the protocol's own functions and
signed with real keys, which are derived from small numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from sapo_protocol import ed25519, secp256k1
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.suite import Suite
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.rollouts import MAX_SEEN, Admission
from sapo_verification.suites.catalogue import REASONING_GYM, family

GENESIS_SECONDS: Final = 1_800_000_000
EPOCH_SECONDS: Final = 60
EPOCH: Final = 3
"""The current epoch of tests, unless they choose another one."""

FAMILIES: Final = ("basic_arithmetic", "base_conversion", "fraction_simplification")


def make_suite(level: str = "nano", families: Iterable[str] = FAMILIES) -> Suite:
    """Return a suite from the catalogue with an arbitrary sample digest: no sample items are derived."""
    chosen = tuple(family(name, level) for name in families)
    return Suite(REASONING_GYM, chosen, Digest(sha256(b"samples").digest()))


def make_manifest(**changes: Any) -> Manifest:
    """Return a manifest without a chain."""
    manifest = Manifest(
        name="test swarm",
        bootstrap=(),
        chain_id=0,
        registry=None,
        ledger=None,
        finality_seconds=0,
        genesis_seconds=GENESIS_SECONDS,
        epoch_seconds=EPOCH_SECONDS,
        suite=make_suite(),
        limits=Limits(slots_per_epoch=32, max_completions=8, points_per_epoch=16),
    )
    return replace(manifest, **changes)


def make_chain_manifest(**changes: Any) -> Manifest:
    """Return a manifest with a chain and contracts."""
    contracts = {"registry": Account(bytes(19) + b"\x01"), "ledger": Account(bytes(19) + b"\x02")}
    return make_manifest(**{"chain_id": 31337, "finality_seconds": 12, **contracts, **changes})


def moment(manifest: Manifest, epoch: int = EPOCH) -> float:
    """Return the time of the middle of an epoch, Unix seconds."""
    return epoch_start_seconds(manifest, epoch) + manifest.epoch_seconds / 2


@dataclass(frozen=True)
class Identity:
    """A node's key and its account's key, derived from two small numbers."""

    number: int
    key: int = 0

    @cached_property
    def seed(self) -> bytes:
        """The secret seed of the node key."""
        return sha256(f"node {self.number}.{self.key}".encode()).digest()

    @cached_property
    def secret(self) -> bytes:
        """The secret key of the account, the same for all keys of one number."""
        return sha256(f"account {self.number}".encode()).digest()

    @cached_property
    def node(self) -> NodeId:
        """The node key."""
        return ed25519.public_key(self.seed)

    @cached_property
    def account(self) -> Account:
        """The account."""
        return secp256k1.account_of(self.secret)

    def certificate(
        self, manifest: Manifest, not_before: int = GENESIS_SECONDS, not_after: int = GENESIS_SECONDS + 86_400
    ) -> SignedEnvelope:
        """Return the certificate that binds node key and account."""
        binding = NodeBinding(self.node, manifest.swarm_id, not_before, not_after)
        return issue_certificate(self.seed, self.secret, binding, manifest.binding_domain)

    def rollout(self, **changes: Any) -> Rollout:
        """Return a rollout with this identity as its author."""
        rollout = Rollout(self.node, self.account, EPOCH, slot=0, family=0, completions=(b"7", b"8"))
        return replace(rollout, **changes)

    def seal(self, manifest: Manifest, rollout: Rollout) -> SignedEnvelope:
        """Return a rollout signed by this identity, whoever its author is."""
        return seal(Kind.ROLLOUT, manifest.swarm_id, rollout.to_payload(), self.seed)

    def message(self, manifest: Manifest, **changes: Any) -> bytes:
        """Return a rollout of this identity as a signed message."""
        return self.seal(manifest, self.rollout(**changes)).to_bytes()


def make_certificates(manifest: Manifest, *identities: Identity) -> CertificateStore:
    """Return a certificate store that knows the identities."""
    certificates = CertificateStore(manifest)
    for identity in identities:
        certificates.admit(identity.certificate(manifest).to_bytes(), moment(manifest))
    return certificates


def make_admission(manifest: Manifest, *identities: Identity, max_seen: int = MAX_SEEN) -> Admission:
    """Return an admission that knows the identities' certificates."""
    return Admission(manifest, make_certificates(manifest, *identities), max_seen)
