"""The proofs that the fraud verifier accepts, each with the arguments of its function.

A proof is built from what a node holds; whether it convinces is for the contract to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from eth_utils import to_checksum_address

from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest


class FraudProof(Protocol):
    """Evidence against an auditor or the live posting."""

    FUNCTION: ClassVar[str]

    def arguments(self) -> Sequence[Any]:
        """Return what the contract's function takes."""
        ...


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two roots in one turn of an epoch under one auditor's signature."""

    FUNCTION: ClassVar[str] = "proveEquivocation"

    turn: int
    a: EpochRoot
    b: EpochRoot
    signature_of_a: bytes
    signature_of_b: bytes

    def arguments(self) -> Sequence[Any]:
        """Return the turn, both statements and both signatures."""
        roots = root_fields(self.a), root_fields(self.b)
        return self.turn, *roots, self.signature_of_a, self.signature_of_b


@dataclass(frozen=True, slots=True)
class OverCap:
    """A leaf of the live contribution tree above the cap."""

    FUNCTION: ClassVar[str] = "proveOverCap"

    account: Account
    points: int
    proof: Sequence[Digest]

    def arguments(self) -> Sequence[Any]:
        """Return the leaf and its proof."""
        return to_checksum_address(self.account), self.points, _words(self.proof)


@dataclass(frozen=True, slots=True)
class ContributionSum:
    """All leaves of the live contribution tree, in its order; they miss the total."""

    FUNCTION: ClassVar[str] = "proveContributionSum"

    leaves: Sequence[tuple[Account, int]]

    def arguments(self) -> Sequence[Any]:
        """Return accounts and values side by side."""
        return _columns(self.leaves)


@dataclass(frozen=True, slots=True)
class CumulativeSum:
    """All leaves of the live cumulative tree, in its order; they miss what was granted in all."""

    FUNCTION: ClassVar[str] = "proveCumulativeSum"

    leaves: Sequence[tuple[Account, int]]

    def arguments(self) -> Sequence[Any]:
        """Return accounts and values side by side."""
        return _columns(self.leaves)


@dataclass(frozen=True, slots=True)
class CumulativeDecrease:
    """An account that has less in the live cumulative tree than in the last final one."""

    FUNCTION: ClassVar[str] = "proveCumulativeDecrease"

    account: Account
    before: int
    proof_before: Sequence[Digest]
    after: int
    proof_after: Sequence[Digest]

    def arguments(self) -> Sequence[Any]:
        """Return the account, and each value with its proof."""
        account = to_checksum_address(self.account)
        return account, self.before, _words(self.proof_before), self.after, _words(self.proof_after)


@dataclass(frozen=True, slots=True)
class Unearned:
    """An account with more in the live cumulative tree than it had and earned.

    Attributes:
        before: all leaves of the last final cumulative tree.
        points: all leaves of the live contribution tree.
    """

    FUNCTION: ClassVar[str] = "proveUnearned"

    account: Account
    cumulative: int
    proof: Sequence[Digest]
    before: Sequence[tuple[Account, int]]
    points: Sequence[tuple[Account, int]]

    def arguments(self) -> Sequence[Any]:
        """Return the leaf with its proof, and both trees."""
        leaf = to_checksum_address(self.account), self.cumulative, _words(self.proof)
        return *leaf, _columns(self.before), _columns(self.points)


def root_fields(root: EpochRoot) -> tuple[object, ...]:
    """Return a statement as the contracts' struct."""
    return (
        root.epoch,
        bytes(root.base_root),
        bytes(root.contribution_root),
        bytes(root.cumulative_root),
        root.total,
        bytes(root.archive_digest),
    )


def _columns(leaves: Sequence[tuple[Account, int]]) -> Sequence[Any]:
    return [to_checksum_address(account) for account, _ in leaves], [value for _, value in leaves]


def _words(proof: Sequence[Digest]) -> list[bytes]:
    return list(map(bytes, proof))
