"""A ledger's auditors by epoch, and the changes of terms or auditors that they announce."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

from sapo_client.ledger import terms
from sapo_client.ledger.contract import EpochLedgerContract
from sapo_client.ledger.fraud import by_signer
from sapo_client.ledger.records import EpochRecord
from sapo_client.ledger.transactions import Call
from sapo_protocol.eip712 import EpochApproval, SuccessionNotice, SuccessionWithdrawal
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.auditors import Auditors

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
Enqueue = Callable[[str, str, Call], Awaitable[None]]


class LedgerChanges:
    """The auditors of a ledger, and their announcements to it.

    Args:
        in_thread: runs a blocking query of the chain in a worker thread.
        enqueue: queues a transaction of a kind under a name.
    """

    def __init__(
        self, ledger: EpochLedgerContract, manifest: Manifest, in_thread: InThread, enqueue: Enqueue
    ) -> None:
        self._ledger: Final = ledger
        self._domain: Final = manifest.ledger_domain
        self._in_thread: Final = in_thread
        self._enqueue: Final = enqueue

    async def auditors(self) -> tuple[Auditors, int]:
        """Return the accounts whose signatures count, by epoch, and how many a posting needs."""
        found: tuple[Auditors, int] = await self._in_thread(self._ledger.auditors)
        return found

    async def bonded(self, auditors: Iterable[Account]) -> frozenset[Account]:
        """Return the auditors whose bond suffices now, so that a posting may carry their signatures."""
        found: frozenset[Account] = await self._in_thread(lambda: terms.bonded(self._ledger, auditors))
        return found

    async def is_punishable(self, auditor: Account, epoch: int) -> bool:
        """Whether a proof of two signatures in an epoch costs an auditor something now."""
        return bool(await self._in_thread(lambda: terms.is_punishable(self._ledger, auditor, epoch)))

    async def is_rejected(self, statement: EpochApproval) -> bool:
        """Whether the ledger has rejected a root and will refuse it with any signatures."""
        return bool(await self._in_thread(lambda: self._ledger.is_rejected(statement)))

    async def complete(
        self, live: EpochRecord, statement: EpochApproval, signatures: Sequence[bytes]
    ) -> None:
        """Queue more signatures, in any order, for the live posting, which has lost some.

        It waits for no queued posting: another statement of the epoch is refused as long as this one is live.
        """
        ordered = by_signer(statement.digest(self._domain), signatures)
        key = f"{live.root.epoch}:{live.posted_at_seconds}:{live.signers:x}"
        await self._enqueue(
            "signatures", key, Call(self._ledger.address, self._ledger.post(statement, ordered))
        )

    async def next_number(self) -> int:
        """Return the number of the next announcement."""
        return int(await self._in_thread(self._ledger.next_succession))

    async def current_epoch(self) -> int:
        """Return the epoch that the ledger's clock shows, by its last block."""
        return int(await self._in_thread(self._ledger.current_epoch))

    async def send(
        self, statement: SuccessionNotice | SuccessionWithdrawal, signatures: Sequence[bytes]
    ) -> None:
        """Queue an announcement, or its withdrawal, with its auditors' signatures in any order."""
        ordered = by_signer(statement.digest(self._domain), signatures)
        fingerprint = sha256(b"".join(ordered)).hexdigest()[:16]
        if isinstance(statement, SuccessionWithdrawal):
            data, name = self._ledger.withdraw_successor(ordered), f"withdraw:{statement.number}"
        else:
            data, name = self._ledger.announce(statement, ordered), str(statement.number)
        await self._enqueue("succession", f"{name}:{fingerprint}", Call(self._ledger.address, data))
