"""The proofs that the fraud verifier accepts, each with the arguments of its function.

A proof is built from what a node holds; whether it convinces is for the contract to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from eth_utils import keccak, to_checksum_address

from sapo_client.ledger.records import FinalRecord
from sapo_protocol import secp256k1
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.merkle import Place


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
    """An account above the cap in the live tree of points."""

    FUNCTION: ClassVar[str] = "proveOverCap"

    account: Account
    points: Place

    def arguments(self) -> Sequence[Any]:
        """Return the account and its place."""
        return to_checksum_address(self.account), place_fields(self.points)


@dataclass(frozen=True, slots=True)
class AccountPlaces:
    """An account's places in the three trees of a posting.

    Attributes:
        before: in the cumulative tree that the posting adds to.
        points: in its tree of points.
        after: in its cumulative tree.
    """

    account: Account
    before: Place
    points: Place
    after: Place

    def arguments(self) -> Sequence[Any]:
        """Return the account and its places, as the contract's functions take them."""
        places = map(place_fields, (self.before, self.points, self.after))
        return to_checksum_address(self.account), *places


@dataclass(frozen=True, slots=True)
class Balance:
    """An account that has more or less in the live cumulative tree than it had and earned."""

    FUNCTION: ClassVar[str] = "proveBalance"

    places: AccountPlaces

    def arguments(self) -> Sequence[Any]:
        """Return the account and its places."""
        return self.places.arguments()


def place_fields(place: Place) -> tuple[object, ...]:
    """Return a place as the contracts' struct."""
    return to_checksum_address(place.holder), place.value, list(map(bytes, place.proof))


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


def final_fields(final: FinalRecord) -> tuple[object, ...]:
    """Return a final epoch as the contracts' struct."""
    before = bytes(final.before.history), final.before.block
    return (root_fields(final.record.root), final.signers, final.record.posted_at_seconds, *before)


def posting_name(digest: Digest, posted_at_seconds: int) -> Digest:
    """Return the name of a posting, as the verifier has it: the same root may be posted again."""
    return Digest(keccak(digest + posted_at_seconds.to_bytes(32, "big")))


def by_signer(digest: Digest, signatures: Sequence[bytes]) -> list[bytes]:
    """Return each signer's signature once, ascending by signer, as the contract wants them."""
    signers = {secp256k1.recover(digest, signature): signature for signature in signatures}
    return [signature for signer, signature in sorted(signers.items(), key=lambda item: item[0] or b"")]
