"""Records that the ledger returns to the rest of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.terms.auditors import Replacement

if TYPE_CHECKING:
    from sapo_client.ledger.endpoints import EndpointStatus


@dataclass(frozen=True, slots=True)
class AnnouncedTerms:
    """Terms that the ledger announces, by the digest of their document."""

    number: int
    activation_epoch: int
    successor: Digest


@dataclass(frozen=True, slots=True)
class Announcement:
    """A change that the ledger announces and that was not withdrawn.

    Attributes:
        number: counts all announcements from 0 on, withdrawn ones included.
        successor: the digest of the document of the terms that follow; None where they stay.
        replacement: of an auditor; None where all stay.
    """

    number: int
    activation_epoch: int
    successor: Digest | None = None
    replacement: Replacement | None = None

    @property
    def terms(self) -> AnnouncedTerms | None:
        """The announced terms, if it announces any."""
        if self.successor is None:
            return None
        return AnnouncedTerms(self.number, self.activation_epoch, self.successor)


@dataclass(frozen=True, slots=True)
class RegistryEvent:
    """A claim on a node key, or its end (``not_after_seconds`` 0)."""

    account: Account
    node: NodeId
    not_after_seconds: int


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """A posting as it stands on the chain, live or final.

    Attributes:
        signers: bit i: the auditor at place i of the contract's list signed it, and was not convicted since.
    """

    root: EpochRoot
    posted_at_seconds: int
    signers: int


@dataclass(frozen=True, slots=True)
class Tip:
    """The newest end of the hash chain of records of final epochs.

    Attributes:
        history: hash of the data of the newest ``EpochFinal`` event.
        block: the number of that event's block.
    """

    history: Digest
    block: int


@dataclass(frozen=True, slots=True)
class FinalRecord:
    """All fields of an ``EpochFinal`` event.

    Attributes:
        name: hash of the event's data, its unique id.
        before: the tip before this record.
    """

    name: Digest
    record: EpochRecord
    before: Tip


@dataclass(frozen=True, slots=True)
class LeafQuestion:
    """A question about an account's leaves in the live posting, or in a final epoch.

    Attributes:
        deadline_seconds: from then on the posting can be rejected, or the final epoch and all later ones
            recalled, if nobody has answered.
    """

    asker: Account
    deadline_seconds: int


@dataclass(frozen=True, slots=True)
class Stake:
    """An account's bond in the vault, in the token's smallest unit.

    Attributes:
        bonded: the part that counts.
        exiting: the part that waits to be withdrawn.
    """

    bonded: int
    exiting: int
    withdrawable_at_seconds: int


@dataclass(frozen=True, slots=True)
class ContractAddresses:
    """The contracts that the ledger's own created, and the token that they pay and hold."""

    distributor: Account
    token: Account
    verifier: Account
    vault: Account


@dataclass(frozen=True, slots=True)
class PayoutAddress:
    """The address that an account's claims are paid to.

    Attributes:
        announced: the address that was announced last and is not applied; none if there is none.
        from_seconds: from when any account may apply it, Unix seconds; 0 if none is announced.
    """

    receiver: Account
    announced: Account | None = None
    from_seconds: int = 0

    @property
    def is_changing(self) -> bool:
        """Whether another address is announced."""
        return self.announced not in (None, self.receiver)


@dataclass(frozen=True, slots=True)
class ChainLook:
    """Result of one query of the chain's state.

    Attributes:
        coins_wei: balance of the node's account, for transaction fees; none where there is no chain.
        clock_ahead_seconds: see ``ClockCheck``.
        clock_agrees: see ``ClockCheck``.
    """

    coins_wei: int | None = None
    clock_ahead_seconds: float | None = None
    clock_agrees: bool = False


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """State of this node's own transactions.

    Attributes:
        pending: queued or sent, not yet confirmed.
        confirmed: on the chain, with the required number of confirmations, or no longer needed.
        refused: dropped, because the contract will never accept them.
        stuck: number of pending ones that have waited for a block longer than their fees should need.
        last_error: the last error, until it is resolved.
        lag_seconds: time since the chain last answered; none before its first answer.
        last_receipt_seconds: time of the newest block with a confirmed transaction, in Unix seconds.
        claims: the pairs of account and node key that were live when the registry was last read.
        endpoints: status of the RPC endpoints, in the configured order.
    """

    pending: int
    confirmed: int
    refused: int
    stuck: int
    last_error: str | None
    lag_seconds: float | None
    last_receipt_seconds: int | None
    claims: frozenset[tuple[Account, NodeId]]
    endpoints: tuple[EndpointStatus, ...]
