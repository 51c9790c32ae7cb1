"""Sends the outbox's transactions, one step at a time; blocking, for a worker thread."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eth_account.signers.local import LocalAccount
from web3.exceptions import Web3Exception

from sapo_client.ledger import transactions as tx
from sapo_client.ledger.errors import ErrorCounts, LedgerError, LedgerUnavailable
from sapo_client.ledger.fees import DEFAULT_LIMIT_WEI, STUCK_BLOCKS, URGENT_BLOCKS
from sapo_client.ledger.outbox import EntryState, Outbox, OutboxEntry
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.settlement import Fate, Settled, fate, is_lost, settled_refusal
from sapo_protocol.identifiers import Account

_LOG = logging.getLogger(__name__)

_NEEDLESS: Final = frozenset(
    {
        "AlreadyAccused",
        "AlreadyAsked",
        "AlreadyProven",
        "AlreadySlashed",
        "EpochNotIncreasing",
        "NoPayoutChange",
        "NotAsked",
        "NothingExiting",
        "NothingLive",
        "NothingToClaim",
    }
)
"""Errors of requests no longer needed: another account was faster, or the points are paid."""

_OUTDATED: Final = frozenset({"NotFinal"})
"""Errors that mean that the request is outdated; if it is still needed, it is requested again."""

_OUTDATED_OF_KIND: Final = {"signatures": frozenset({"OtherPostingLive"})}
"""The same of some kinds alone: another auditor has added the signatures to the live posting, or it is gone.
As long as such a request waits, it holds up signatures that are needed after the next strike."""

_HOPELESS: Final = frozenset(
    {
        "AlreadyExpired",
        "EmptyNodeKey",
        "EmptyPayout",
        "AuditorNotBonded",
        "BadPath",
        "Balanced",
        "NoAnswer",
        "BadReplacement",
        "NoContradiction",
        "NoDecrease",
        "NotAuditor",
        "NothingBonded",
        "NotThatMuchBonded",
        "NotRegistered",
        "NothingChanges",
        "NothingPending",
        "OverBudget",
        "RootRejected",
        "SignerOrder",
        "StaleBase",
        "SuccessorPending",
        "SumMatches",
        "TooFewSignatures",
        "TooLateToAsk",
        "TooLateToRecall",
        "TooLateToWithdraw",
        "TooManyNodes",
        "TooSoon",
        "WasEarned",
        "WithinCap",
        "WrongLeaves",
        "WrongNumber",
        "WrongProof",
        "WrongSum",
        "ECDSAInvalidSignature",
        "ECDSAInvalidSignatureLength",
        "ECDSAInvalidSignatureS",
    }
)
"""The same call will be refused for ever. All other errors (too early, not funded) may pass with time.

