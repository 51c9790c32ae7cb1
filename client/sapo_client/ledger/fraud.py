"""The proofs that the fraud verifier accepts, each with the arguments of its function.

A proof is built from what a node holds; the contract decides whether it is valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from eth_utils import keccak, to_checksum_address

from sapo_client.ledger.records import FinalRecord
from sapo_protocol import secp256k1
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.merkle import Place, place_root

_MAX_WORDS: Final = 280
"""Maximum number of sibling hashes (of 32 bytes) in one transaction, which then has less than 10,000 bytes;
an attacker's tree can need 480."""

_ELSEWHERE: Final = Place(Account(bytes(Account.SIZE)), 0, ())
"""Placeholder for a recorded proof: it proves a value under the root of the empty tree only."""


@dataclass(frozen=True, slots=True)
class Recording:
    """An account's value under a root, recorded by the verifier before a proof that would be too long."""

    root: Digest
    account: Account
    place: Place


class FraudProof(Protocol):
    """Evidence against an auditor or the live posting."""

    FUNCTION: ClassVar[str]

    def recordings(self) -> Sequence[Recording]:
        """Return the recordings that must be on the chain first."""
        ...

    def arguments(self) -> Sequence[Any]:
        """Return the arguments of the contract's function."""
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

    def recordings(self) -> Sequence[Recording]:
        """Return nothing: a proof of this kind is short."""
        return ()

    def arguments(self) -> Sequence[Any]:
        """Return the turn, both statements and both signatures."""
        roots = root_fields(self.a), root_fields(self.b)
        return self.turn, *roots, self.signature_of_a, self.signature_of_b


@dataclass(frozen=True, slots=True)
class OverCap:
    """An account above the cap in the live posting's points tree."""

    FUNCTION: ClassVar[str] = "proveOverCap"

    account: Account
    points: Place

    def recordings(self) -> Sequence[Recording]:
        """Return nothing: a single Merkle proof fits into the transaction."""
        return ()

    def arguments(self) -> Sequence[Any]:
        """Return the account and its Merkle proof."""
        return to_checksum_address(self.account), place_fields(self.points)


@dataclass(frozen=True, slots=True)
class AccountPlaces:
    """An account's Merkle proofs in the three trees of a posting.

    Attributes:
        before: in the cumulative tree that the posting adds to.
        points: in its points tree.
        after: in its cumulative tree.
    """

    account: Account
    before: Place
    points: Place
    after: Place

    def recordings(self) -> Sequence[Recording]:
        """Return the proofs that do not fit into one transaction, the longest first."""
        longest_first = sorted((self.before, self.points, self.after), key=lambda place: -len(place.proof))
        count, words = 0, sum(len(place.proof) for place in longest_first)
        while words > _MAX_WORDS:
            words -= len(longest_first[count].proof)
            count += 1
        return [
            Recording(place_root(self.account, place), self.account, place) for place in longest_first[:count]
        ]

    def arguments(self) -> Sequence[Any]:
        """Return the account and its proofs as the contract's functions take them, without those recorded."""
        recorded = [recording.place for recording in self.recordings()]
        places = (
            _ELSEWHERE if place in recorded else place for place in (self.before, self.points, self.after)
        )
        return to_checksum_address(self.account), *map(place_fields, places)


@dataclass(frozen=True, slots=True)
class Balance:
    """An account whose live cumulative value is not its earlier one plus its points."""

    FUNCTION: ClassVar[str] = "proveBalance"

    places: AccountPlaces

    def recordings(self) -> Sequence[Recording]:
        """Return the proofs that do not fit into one transaction."""
        return self.places.recordings()

    def arguments(self) -> Sequence[Any]:
        """Return the account and its Merkle proofs."""
        return self.places.arguments()


def place_fields(place: Place) -> tuple[object, ...]:
    """Return a Merkle proof as the contracts' struct ``Place``."""
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
    record, before = final.record, (bytes(final.before.history), final.before.block)
    return (root_fields(record.root), record.signers, record.posted_at_seconds, *before)


def posting_name(digest: Digest, posted_at_seconds: int) -> Digest:
    """Return the verifier's id of a posting; its time is part of it, for a root may be posted again."""
    return Digest(keccak(digest + posted_at_seconds.to_bytes(32, "big")))


def by_signer(digest: Digest, signatures: Sequence[bytes]) -> list[bytes]:
    """Return each signer's signature once, ascending by signer, as the contract requires."""
    signers = {secp256k1.recover(digest, signature): signature for signature in signatures}
    return [signature for signer, signature in sorted(signers.items(), key=lambda item: item[0] or b"")]
