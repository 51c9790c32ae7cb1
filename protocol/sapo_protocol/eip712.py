"""The statements that an account signs, as EIP-712 typed data."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

from eth_hash.auto import keccak

from sapo_protocol.identifiers import Account, Digest, NodeId, SwarmId

_DOMAIN_TYPE = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
_NAME = "sapo"
_VERSION = "1"

_NO_DIGEST, _NOBODY = Digest(bytes(32)), Account(bytes(20))


@dataclass(frozen=True, slots=True)
class Domain:
    """The EIP-712 domain in which a statement is valid: one contract on one chain."""

    chain_id: int
    contract: Account

    @property
    def separator(self) -> bytes:
        """Return the 32-byte domain separator."""
        return _separator(self.chain_id, self.contract)


@dataclass(frozen=True, slots=True)
class NodeBinding:
    """An account's consent that a node key signs for it in one swarm."""

    TYPE: ClassVar[bytes] = b"NodeBinding(bytes32 nodeKey,bytes32 swarmId,uint64 notBefore,uint64 notAfter)"

    node_key: NodeId
    swarm_id: SwarmId
    not_before: int
    not_after: int

    def digest(self, domain: Domain) -> Digest:
        """Return the 32 bytes that the account signs."""
        words = (self.node_key, self.swarm_id, _word(self.not_before), _word(self.not_after))
        return _digest(domain, _struct(self.TYPE, words))


@dataclass(frozen=True, slots=True)
class EpochRoot:
    """The contributions of an epoch as the auditors agreed on them; the ledger identifies it by its digest.

    Attributes:
        base_root: the cumulative root that this one adds to. It makes the statement invalid once
            another epoch has become final, so outdated counts of points cannot be posted.
        contribution_root: Merkle root over (account, points of this epoch).
        cumulative_root: Merkle root over (account, points of all epochs so far).
        total: the sum of this epoch's points.
        archive_digest: digest of the proposal that lists the tallies behind it.
    """

    TYPE: ClassVar[bytes] = (
        b"EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,bytes32 cumulativeRoot,"
        b"uint256 total,bytes32 archiveDigest)"
    )

    epoch: int
    base_root: Digest
    contribution_root: Digest
    cumulative_root: Digest
    total: int
    archive_digest: Digest

    def digest(self, domain: Domain) -> Digest:
        """Return the 32 bytes by which the ledger identifies the root."""
        return _digest(domain, self.struct)

    @property
    def struct(self) -> bytes:
        """Return the 32 bytes of EIP-712's ``hashStruct``."""
        words = (
            _word(self.epoch),
            self.base_root,
            self.contribution_root,
            self.cumulative_root,
            _word(self.total),
            self.archive_digest,
        )
        return _struct(self.TYPE, words)


@dataclass(frozen=True, slots=True)
class EpochApproval:
    """An auditor's consent, in a turn, to a root that was proposed in this turn or an earlier one.

    An auditor that signs two roots in one turn of an epoch loses its bond. In a later turn it may sign
    another root, since the earlier proposal did not reach a quorum.
    """

    TYPE: ClassVar[bytes] = b"EpochApproval(uint32 turn,EpochRoot root)" + EpochRoot.TYPE

    turn: int
    root: EpochRoot

    def digest(self, domain: Domain) -> Digest:
        """Return the 32 bytes that each auditor signs."""
        return _digest(domain, _struct(self.TYPE, (_word(self.turn), self.root.struct)))


@dataclass(frozen=True, slots=True)
class SuccessionNotice:
    """An auditor's consent that something changes from an epoch on.

    Attributes:
        number: of the announcement; each number is announced once.
        successor: the digest of the terms that follow; zeros where they stay.
        leaving: the auditor who is replaced, and ``entering`` by whom; zeros where all stay.
    """

    TYPE: ClassVar[bytes] = (
        b"Succession(uint64 number,uint64 activationEpoch,bytes32 successor,address leaving,address entering)"
    )

    number: int
    activation_epoch: int
    successor: Digest = _NO_DIGEST
    leaving: Account = _NOBODY
    entering: Account = _NOBODY

    def digest(self, domain: Domain) -> Digest:
        """Return the 32 bytes that each auditor signs."""
        numbers = _word(self.number), _word(self.activation_epoch)
        words = (*numbers, self.successor, bytes(12) + self.leaving, bytes(12) + self.entering)
        return _digest(domain, _struct(self.TYPE, words))


@dataclass(frozen=True, slots=True)
class SuccessionWithdrawal:
    """An auditor's consent that an announcement is taken back."""

    TYPE: ClassVar[bytes] = b"Withdrawal(uint64 number)"

    number: int

    def digest(self, domain: Domain) -> Digest:
        """Return the 32 bytes that each auditor signs."""
        return _digest(domain, _struct(self.TYPE, (_word(self.number),)))


Statement = NodeBinding | EpochRoot | SuccessionNotice | SuccessionWithdrawal


def readable(statement: Statement, domain: Domain) -> Mapping[str, Any]:
    """Return the statement in the form that a person should see before signing it."""
    fields = {
        name: value if isinstance(value, int) else "0x" + value.hex()
        for name, value in asdict(statement).items()
    }
    return {"chain id": domain.chain_id, "contract": str(domain.contract), **fields}


@lru_cache(maxsize=16)  # a node checks many statements of few places and types
def _separator(chain_id: int, contract: Account) -> bytes:
    name, version = keccak(_NAME.encode()), keccak(_VERSION.encode())
    return keccak(keccak(_DOMAIN_TYPE) + name + version + _word(chain_id) + bytes(12) + contract)


@lru_cache(maxsize=16)
def _type_hash(type_: bytes) -> bytes:
    return keccak(type_)


def _struct(type_: bytes, words: Iterable[bytes]) -> bytes:
    return keccak(_type_hash(type_) + b"".join(words))


def _digest(domain: Domain, struct: bytes) -> Digest:
    return Digest(keccak(b"\x19\x01" + domain.separator + struct))


def _word(value: int) -> bytes:
    return value.to_bytes(32, "big")
