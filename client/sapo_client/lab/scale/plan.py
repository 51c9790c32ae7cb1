"""Settings of a simulation of many nodes, and the swarm derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Final

from sapo_client.founding.defaults import PUBLIC_EPOCH_SECONDS
from sapo_client.founding.islands import FOLLOW, ISLAND_ACCOUNTS, islands_of
from sapo_protocol import ed25519, secp256k1
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.epochs import beacon
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.islands.count import island_count
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.suite import Suite
from sapo_protocol.terms.islands import IslandTerms
from sapo_verification.islands import IslandMap
from sapo_verification.suites.catalogue import REASONING_GYM, family

SUCCESS: Final = {
    "basic_arithmetic": 0.55,
    "base_conversion": 0.35,
    "fraction_simplification": 0.2,
    "gcd": 0.7,
}
"""Probability of a right answer by family, the same for every node: nothing is learned."""

GENESIS_SECONDS: Final = 1_800_000_000
CERTIFICATE_SECONDS: Final = 30 * 86_400


def islands_that_follow(accounts: int) -> int:
    """Return the number of islands with so many paid accounts in a swarm of ``--islands follow``."""
    return island_count(islands_of(FOLLOW, ISLAND_ACCOUNTS, PUBLIC_EPOCH_SECONDS), [accounts])


@dataclass(frozen=True)
class ScalePlan:
    """Settings of a simulation.

    Attributes:
        nodes: number of nodes of the whole swarm, each with an account of its own.
        islands: number of islands of the whole swarm, a power of two.
        simulated: number of islands that are simulated, with all their members; 0 for all of them.
        epochs: length of the simulation; an epoch lasts ``epoch_seconds`` of virtual time.
        churn: share of the nodes that leave in each epoch, and return after a quarter of it.
        sybils: share of the accounts that belong to one attacker: they publish, and their nodes forward
            nothing.
        period_epochs: number of epochs for which a home and a visit last. A day has 144 epochs of ten
            minutes; with a short period many accounts move within a short simulation.
        nat: share of nodes that accept no inbound connections.
        groups_per_second: rate at which every account publishes.
        loss: share of packets that are lost; TCP sends them again.
    """

    nodes: int = 100
    islands: int = 4
    simulated: int = 0
    epochs: int = 2
    epoch_seconds: int = 60
    churn: float = 0.2
    sybils: float = 0.3
    period_epochs: int = 8
    nat: float = 0.6
    groups_per_second: float = 0.4
    loss: float = 0.02
    seed: int = 0

    @property
    def first_epoch(self) -> int:
        """Return the first simulated epoch; every account has moved at least once before it."""
        return self.period_epochs

    @cached_property
    def manifest(self) -> Manifest:
        """Return the manifest of the swarm, which has no chain and a constant number of islands."""
        terms = IslandTerms(2**20, 1, self.period_epochs, self.islands, count=self.islands)
        families = tuple(family(name, "full") for name in SUCCESS)
        return Manifest(
            name="scale",
            genesis_seconds=GENESIS_SECONDS,
            epoch_seconds=self.epoch_seconds,
            suite=Suite(REASONING_GYM, families, Digest(sha256(b"scale").digest())),
            limits=Limits(slots_per_epoch=65_536, max_completions=8, points_per_epoch=65_536),
            version=2,
            islands=terms,
        )

    def beacon(self, epoch: int) -> Digest:
        """Return the beacon of an epoch."""
        return beacon(self.manifest.swarm_id, epoch, b"")

    def island_map(self) -> IslandMap:
        """Return the homes of the accounts."""
        return IslandMap(self.manifest, self.beacon)


@dataclass(frozen=True)
class Participant:
    """One account with its node key; those of Sybils belong to the attacker."""

    seed: int
    number: int
    is_sybil: bool
    is_behind_nat: bool

    @cached_property
    def node_seed(self) -> bytes:
        """The node key's secret seed."""
        return sha256(b"scale node %d %d" % (self.seed, self.number)).digest()

    @cached_property
    def node(self) -> NodeId:
        """The node key."""
        return ed25519.public_key(self.node_seed)

    @cached_property
    def _account_key(self) -> bytes:
        return sha256(b"scale account %d %d" % (self.seed, self.number)).digest()

    @cached_property
    def account(self) -> Account:
        """The account."""
        return secp256k1.account_of(self._account_key)

    def certificate(self, manifest: Manifest) -> bytes:
        """Return the certificate as a message."""
        begin = manifest.genesis_seconds
        binding = NodeBinding(self.node, manifest.swarm_id, begin, begin + CERTIFICATE_SECONDS)
        domain = manifest.binding_domain
        return issue_certificate(self.node_seed, self._account_key, binding, domain).to_bytes()
