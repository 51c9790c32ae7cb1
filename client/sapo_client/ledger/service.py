"""The node's asynchronous interface to the ledger: blocking web3 calls run in worker threads."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

import trio
from eth_account.signers.local import LocalAccount
from eth_utils import to_checksum_address
from web3.exceptions import Web3Exception

from sapo_client.ledger import terms
from sapo_client.ledger.account_bond import Gate
from sapo_client.ledger.artifact import LEDGER_VERSION
from sapo_client.ledger.changes import LedgerChanges
from sapo_client.ledger.clock_check import ClockCheck
from sapo_client.ledger.contract import Distributor, EpochLedgerContract, Registry, Token
from sapo_client.ledger.errors import ErrorCounts, LedgerError, LedgerUnavailable, WrongChain
from sapo_client.ledger.fees import DEFAULT_LIMIT_WEI, STUCK_BLOCKS
from sapo_client.ledger.fraud import FraudProof, by_signer
from sapo_client.ledger.history import History
from sapo_client.ledger.leaf_questions import LeafQuestions
from sapo_client.ledger.outbox import EntryState, Outbox
from sapo_client.ledger.records import (
    Announcement,
    ChainLook,
    ContractAddresses,
    EpochRecord,
    LedgerStatus,
    PayoutAddress,
    Stake,
)
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.scan import RegistryView, first_block_from, numbered_block_before
from sapo_client.ledger.sender import Sender
from sapo_client.ledger.transactions import Call
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, ContentId, NodeId
from sapo_protocol.manifest import Manifest

T = TypeVar("T")

_POLL_SECONDS: Final = 1.0
"""Seconds between two checks of pending transactions; public chains need two or more for a block."""

_IDLE_SECONDS: Final = 30.0
"""Seconds between two queries of the chain while there is nothing to send."""

_FIRST_OUTAGE_SECONDS: Final = 1.0
_LAST_OUTAGE_SECONDS: Final = 60.0
"""Pauses after a failure, in seconds: doubling, a minute at most."""


class LedgerClient:
    """One account's client of its swarm's contracts.

    Transactions are only queued; ``run`` sends them. Methods that read the chain raise
    ``LedgerUnavailable`` where no endpoint answers.

    Args:
        manifest: of a swarm with a chain.
        confirmations: blocks, the own one included, that settle a transaction or an event. One is right for
            the embedded chain, which knows no reorganisation; public networks need more.
        limit_wei: most that a unit of gas may cost.
        report: called from any thread with a description of each new problem of an RPC endpoint.
        clock: this machine's clock, Unix seconds; called from any thread.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        account: LocalAccount,
        rpc_urls: Sequence[str],
        outbox_path: Path,
        confirmations: int = 1,
        limit_wei: int = DEFAULT_LIMIT_WEI,
        report: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if manifest.registry is None or manifest.ledger is None:
            raise LedgerError("this swarm has no chain", hint="use --no-ledger")
        self._manifest = manifest
        self._account = Account.from_hex(account.address)
        self._confirmations = confirmations
        self._clock = clock
        self._rpc = Rpc(rpc_urls, chain_id=manifest.chain_id, report=report)
        self._registry = Registry(self._rpc, manifest.registry)
        self._ledger = EpochLedgerContract(self._rpc, manifest.ledger)
        self.changes = LedgerChanges(self._ledger, manifest, self._in_thread, self._enqueue)
        self._history = History(self._ledger)
        self.leaves = LeafQuestions(
            self._ledger, self._history, manifest, self.balance, self._in_thread, self._enqueue
        )
        self._gate = Gate(self._rpc, manifest, self._ledger)
        self._before = partial(numbered_block_before, self._rpc, confirmations=confirmations, now=clock)
        self._from = partial(first_block_from, self._rpc, confirmations=confirmations, now=clock)
        self._outbox = Outbox(outbox_path, owner=f"{manifest.swarm_id} 0x{self._account.hex()}")
        self._errors = ErrorCounts()
        self._clock_check = ClockCheck()
        self._sender = Sender(
            self._rpc,
            account,
            self._outbox,
            confirmations=confirmations,
            limit_wei=limit_wei,
            errors=self._errors,
        )
        self._claims = RegistryView(self._rpc, self._registry, confirmations=confirmations)
        self._outage: str | None = None
        self._wake = trio.Event()
        self._counts = self._outbox.counts()
        self._counting = trio.Lock()
        self._last_receipt_seconds = self._outbox.last_settled_seconds()
        self._stuck = 0
        self._live: frozenset[tuple[Account, NodeId]] = frozenset()
        self._contracts: tuple[Distributor, Token] | None = None
        self._version: int | None = None

    # Reading

    async def can_settle(self) -> bool:
        """Whether the ledger is of the current version; on one of an earlier version points are only claimed.

        Raises:
            LedgerError: its version is unknown.
        """
        if self._version is None:
            self._version = await self._in_thread(lambda: terms.require_code(self._ledger))
        return self._version == LEDGER_VERSION

    async def check(self) -> None:
        """Raise unless chain and contracts match the manifest.

        Raises:
            LedgerError: they do not match, or no endpoint answers.
        """
        await self._in_thread(self._check)

    async def look(self, now: Callable[[], float] = time.time, *, claims: bool = True) -> ChainLook:
        """Query the state of this account and the chain's time.

        Args:
            now: this machine's clock, Unix seconds.
            claims: read the registry too; ``status`` then shows its live claims.

        Raises:
            LedgerError: no endpoint answers, or all serve another chain.
        """
        return await self._in_thread(lambda: self._look(now, claims=claims))

    async def block_hash_before(self, timestamp_seconds: int) -> bytes:
        """Return the hash of the last block before a moment in the past, the ground of an epoch's beacon."""
        return await self._in_thread(lambda: self._before(timestamp_seconds)[1])

    async def block_hash_from(self, timestamp_seconds: int) -> bytes:
        """Return the hash of the first block from a moment in the past on, the ground of an audit's draw."""
        return await self._in_thread(lambda: self._from(timestamp_seconds))

    async def final_root_before(self, timestamp_seconds: int) -> EpochRoot | None:
        """Return the root of the last epoch that is final in the last block before a moment in the past."""
        return await self._in_thread(lambda: self._history.root_by(self._before(timestamp_seconds)[0]))

    async def final_roots_before(self, timestamp_seconds: int, first_epoch: int) -> Sequence[EpochRoot]:
        """Return the roots final in that block, ascending: from an epoch on, and the last before it."""

        def read() -> Sequence[EpochRoot]:
            return self._history.roots_by(self._before(timestamp_seconds)[0], first_epoch)

        return await self._in_thread(read)

    async def bonds_before(self, timestamp_seconds: int) -> Mapping[Account, int]:
        """Return each account's bond or attestations for the gate in the last block before a past moment.

        Bonds in the token's smallest part, or numbers of attestations.

        Raises:
            LedgerError: the swarm's gate requires neither, or they cannot be read now.
        """
        return await self._in_thread(lambda: self._gate.bonds_at(self._before(timestamp_seconds)[0]))

    async def attestations(self) -> int:
        """Return the number of this account's attestations that count now.

        Raises:
            LedgerError: the swarm's gate requires none, or they cannot be read now.
        """
        return await self._in_thread(lambda: self._gate.attestations(self._account))

    async def live_accounts(self) -> frozenset[tuple[Account, NodeId]]:
        """Return every pair of an account and a node key that the account claims at the moment."""
        self._live = await self._in_thread(lambda: self._claims.live(self._clock()))
        return self._live

    async def successions(self) -> tuple[Announcement, ...]:
        """Return the changes that the ledger announces; none on a ledger of an earlier version."""
        return await self._in_thread(self._ledger.successions) if await self.can_settle() else ()

    async def last_record(self) -> EpochRecord | None:
        """Return the last final epoch, if there is one."""
        return await self._in_thread(self._history.last)

    async def record(self, epoch: int) -> EpochRecord | None:
        """Return the posting of an epoch, if it is final."""
        return await self._in_thread(lambda: self._history.record(epoch))

    async def live_record(self) -> EpochRecord | None:
        """Return the posting that can still be challenged, if there is one."""
        return await self._in_thread(self._ledger.live)

    async def next_epoch(self) -> int:
        """Return the first epoch that can still be posted: above all that were ever final, or recalled."""
        return await self._in_thread(self._ledger.next_epoch)

    async def challenge_seconds(self) -> int:
        """Return how long a posting can be challenged before it may become final."""
        return await self._in_thread(self._ledger.challenge_seconds)

    async def points_cap(self) -> int:
        """Return the most points that an account may earn in one epoch."""
        return await self._in_thread(lambda: self._ledger.verifier().points_cap())

    async def epoch_budget(self) -> int:
        """Return the most points that one epoch may grant, to all accounts together."""
        return await self._in_thread(self._ledger.epoch_budget)

    @property
    def chain_seconds(self) -> int:
        """Return the time of the last block that a check or a look has seen, Unix seconds; 0 before it."""
        return self._rpc.head_seconds or 0

    async def treasury(self) -> terms.Treasury:
        """Return the treasury's balance, and the rate at which it is paid out."""
        recent = partial(self._history.recent, terms.RATE_EPOCHS)
        return await self._in_thread(lambda: terms.read_treasury(self._pay_side()[0], recent()))

    async def has_equivocated(self, auditor: Account, epoch: int, turn: int) -> bool:
        """Whether an auditor's two signatures in a turn of an epoch were punished already."""
        return await self._in_thread(lambda: self._ledger.verifier().has_equivocated(auditor, epoch, turn))

    async def stake(self, account: Account | None = None, *, gate: bool = False) -> Stake:
        """Return the bond of an account (this one if none is named) in the vault, or of the gate."""
        return await self._in_thread(lambda: self._gate.bonds(gate=gate).stake(account or self._account))

    async def auditor_bond(self) -> int:
        """Return the bond that an auditor's signatures need to count, in the token's smallest unit."""
        return await self._in_thread(self._ledger.auditor_bond)

    async def exit_seconds(self, *, gate: bool = False) -> int:
        """Return the time from a requested exit to its withdrawal."""
        return await self._in_thread(lambda: self._gate.bonds(gate=gate).exit_seconds())

    async def contracts(self) -> ContractAddresses:
        """Return the addresses of the contracts that transactions go to."""
        return await self._in_thread(self._addresses)

    async def registered_until(self, node_key: bytes) -> int:
        """Return the end of this account's claim on a node key, in Unix seconds; 0 if there is none."""
        await self.live_accounts()
        return self._claims.end_seconds(self._account, NodeId(node_key))

    async def claimed(self, account: Account | None = None) -> int:
        """Return the points that an account (this one if none is named) was paid so far."""
        return await self._in_thread(lambda: self._pay_side()[0].claimed(account or self._account))

    async def balance(self, account: Account | None = None) -> int:
        """Return the tokens that an account (this one if none is named) holds, in the smallest unit."""
        return await self._in_thread(lambda: self._pay_side()[1].balance(account or self._account))

    async def payout(self) -> PayoutAddress:
        """Return the address that this account's claims go to, and the one that was announced."""
        return await self._in_thread(lambda: terms.read_payout(self._pay_side()[0], self._account))

    async def contract_name(self, account: Account) -> str | None:
        """Return which of the contracts in this package the code at an address is; None if none of them."""
        return await self._in_thread(lambda: terms.contract_name(self._rpc, account))

    def status(self) -> LedgerStatus:
        """Return the state of this node's transactions, without a query."""
        answered = self._rpc.last_answer_seconds
        return LedgerStatus(
            pending=self._counts[EntryState.QUEUED] + self._counts[EntryState.SIGNED],
            confirmed=self._counts[EntryState.CONFIRMED],
            refused=self._counts[EntryState.REFUSED],
            stuck=self._stuck,
            last_error=self._outage or self._sender.last_error,
            lag_seconds=None if answered is None else time.monotonic() - answered,
            last_receipt_seconds=self._last_receipt_seconds,
            claims=self._live,
            endpoints=self._rpc.endpoints,
        )

    def take_errors(self) -> Mapping[str, int]:
        """Return how many queries and transactions failed since the last call, by kind."""
        return self._errors.take()

    async def pending(self, kind: str | None = None) -> int:
        """Return how many requests (of one kind, if named) are not settled, whichever process sends them."""
        counts = await self._in_thread(lambda: self._outbox.counts(kind))
        return counts[EntryState.QUEUED] + counts[EntryState.SIGNED]

    async def refused(self, kind: str) -> int:
        """Return how many requests of a kind the contracts will never accept."""
        return (await self._in_thread(lambda: self._outbox.counts(kind)))[EntryState.REFUSED]

    # Writing

    async def register(self, node_key: bytes, not_after_seconds: int) -> None:
        """Queue this account's claim on a node key until a moment."""
        key = NodeId(node_key)
        call = Call(self._registry.address, self._registry.register(key, not_after_seconds))
        await self._enqueue("register", f"{key}:{not_after_seconds}", call)

    async def revoke(self, node_key: bytes) -> None:
        """Queue the revocation of this account's claim on a node key, as last read from the registry."""
        key = NodeId(node_key)
        end_seconds = self._claims.end_seconds(self._account, key)  # a later claim can be ended again
        call = Call(self._registry.address, self._registry.revoke(key))
        await self._enqueue("revoke", f"{key}:{end_seconds}", call)

    async def post(self, statement: EpochApproval, signatures: Sequence[bytes]) -> None:
        """Queue an epoch's root with its auditors' signatures, in any order."""
        ordered = by_signer(statement.digest(self._manifest.ledger_domain), signatures)
        fingerprint, root = sha256(b"".join(ordered)).hexdigest()[:16], statement.root
        call = Call(self._ledger.address, self._ledger.post(statement, ordered))
        await self._enqueue("post", f"{root.epoch}:{root.cumulative_root}:{fingerprint}", call)

    async def finalise(self, live: EpochRecord) -> None:
        """Queue the finalisation of the live posting; its window must be over.

        The same root may be posted again after it lost a signer: that is another request.
        """
        digest = live.root.digest(self._manifest.ledger_domain)
        key = f"{live.root.epoch}:{digest}:{live.posted_at_seconds}"
        await self._enqueue("finalise", key, Call(self._ledger.address, self._ledger.finalise()))

    async def challenge(self, epoch: int, proof: FraudProof) -> None:
        """Queue a proof that an auditor or the live posting of an epoch is false."""
        verifier = await self._in_thread(self._ledger.verifier)
        for recording in proof.recordings():  # the contract refuses the proof until they are on the chain
            call = Call(verifier.address, verifier.record(recording))
            await self._enqueue("challenge", f"record:{recording.root}:{recording.account}", call)
        data = verifier.prove(proof)
        await self._enqueue(
            "challenge", f"{epoch}:{sha256(data).hexdigest()[:16]}", Call(verifier.address, data)
        )

    async def claim(self, cumulative: int, proof: Sequence[bytes]) -> None:
        """Queue a claim of everything that this account was granted and not paid yet."""
        distributor, _ = await self._in_thread(self._pay_side)
        fingerprint = sha256(b"".join(proof)).hexdigest()[:16]
        call = Call(distributor.address, distributor.claim(self._account, cumulative, proof))
        await self._enqueue("claim", f"{cumulative}:{fingerprint}", call)

    async def set_payout(self, payout: Account, *, instead_of: PayoutAddress) -> None:
        """Queue a new payout address: the first one counts at once, every later one is only announced.

        Args:
            instead_of: what counted when this was requested, and what distinguishes the request from a later
                one: it must not be read again after the chain has it, for the same address would be announced
                then.
        """
        distributor, _ = await self._in_thread(self._pay_side)
        call = Call(distributor.address, distributor.set_payout(payout))
        request = f"{payout}:{instead_of.receiver}:{instead_of.from_seconds}"
        key = await self._in_thread(lambda: self._outbox.key_after("payout", request))
        await self._enqueue("payout", key, call)

    async def apply_payout(self) -> None:
        """Queue the application of the announced payout address."""
        distributor, _ = await self._in_thread(self._pay_side)
        found = await self.payout()
        call = Call(distributor.address, distributor.apply_payout(self._account))
        await self._enqueue("payout", f"apply {found.announced}:{found.from_seconds}", call)

    async def bond(self, amount: int, *, gate: bool = False) -> bool:
        """Queue a deposit of tokens as this account's bond; false while an earlier one is pending.

        Args:
            gate: the account's bond for the swarm's gate, instead of an auditor's bond in the vault.
        """
        bonds = await self._in_thread(lambda: self._gate.bonds(gate=gate))
        token = Token(self._rpc, (await self.contracts()).token)
        approve = Call(token.address, token.approve(bonds.address, amount))
        deposit = Call(bonds.address, bonds.deposit(self._account, amount))
        return await self._enqueue_series("bond", approve, deposit)

    async def request_exit(self, amount: int, *, gate: bool = False) -> bool:
        """Queue a request to withdraw a part of this account's bond; false as ``bond``."""
        bonds = await self._in_thread(lambda: self._gate.bonds(gate=gate))
        return await self._enqueue_series("exit", Call(bonds.address, bonds.request_exit(amount)))

    async def withdraw(self, *, gate: bool = False) -> bool:
        """Queue the withdrawal of the part whose delay is over; false as ``bond``."""
        bonds = await self._in_thread(lambda: self._gate.bonds(gate=gate))
        return await self._enqueue_series("withdrawal", Call(bonds.address, bonds.withdraw()))

    async def accuse(self, account: Account, epoch: int, proof: ContentId) -> bool:
        """Queue this auditor's accusation of an account of an equivocation; false if it would have no effect.

        Args:
            proof: content id of the message that proves it.
        """
        accusation = partial(self._gate.accusation, self._account, account, epoch, proof)
        if (call := await self._in_thread(accusation)) is None:
            return False
        await self._enqueue("accuse", f"{account}:{epoch}", call)
        return True

    async def run(self) -> None:
        """Send queued transactions until cancelled. Errors are recorded and retried, never raised."""
        outage_seconds = _FIRST_OUTAGE_SECONDS
        while True:
            self._wake = trio.Event()
            try:
                busy = await self._in_thread(self._sender.step)
                await self._look_back()
                self._outage, outage_seconds = None, _FIRST_OUTAGE_SECONDS
                pause = _POLL_SECONDS if busy else _IDLE_SECONDS
            except LedgerError as error:
                self._outage = str(error)
                pause, outage_seconds = outage_seconds, min(outage_seconds * 2, _LAST_OUTAGE_SECONDS)
            with trio.move_on_after(pause):
                await self._wake.wait()

    def close(self) -> None:
        """Close the outbox; only after ``run`` has ended."""
        self._outbox.close()

    async def _enqueue(self, kind: str, key: str, call: Call) -> None:
        await self._in_thread(lambda: self._outbox.add(kind, key, call))
        await self._count()
        self._wake.set()

    async def _enqueue_series(self, kind: str, *calls: Call) -> bool:
        added = await self._in_thread(lambda: self._outbox.add_series(kind, calls))
        await self._count()
        self._wake.set()
        return added

    async def _look_back(self) -> None:
        """Record the results of a step; the counts last, since other tasks wait for them."""
        counts = await self._in_thread(self._outbox.counts)
        self._last_receipt_seconds = await self._in_thread(self._outbox.last_settled_seconds)
        self._stuck = await self._in_thread(lambda: self._count_stuck(self._sender.head))
        if counts[EntryState.CONFIRMED] != self._counts[EntryState.CONFIRMED]:
            await self.live_accounts()
        await self._count()

    async def _count(self) -> None:
        """Count what is queued, one task at a time: an older count must not replace a newer one."""
        async with self._counting:
            self._counts = await self._in_thread(self._outbox.counts)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # A call that hangs must not delay the node's shutdown: its thread is abandoned.
        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True)  # type: ignore[call-arg]  # older stubs
        except LedgerError as error:
            self._errors.note(error)
            raise
        except Web3Exception as error:
            self._errors.note(error)
            names = [endpoint.name for endpoint in self._rpc.endpoints]
            raise LedgerUnavailable(names, f"it makes no sense ({error})") from error

    def _look(self, now: Callable[[], float], *, claims: bool) -> ChainLook:
        block = self._rpc.survey()
        if self._rpc.head_seconds is not None:
            self._clock_check.note(block=block, timestamp=self._rpc.head_seconds, now=now())
        if claims:
            self._live = self._claims.live(self._clock())
        coins = self._rpc.ask(lambda web3: int(web3.eth.get_balance(to_checksum_address(self._account))))
        return ChainLook(coins, self._clock_check.ahead_seconds, self._clock_check.agrees)

    def _check(self) -> None:
        try:
            self._stuck = self._count_stuck(self._rpc.survey())
        except WrongChain as error:
            raise LedgerError(str(error), hint=error.hint) from error
        self._version = terms.require_contracts(self._registry, self._ledger, self._manifest)
        self._gate.require(lambda: self._pay_side()[1].address)

    def _count_stuck(self, head: int) -> int:
        return self._outbox.signed_before(head - STUCK_BLOCKS - self._confirmations)

    def _pay_side(self) -> tuple[Distributor, Token]:
        if self._contracts is None:
            distributor = self._ledger.distributor()
            self._contracts = distributor, distributor.token()
        return self._contracts

    def _addresses(self) -> ContractAddresses:
        distributor, token = self._pay_side()
        verifier, vault = self._ledger.verifier(), self._ledger.vault()
        return ContractAddresses(distributor.address, token.address, verifier.address, vault.address)