A bond that was slashed may be made good; but when is unknown, and younger postings must not wait for it. An
auditor who finds it made good requests the posting again.
"""

_URGENT: Final = frozenset({"challenge"})
"""Kinds that are worthless after their window: their fees are raised sooner and faster."""

_MAX_UNDER_WAY: Final = 8
_MAX_URGENT_UNDER_WAY: Final = 16
"""Maximum numbers of pending transactions, and of those with urgent ones among them. Ethereum nodes keep few
of one account in their mempools: sixteen at least."""

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
        limit_wei: most that a unit of gas may cost.
        clock: monotonic, in seconds.
        errors: counts what went wrong with single transactions.

    Attributes:
        last_error: the last error, until it is resolved.
        head: number of the last block at the last step.
    """

    def __init__(
        self,
        rpc: Rpc,
        account: LocalAccount,
        outbox: Outbox,
        *,
        confirmations: int,
        limit_wei: int = DEFAULT_LIMIT_WEI,
        clock: Callable[[], float] = time.monotonic,
        errors: ErrorCounts | None = None,
    ) -> None:
        self.last_error: str | None = None
        self.head = 0
        self._rpc = rpc
        self._account = account
        self._address = Account.from_hex(account.address)
        self._outbox = outbox
        self._confirmations = confirmations
        self._limit_wei = limit_wei
        self._clock = clock
        self._errors = errors or ErrorCounts()
        self._chain_nonce = 0
        self._urgent_nonce = -1
        self._delays: dict[int, _Delay] = {}
        self._needless: set[int] = set()
        self._one_at_a_time = threading.Lock()  # an abandoned thread may still be in here

    def step(self) -> bool:
        """Check all pending transactions, then send those that are due.

        Returns:
            whether anything is left to do.

        Raises:
            LedgerUnavailable: no endpoint answers; nothing is lost.
            LedgerError: they contradict each other, or all serve another chain; nothing is lost either.
        """
        with self._one_at_a_time:
            self.head = self._rpc.survey()  # also when idle: a dead chain should be noticed
            self._chain_nonce = tx.next_nonce(self._rpc, self._address)
            self.last_error = None
            self._outbox.reopen(self._chain_nonce)
            signed = self._outbox.entries(EntryState.SIGNED)
            urgent = (each.signed.nonce for each in signed if each.signed and each.kind in _URGENT)
            self._urgent_nonce = max(urgent, default=-1)
            for entry in signed:
                self._guarded(entry, self._follow)
            self._send_due()
            counts = self._outbox.counts()
            return counts[EntryState.QUEUED] + counts[EntryState.SIGNED] > 0

    def _send_due(self) -> None:
        """Send what is due, urgent ones first, then oldest first.

        A waiting entry holds up younger ones of its kind. One whose purpose is reached already holds up none:
        nothing depends on it, and others can cause it, such as whoever answers its own questions. Urgent ones
        hold up no other either, and have places of their own: other transactions may be stuck for longer than
        their window, and are raised only once an urgent one waits behind them.
        """
        under_way = self._outbox.counts()[EntryState.SIGNED]
        waiting: set[str] = set()
        queued = self._outbox.entries(EntryState.QUEUED)
        for entry in sorted(queued, key=lambda each: each.kind not in _URGENT):
            places = _MAX_URGENT_UNDER_WAY if entry.kind in _URGENT else _MAX_UNDER_WAY
            if under_way < places and entry.kind not in waiting and self._is_due(entry):
                self._guarded(entry, self._dispatch)
                under_way += 1
            holds_up = entry.kind not in _URGENT and entry.id not in self._needless
            if holds_up and self._outbox.is_queued(entry):
                waiting.add(entry.kind)

    def _guarded(self, entry: OutboxEntry, action: Callable[[OutboxEntry], None]) -> None:
        try:
            action(entry)
        except LedgerUnavailable:
            raise
        except (LedgerError, Web3Exception) as error:  # busy endpoints return many different errors
            self._errors.note(error)
            self.last_error = f"{entry.kind} {entry.key}: {error}"
            _LOG.warning("later again: %s", self.last_error)
            self._postpone(entry)

    def _dispatch(self, entry: OutboxEntry) -> None:
        nonce = self._outbox.next_nonce(self._chain_nonce)
        try:
            signed = tx.sign(
                self._rpc, self._account, entry.call, nonce, limit_wei=self._limit_wei, block=self.head
            )
        except tx.Refused as refused:
            self._settle_refusal(entry, refused)
            return
        self._needless.discard(entry.id)
        self._outbox.sign(entry, signed)  # on disk before it is sent
        self._send_signed(entry, signed)

    def _settle_refusal(self, entry: OutboxEntry, refused: tx.Refused) -> None:
        """End an entry whose refusal is permanent: settled, and independent of pending requests."""
        if refused.error in _NEEDLESS:
            self._needless.add(entry.id)
        else:
            self._needless.discard(entry.id)
        outdated = _OUTDATED | _OUTDATED_OF_KIND.get(entry.kind, frozenset())
        known = refused.error in _NEEDLESS | outdated | _HOPELESS
        if not known or self._may_change(entry) or not self._is_settled(entry, refused):
            raise refused
        if refused.error in _NEEDLESS:
            self._outbox.confirm(entry, refused.error)
        elif refused.error in outdated:
            self._outbox.refuse(entry, str(refused.error))
        else:
            self._errors.note(refused)
            self._outbox.refuse(entry, str(refused.error))
            self.last_error = f"{entry.kind} {entry.key}: {refused}"
            _LOG.warning("refused for good: %s", self.last_error)

    def _may_change(self, entry: OutboxEntry) -> bool:
        """Whether this one may depend on another pending request of this node."""
        return any(
            other.state is EntryState.SIGNED or (other.id < entry.id and other.call.to == entry.call.to)
            for other in self._outbox.entries(EntryState.QUEUED, EntryState.SIGNED)
            if other.id != entry.id
        )

    def _is_settled(self, entry: OutboxEntry, refused: tx.Refused) -> bool:
        settled = settled_refusal(self._rpc, self._address, entry.call, self._confirmations)
        return settled == refused.error

    def _follow(self, entry: OutboxEntry) -> None:
        signed = entry.signed
        if signed is None:
            raise LedgerError(f"entry {entry.id} lost its transaction", hint="move the outbox file away")
        digests = [transaction.digest for transaction in entry.transactions]
        found = fate(self._rpc, digests, self._confirmations)
        if isinstance(found, Settled):
            self._settle(entry, found)
        elif found is Fate.UNSEEN:
            self._send_signed(entry, self._replaced_if_stuck(entry, signed))

    def _settle(self, entry: OutboxEntry, settled: Settled) -> None:
        if settled.receipt.succeeded:
            self._outbox.confirm(entry, at_seconds=settled.block_seconds)
            _LOG.info("%s %s is on the chain", entry.kind, entry.key)
            self._delays.pop(entry.id, None)
        else:
            # Another account was faster. The next estimate shows whether it is needless or worth another try.
            self._outbox.requeue(entry, "reverted")
            self._postpone(entry)

    def _replaced_if_stuck(self, entry: OutboxEntry, signed: tx.Signed) -> tx.Signed:
        """Return the transaction to send now: a replacement with higher fees if the last one is stuck.

        An urgent one can be mined only after all before it, so these are raised together with it.
        """
        urgent = signed.nonce <= self._urgent_nonce
        patience = URGENT_BLOCKS if urgent else STUCK_BLOCKS
        if self.head - signed.block < patience or (signed.nonce != self._chain_nonce and not urgent):
            return signed  # it has waited for a short while only, or waits for one before it
        better = tx.replacement(
            self._rpc,
            self._account,
            entry.call,
            signed,
            limit_wei=self._limit_wei,
            block=self.head,
            urgent=urgent,
        )
        if better is None:
            self.last_error = f"{entry.kind} {entry.key}: stuck, and ledger.max_fee_gwei allows no higher fee"
            return signed
        self._outbox.sign(entry, better)  # on disk before it is sent
        return better

    def _send_signed(self, entry: OutboxEntry, signed: tx.Signed) -> None:
        _LOG.info("sending %s %s with nonce %d", entry.kind, entry.key, signed.nonce)
        try:
            tx.send(self._rpc, signed)
        except tx.NonceUsed:
            digests = [signed.digest, *(transaction.digest for transaction in entry.transactions)]
            if is_lost(self._rpc, self._address, signed.nonce, digests, self._confirmations):
                self._outbox.requeue(entry, "its nonce went to another transaction")
                raise

    def _is_due(self, entry: OutboxEntry) -> bool:
        delay = self._delays.get(entry.id)
        return delay is None or self._clock() >= delay.until

    def _postpone(self, entry: OutboxEntry) -> None:
        last = self._delays.get(entry.id)
        seconds = _FIRST_RETRY_SECONDS if last is None else min(last.seconds * 2, _LAST_RETRY_SECONDS)
        self._delays[entry.id] = _Delay(seconds, self._clock() + seconds)
