"""The manifest: everything that nodes of one swarm must agree on; its digest is the swarm id."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

from sapo_protocol.constants import LATEST_MANIFEST, MAX_COMPLETIONS, PROOF_EPOCHS, PROTOCOL_VERSION
from sapo_protocol.decoding import Value
from sapo_protocol.eip712 import Domain
from sapo_protocol.encoding import encode
from sapo_protocol.errors import LaterReleaseError, LocalProtocolError
from sapo_protocol.identifiers import Account, SwarmId
from sapo_protocol.suite import Suite
from sapo_protocol.terms.audits import MAX_COMMITTED_SLOTS, AuditTerms, max_finality_seconds
from sapo_protocol.terms.difficulty import Difficulty
from sapo_protocol.terms.gate import BondGate, EasGate, Gate
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.terms.successor import Succession, Successor

_NO_CONTRACT = Account(bytes(20))

BOND_EPOCHS = PROOF_EPOCHS + 2
"""Epochs for which a bond is kept at least: one more than a proof of equivocation is accepted for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one account in one epoch.

    Attributes:
        slots_per_epoch: tasks assigned to an account, whatever the number of its keys.
        max_completions: largest group.
        points_per_epoch: most payable rollouts.
    """

    slots_per_epoch: int
    max_completions: int
    points_per_epoch: int

    def __post_init__(self) -> None:
        if self.slots_per_epoch < 1 or not 1 <= self.max_completions <= MAX_COMPLETIONS:
            raise LocalProtocolError("a swarm allows at least one slot and 1 to 16 completions")

    def to_value(self) -> Value:
        """Return the limits inside an encoded manifest."""
        return {0: self.slots_per_epoch, 1: self.max_completions, 2: self.points_per_epoch}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The settings that all nodes of one swarm share.

    Attributes:
        name: for people; outside the digest.
        bootstrap: multiaddrs of the first nodes to connect to; outside the digest, since they change.
        chain_id: 0 for a swarm without a chain.
        registry: the ``NodeRegistry``, with a chain.
        ledger: the ``EpochLedger``, with a chain.
        finality_seconds: how old a block must be before an epoch's beacon may rest on it.
        genesis_seconds: Unix time at which epoch 0 begins.
        version: of the manifest, 1 or 2. Only one of version 2 may hold the terms below.
        gate: what an account must have on the chain for its rollouts to count; ``None`` is the same as
            ``OpenGate``.
        difficulty: the ladders of levels, and how they follow the swarm; ``None``: every slot may have any
            family, and mixed groups alone are paid.
        islands: how a swarm of many accounts is divided; ``None``: not at all.
        audits: how auditors check a sample of what accounts commit to; ``None``: they check all.
        first: the manifest that the swarm began with, if successors were announced; outside the digest and
            set by ``succeeded_by`` only. Suite and limits are then those of the newest successor.
        successions: these successors, ascending by activation.
    """

    name: str
    bootstrap: tuple[str, ...] = ()
    chain_id: int = 0
    registry: Account | None = None
    ledger: Account | None = None
    finality_seconds: int = 0
    genesis_seconds: int
    epoch_seconds: int
    suite: Suite
    limits: Limits
    version: int = 1
    gate: Gate | None = None
    difficulty: Difficulty | None = None
    islands: IslandTerms | None = None
    audits: AuditTerms | None = None
    first: "Manifest | None" = None
    successions: tuple[Succession, ...] = ()

    def __post_init__(self) -> None:
        if self.epoch_seconds < 1:
            raise LocalProtocolError("an epoch lasts at least a second")
        has_contracts = self.registry is not None and self.ledger is not None
        if has_contracts != (self.chain_id != 0) or (self.registry is None) != (self.ledger is None):
            raise LocalProtocolError("a chain id, a registry and a ledger come together or not at all")
        if not 1 <= self.version <= LATEST_MANIFEST:
            raise LaterReleaseError(f"a manifest of version {self.version} needs another release of sapo")
        if self.version == 1 and self._terms():
            raise LocalProtocolError(
                "a manifest of version 1 has no gate, ladders, islands or audits by sample; say version 2"
            )
        if self.islands is not None and self.islands.count is None and not self.has_chain:
            raise LocalProtocolError("without a chain the number of islands is constant: say a count")
        if self.difficulty is not None:
            self.difficulty.require_families(len(self.suite.families), self.limits.max_completions)
        if self.audits is not None:
            self._require_auditable()
        if isinstance(self.gate, BondGate):
            self._require_bondable(self.gate)
        if isinstance(self.gate, EasGate) and not self.has_chain:
            raise LocalProtocolError("an attestation is kept on a chain, and this swarm has none")

    def _require_auditable(self) -> None:
        """Raise unless there is a chain for the draw, and a commitment has room for all slots of an
        account."""
        if not self.has_chain:
            raise LocalProtocolError("a block's hash draws what is audited, and this swarm has no chain")
        if self.difficulty is not None:
            raise LocalProtocolError("ladders count groups that no account commits to: no audits by sample")
        _require_committable(self.limits.slots_per_epoch)
        if self.finality_seconds > (longest := max_finality_seconds(self.epoch_seconds)):
            raise LocalProtocolError(
                f"with finality_seconds of more than {longest} no epoch is audited before the next one ends"
            )

    def _require_bondable(self, gate: BondGate) -> None:
        """Raise unless a bond that counted in an epoch is still there when its proofs are accepted."""
        if not self.has_chain:
            raise LocalProtocolError("a bond is kept on a chain, and this swarm has none")
        shortest = self.finality_seconds + BOND_EPOCHS * self.epoch_seconds
        if gate.exit_seconds < shortest:
            raise LocalProtocolError(
                f"a bond that leaves after {gate.exit_seconds} s is gone before proofs against it count:"
                f" at least {shortest} s"
            )

    @cached_property
    def swarm_id(self) -> SwarmId:
        """Return the SHA-256 of the tag ``sapo/1/manifest`` and the first manifest's encoding."""
        return SwarmId(
            sha256(f"sapo/{PROTOCOL_VERSION}/manifest".encode() + b"\x00" + self.to_bytes()).digest()
        )

    @property
    def points_cap(self) -> int:
        """Most points that a tally gives one account: ``points_per_epoch`` times ``one_in``."""
        return self.limits.points_per_epoch * self.one_in

    @property
    def one_in(self) -> int:
        """How many accounts each account with points in an epoch stands for; 1 unless audits are by
        sample."""
        return self.audits.one_in if self.audits else 1

    @property
    def has_chain(self) -> bool:
        """Whether contributions are recorded on a chain."""
        return self.chain_id != 0

    @property
    def binding_domain(self) -> Domain:
        """Return the EIP-712 domain of certificates."""
        return Domain(self.chain_id, self.registry or _NO_CONTRACT)

    @property
    def ledger_domain(self) -> Domain:
        """Return the EIP-712 domain of epoch roots."""
        return Domain(self.chain_id, self.ledger or _NO_CONTRACT)

    def succeeded_by(self, activation_epoch: int, successor: Successor) -> "Manifest":
        """Return the manifest with one more successor, in force from an epoch on.

        Raises:
            LocalProtocolError: it belongs to another swarm, or changes what must not change; the text names
                it.
        """
        self._require_successor(activation_epoch, successor)
        return replace(
            self,
            suite=successor.suite,
            limits=Limits(successor.slots_per_epoch, successor.max_completions, self.limits.points_per_epoch),
            first=self.first or self,
            successions=(*self.successions, Succession(activation_epoch, successor)),
        )

    def _require_successor(self, activation_epoch: int, successor: Successor) -> None:
        before = self.successions[-1].activation_epoch if self.successions else 0
        if not self.has_chain:
            raise LocalProtocolError("a swarm without a chain has no successor: nothing can announce one")
        if successor.lineage != self.swarm_id:
            raise LocalProtocolError(f"it is a successor of another swarm, {successor.lineage}")
        if activation_epoch <= before:
            raise LocalProtocolError(f"it follows terms that are in force from epoch {before} on")
        if successor.suite.reasoning_gym != self.suite.reasoning_gym:
            raise LocalProtocolError("the ReasoningGYM release of a swarm stays")
        families = len(self.suite.families)
        if successor.suite.families[:families] != self.suite.families:
            raise LocalProtocolError("families keep their places: they are added at the end, or retired")
        if self.audits is not None:
            _require_committable(successor.slots_per_epoch)
        if self.difficulty is None:
            return
        if successor.suite != self.suite or successor.retired:
            raise LocalProtocolError("where levels follow the swarm, the families stay")
        self.difficulty.require_families(families, successor.max_completions)

    def limits_at(self, epoch: int) -> Limits:
        """Return the limits that are in force in an epoch."""
        if self.first is None:
            return self.limits
        if (successor := self._successor_at(epoch)) is None:
            return self.first.limits
        points = self.limits.points_per_epoch
        return Limits(successor.slots_per_epoch, successor.max_completions, points)

    def families_at(self, epoch: int) -> Sequence[int]:
        """Return the families, by their places in the suite, that slots of an epoch may have, ascending."""
        if self.first is None:
            return range(len(self.suite.families))
        if (successor := self._successor_at(epoch)) is None:
            return range(len(self.first.suite.families))
        families = range(len(successor.suite.families))
        return tuple(family for family in families if family not in successor.retired)

    def completions_from(self, epoch: int) -> int:
        """Return the largest group that is allowed in an epoch and in all epochs after it."""
        later = [each.successor for each in self.successions if each.activation_epoch > epoch]
        return min([self.limits_at(epoch).max_completions, *(each.max_completions for each in later)])

    def _successor_at(self, epoch: int) -> Successor | None:
        begun = [each.successor for each in self.successions if each.activation_epoch <= epoch]
        return begun[-1] if begun else None

    def to_bytes(self) -> bytes:
        """Return the encoding that the digest is taken of: that of the first manifest."""
        if self.first is not None:
            return self.first.to_bytes()
        return encode(
            {
                0: self.version,
                1: self.chain_id,
                2: bytes(self.registry or b""),
                3: bytes(self.ledger or b""),
                4: self.finality_seconds,
                5: self.genesis_seconds,
                6: self.epoch_seconds,
                7: self.suite.to_value(),
                8: self.limits.to_value(),
                **self._terms(),
            }
        )

    def _terms(self) -> dict[int, Value]:
        """Return the terms of version 2 by their keys, without those that are left out."""
        terms = {9: self.gate, 10: self.difficulty, 11: self.islands, 12: self.audits}
        return {key: term.to_value() for key, term in terms.items() if term is not None}


def _require_committable(slots_per_epoch: int) -> None:
    if slots_per_epoch > MAX_COMMITTED_SLOTS:
        raise LocalProtocolError(f"a commitment has room for {MAX_COMMITTED_SLOTS} slots in an epoch")
