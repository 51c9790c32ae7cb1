"""Moving the outbox's entries onto the chain, one step at a time; blocking, for a worker thread."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eth_account.signers.local import LocalAccount
from web3.exceptions import Web3Exception

from sapo_client.ledger import transactions as tx
from sapo_client.ledger.errors import LedgerError, LedgerUnavailable
from sapo_client.ledger.outbox import Entry, Outbox, State
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.identifiers import Account

_NEEDLESS: Final = frozenset(
    {"AlreadyProven", "EpochNotIncreasing", "NoPayoutChange", "NothingLive", "NothingToClaim"}
)
"""Somebody else has settled or challenged the epoch, or the points are paid: what we wanted is so."""

_HOPELESS: Final = frozenset(
    {
        "AlreadyExpired",
        "EmptyNodeKey",
        "EmptyPayout",
        "NoContradiction",
        "NoDecrease",
        "NotAuditor",
        "NotRegistered",
        "OverBudget",
        "RootRejected",
        "SignerOrder",
        "SumMatches",
        "TooFewSignatures",
        "TooManyNodes",
        "WasEarned",
        "WithinCap",
        "WrongLeaves",
        "WrongProof",
        "ECDSAInvalidSignature",
        "ECDSAInvalidSignatureLength",
        "ECDSAInvalidSignatureS",
    }
)
"""The same call will be refused for ever. All other errors (too early, not funded) may pass with time."""

_MAX_UNDER_WAY: Final = 8
"""Nodes keep few transactions of one account in their pools; the rest waits here, in order."""

_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0
"""A minute at most: an epoch is minutes long, and a refused estimate costs the endpoint little."""


@dataclass(slots=True)
class _Delay:
    seconds: float
    until: float


class Sender:
    """The only sender of one account.

    Args:
        confirmations: blocks, the transaction's own included, that make it count as settled.
        clock: monotonic, in seconds.

    Attributes:
        last_error: what went wrong last, if that is not over.
    """

    def __init__(
        self,
        rpc: Rpc,
        account: LocalAccount,
        outbox: Outbox,
        *,
        confirmations: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.last_error: str | None = None
        self._rpc = rpc
        self._account = account
        self._outbox = outbox
        self._confirmations = confirmations
        self._clock = clock
        self._head = 0
        self._delays: dict[int, _Delay] = {}
        self._one_at_a_time = threading.Lock()  # an abandoned thread may still be in here

    def step(self) -> bool:
        """Look after everything under way, then send what is due.

        Returns:
            whether anything is left to do.

        Raises:
            LedgerUnavailable: no endpoint answers; nothing is lost.
        """
        with self._one_at_a_time:
            self._head = tx.head_block(self._rpc)  # also when idle: a dead chain should be noticed
            self.last_error = None
            for entry in self._outbox.entries(State.SIGNED):
                self._guarded(entry, self._follow)
            self._send_due()
            counts = self._outbox.counts()
            return counts[State.QUEUED] + counts[State.SIGNED] > 0

    def _send_due(self) -> None:
        free = _MAX_UNDER_WAY - self._outbox.counts()[State.SIGNED]
        due = [entry for entry in self._outbox.entries(State.QUEUED) if self._is_due(entry)]
        for entry in due[: max(free, 0)]:
            self._guarded(entry, self._dispatch)

    def _guarded(self, entry: Entry, action: Callable[[Entry], None]) -> None:
        try:
            action(entry)
        except LedgerUnavailable:
            raise
        except (LedgerError, Web3Exception) as error:  # a busy endpoint has many words for "later"
            self.last_error = f"{entry.kind} {entry.key}: {error}"
            self._postpone(entry)

    def _dispatch(self, entry: Entry) -> None:
        sender = Account.from_hex(self._account.address)
        nonce = self._outbox.next_nonce(lambda: tx.next_nonce(self._rpc, sender))
        try:
            signed = tx.sign(self._rpc, self._account, entry.call, nonce)
        except tx.Refused as refused:
            self._settle_refusal(entry, refused)
            return
        self._outbox.sign(entry, signed)  # on disk before anybody else sees it
        self._send_signed(entry, signed)

    def _settle_refusal(self, entry: Entry, refused: tx.Refused) -> None:
        if refused.error in _NEEDLESS:
            self._outbox.confirm(entry, refused.error)
        elif refused.error in _HOPELESS:
            self._outbox.refuse(entry, str(refused.error))
            self.last_error = f"{entry.kind} {entry.key}: {refused}"
        else:
            raise refused

    def _follow(self, entry: Entry) -> None:
        signed = entry.signed
        if signed is None:
            raise LedgerError(f"entry {entry.id} lost its transaction", hint="move the outbox file away")
        receipt = tx.receipt(self._rpc, signed.digest)
        if receipt is None:
            self._send_signed(entry, signed)
        elif self._head - receipt.block + 1 < self._confirmations:
            return
        elif receipt.succeeded:
            self._outbox.confirm(entry)
            self._delays.pop(entry.id, None)
        else:
            # Somebody was faster. The next estimate tells whether it is needless or worth another try.
            self._outbox.requeue(entry, "reverted")
            self._postpone(entry)

    def _send_signed(self, entry: Entry, signed: tx.Signed) -> None:
        try:
            tx.send(self._rpc, signed)
        except tx.NonceUsed:
            if tx.receipt(self._rpc, signed.digest) is None:
                self._outbox.requeue(entry, "its nonce went to another transaction")
                raise

    def _is_due(self, entry: Entry) -> bool:
        delay = self._delays.get(entry.id)
        return delay is None or self._clock() >= delay.until

    def _postpone(self, entry: Entry) -> None:
        last = self._delays.get(entry.id)
        seconds = _FIRST_RETRY_SECONDS if last is None else min(last.seconds * 2, _LAST_RETRY_SECONDS)
        self._delays[entry.id] = _Delay(seconds, self._clock() + seconds)
