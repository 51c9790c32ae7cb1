"""The sender of a deployment's transactions: one at a time, each after the previous one is mined.

With an outbox every transaction is stored before it is sent. The same deployment, run again after any
interruption, then finds the transactions that it has already sent and continues after them.
"""

import logging
import time
from dataclasses import replace
from typing import Final

from eth_account.signers.local import LocalAccount

from sapo_client.ledger import transactions as tx
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.outbox import EntryState, Outbox, OutboxEntry
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.sender import Sender
from sapo_protocol.identifiers import Account

_LOG = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.5
"""Seconds between two queries for a receipt: a fraction of the fastest public block time."""
_RECEIPT_SECONDS: Final = 180
"""Timeout for a transaction to be mined."""
_KIND: Final = "deploy"


class Deployer:
    """An account that sends transactions; blocking.

    Attributes:
        done: all calls so far, with their receipts.
    """

    def __init__(self, account: LocalAccount, outbox: Outbox | None = None) -> None:
        self.done: list[tuple[tx.Call, tx.Receipt]] = []
        self._account = account
        self._outbox = outbox

    @property
    def address(self) -> str:
        """The account's address, checksummed."""
        return str(self._account.address)

    def send(self, rpc: Rpc, call: tx.Call) -> tx.Receipt:
        """Send a call, wait until it is mined, and return its receipt.

        Raises:
            LedgerError: it fails, or is not mined in time.
        """
        nonce, receipt = self._mined(rpc, call)
        if call.to is None and receipt.created is not None:
            # A majority must confirm it: a single lying endpoint could name another contract, and the founder
            # would fund it.
            receipt = replace(receipt, created=tx.created_by(Account.from_hex(self.address), nonce))
        self.done.append((call, receipt))
        _LOG.info("transaction %d of the deployment is mined", len(self.done))
        return receipt

    def _mined(self, rpc: Rpc, call: tx.Call) -> tuple[int, tx.Receipt]:
        """Return the nonce and the receipt of a call that is on the chain."""
        return self._send(rpc, call) if self._outbox is None else self._resume(rpc, call, self._outbox)

    def _send(self, rpc: Rpc, call: tx.Call) -> tuple[int, tx.Receipt]:
        signed = tx.sign(rpc, self._account, call, tx.next_nonce(rpc, Account.from_hex(self.address)))
        tx.send(rpc, signed)
        deadline = time.monotonic() + _RECEIPT_SECONDS
        while (receipt := tx.receipt(rpc, signed.digest)) is None:
            if time.monotonic() > deadline:
                raise LedgerError(
                    "the transaction was not mined", hint="look for it: 0x" + signed.digest.hex()
                )
            time.sleep(_POLL_SECONDS)
        if not receipt.succeeded:
            raise LedgerError(
                "the transaction was mined but reverted", hint="look for it: 0x" + signed.digest.hex()
            )
        return signed.nonce, receipt

    def _resume(self, rpc: Rpc, call: tx.Call, outbox: Outbox) -> tuple[int, tx.Receipt]:
        key = str(len(self.done))
        outbox.add(_KIND, key, call)
        sender = Sender(rpc, self._account, outbox, confirmations=1)
        deadline = time.monotonic() + _RECEIPT_SECONDS
        while (entry := _entry(outbox, key, call)).state is not EntryState.CONFIRMED:
            sender.step()
            if sender.last_error is not None or time.monotonic() > deadline:
                raise LedgerError(
                    f"the deployment stopped at transaction {key}: {sender.last_error or 'not mined yet'}",
                    hint="run the same command again: it continues from there",
                )
            if entry.state is EntryState.SIGNED and outbox.entries(EntryState.SIGNED):
                time.sleep(_POLL_SECONDS)
        receipts = ((signed.nonce, tx.receipt(rpc, signed.digest)) for signed in entry.transactions)
        mined = next(((nonce, receipt) for nonce, receipt in receipts if receipt is not None), None)
        if mined is None:
            raise LedgerError(
                f"the chain no longer knows transaction {key} of this deployment",
                hint="run the same command again; for another chain, deploy into another folder",
            )
        return mined


def _entry(outbox: Outbox, key: str, call: tx.Call) -> OutboxEntry:
    (entry,) = (entry for entry in outbox.entries() if (entry.kind, entry.key) == (_KIND, key))
    if entry.call != call:
        raise LedgerError(
            f"transaction {key} of this deployment differs from the one that was planned at its start",
            hint="repeat the settings that it was started with, or deploy into another folder",
        )
    return entry
