"""A swarm for measurements: real keys, certificates and messages, generated on demand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Final

from sapo_protocol import ed25519, secp256k1
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import beacon
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.suite import Suite
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.rollouts import Admission
from sapo_verification.suites.catalogue import NANO_DEFAULT, REASONING_GYM, family

SLOTS: Final = 1 << 20
"""Number of slots per epoch; enough for every measurement."""

GROUP: Final = 8
"""Number of completions of a rollout, as in the paper."""


@dataclass(frozen=True)
class BenchAuthor:
    """An author with a node key, an account and a certificate, all derived from its number."""

    number: int

    @cached_property
    def seed(self) -> bytes:
        """The node key's secret seed."""
        return sha256(b"bench node %d" % self.number).digest()

    @cached_property
    def secret(self) -> bytes:
        """The account's secret key."""
        return sha256(b"bench account %d" % self.number).digest()

    @cached_property
    def node(self) -> NodeId:
        """The node key."""
        return ed25519.public_key(self.seed)

    @cached_property
    def account(self) -> Account:
        """The account."""
        return secp256k1.account_of(self.secret)


class BenchSwarm:
    """A swarm whose first epoch starts now and is long; every message in it is valid."""

    def __init__(self) -> None:
        self.now_seconds = int(time.time())
        suite = _suite()
        self.manifest = Manifest(
            name="bench",
            genesis_seconds=self.now_seconds,
            epoch_seconds=86_400,
            suite=suite,
            limits=Limits(slots_per_epoch=SLOTS, max_completions=16, points_per_epoch=16),
        )

    @property
    def beacon(self) -> Digest:
        """The beacon of the only epoch."""
        return beacon(self.manifest.swarm_id, 0, b"")

    def admission(self, authors: Sequence[BenchAuthor]) -> Admission:
        """Return an admission that knows the authors' certificates and has received no message."""
        certificates = CertificateStore(self.manifest)
        for author in authors:
            certificates.admit(self.certificate(author), self.now_seconds)
        return Admission(self.manifest, certificates)

    def certificate(self, author: BenchAuthor) -> bytes:
        """Return an author's certificate message."""
        begin = self.now_seconds
        binding = NodeBinding(author.node, self.manifest.swarm_id, begin, begin + 86_400)
        return issue_certificate(author.seed, author.secret, binding, self.manifest.binding_domain).to_bytes()

    def task(self, author: BenchAuthor, place: int, slot: int) -> Task:
        """Return the task of an author's slot."""
        return assigned_task(
            self.manifest.swarm_id, self.beacon, account=author.account, family=place, slot=slot
        )

    def message(self, author: BenchAuthor, place: int, slot: int, completions: Sequence[bytes]) -> bytes:
        """Return the message of a sealed rollout."""
        rollout = Rollout(
            node=author.node,
            account=author.account,
            epoch=0,
            slot=slot,
            family=place,
            completions=tuple(completions),
        )
        return seal(Kind.ROLLOUT, self.manifest.swarm_id, rollout.to_payload(), author.seed).to_bytes()


def _suite() -> Suite:
    """Return the nano families; no sample items are derived, because no node joins this swarm."""
    families = tuple(family(name, "nano") for name in NANO_DEFAULT)
    return Suite(REASONING_GYM, families, Digest(sha256(b"bench").digest()))
