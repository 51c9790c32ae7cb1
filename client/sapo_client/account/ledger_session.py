"""An open ledger for one command: queues transactions and waits until the chain has them.

If the account's node runs meanwhile, it sends what is queued here; otherwise the command sends it itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

import trio

from sapo_client import keystore, locks
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.fees import GWEI
from sapo_client.ledger.service import LedgerClient
from sapo_client.node.runtime.manifests import settle_manifest
from sapo_client.node.runtime.statements import SignedFields, Signer
from sapo_client.node.runtime.supervisor import find_sapo_error
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol.contributions import Proposal
from sapo_protocol.identifiers import Account, ContentId, NodeId
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.contribution_store import ContributionStore

T = TypeVar("T")

Consent = Callable[[Sequence[SignedFields]], None]
"""Shows the fields to be signed, and raises unless the account's owner agrees."""

PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.5

_LAST_SECONDS: Final = 253_402_300_800
"""The end of the year 9999, the latest that ``datetime`` supports."""

_CONFIRM_SECONDS: Final = 5.0
"""Seconds to wait for the outbox's last confirmations; later ones are recorded by the next process."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The last final epoch.

    Attributes:
        proposal: the points of each account; none while this data directory holds only the root.
    """

    epoch: int
    proposal: Proposal | None


@dataclass(frozen=True, slots=True)
class LedgerSession:
    """An account's open ledger and archive, and the swarm that they belong to.

    Attributes:
        sends: whether this process sends queued transactions, because no node does.
    """

    manifest: Manifest
    data: DataDir
    node: NodeId
    account: Account
    ledger: LedgerClient
    archive: ContributionStore
    sends: bool

    @property
    def signer(self) -> Signer:
        """The account and chain that statements are signed for."""
        return Signer(self.manifest.chain_id, self.account)

    async def last_settlement(self) -> Settlement | None:
        """Return the last final epoch; none before the first one."""
        record = await self.ledger.last_record()
        if record is None:
            return None
        return Settlement(record.root.epoch, self.archive.proposal(ContentId(record.root.archive_digest)))

    async def settled(self) -> Proposal | None:
        """Return the proposal of the last final epoch; if a node runs, wait until it has it.

        Raises:
            SapoError: this node does not have the proposal.
        """
        settlement = await self.last_settlement()
        if not self.sends:  # a running node requests missing proposals from its peers
            with trio.move_on_after(PATIENCE_SECONDS):
                while settlement is not None and settlement.proposal is None:
                    await trio.sleep(_POLL_SECONDS)
                    settlement = await self.last_settlement()
        if settlement is None or settlement.proposal is not None:
            return None if settlement is None else settlement.proposal
        text, hint = self.missing(settlement)
        raise SapoError(text, hint=hint, exit_code=ExitCode.LEDGER)

    def missing(self, settlement: Settlement) -> tuple[str, str]:
        """Return the text and the hint of the error that a settlement is missing."""
        text = (
            f"the settlement of epoch {settlement.epoch}, which says who has which points, is on the chain"
            f" and not yet in {self.data.root}"
        )
        if self.sends:
            return text, "start this node (sapo join) and let it run for a minute: its peers send it"
        return text, "the running node asks its peers for it: try again in a minute"

    async def submit_and_wait(
        self, name: str, submit: Callable[[], Awaitable[None]], is_done: Callable[[], Awaitable[bool]]
    ) -> None:
        """Queue a transaction and wait until the chain has its effect.

        Endpoints that do not answer meanwhile are asked again: the transaction may be under way.

        Args:
            submit: queues the transaction; may be called repeatedly, since the outbox keeps each entry once.

        Raises:
            SapoError: the chain does not include it in time; it stays queued.
            LedgerError: the chain did not answer in all that time, and nothing is queued.
        """
        is_queued, unanswered = False, None
        async with self._sending():
            with trio.move_on_after(PATIENCE_SECONDS) as patience:
                while True:
                    try:
                        if await is_done() and await self._is_confirmed(is_done):
                            break
                        await submit()
                        is_queued = True
                    except LedgerError as error:
                        if not error.transient:
                            raise
                        unanswered = error
                    await trio.sleep(_POLL_SECONDS)
        if patience.cancelled_caught:
            raise queued_error(name) if is_queued or unanswered is None else unanswered

    async def _is_confirmed(self, is_done: Callable[[], Awaitable[bool]]) -> bool:
        """Whether the effect is still there after a wait for the outbox's last confirmations.

        A reorganisation can take back what was seen in the newest block.
        """
        if self.sends:
            with trio.move_on_after(_CONFIRM_SECONDS):
                while self.ledger.status().pending:
                    await trio.sleep(_POLL_SECONDS)
        return await is_done()

    async def reading(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a query after a transaction; endpoints that do not answer are queried again.

        Raises:
            LedgerError: none of them answers in time.
        """
        deadline = trio.current_time() + PATIENCE_SECONDS
        while True:
            try:
                return await read()
            except LedgerError as error:
                if not error.transient or trio.current_time() >= deadline:
                    raise
            await trio.sleep(_POLL_SECONDS)

    async def require_current(self) -> None:
        """Raise if the endpoints are behind a transaction of this account that is settled.

        They would say again what was before it, such as points that were claimed already.

        Raises:
            SapoError: their last block is older.
            LedgerError: none of them answers.
        """
        await self.ledger.look(claims=False)
        head, settled = self.ledger.chain_seconds, self.ledger.status().last_receipt_seconds
        if settled is not None and head < settled:
            raise SapoError(
                f"the RPC endpoints are behind: their last block is of {format_time(head)},"
                f" and a transaction of this account is in a block of {format_time(settled)}",
                hint="run the same command again in a minute, or name another endpoint with --rpc URL",
                exit_code=ExitCode.LEDGER,
            )

    async def drain(self, kind: str | None = None) -> bool:
        """Whether all queued transactions, or those of one kind, were settled in time."""
        async with self._sending():
            with trio.move_on_after(PATIENCE_SECONDS) as patience:
                while await self.ledger.pending(kind):
                    await trio.sleep(_POLL_SECONDS)
        return not patience.cancelled_caught

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        """Send queued transactions in the background, unless a node does."""
        async with trio.open_nursery() as nursery:
            if self.sends:
                nursery.start_soon(self.ledger.run)
            yield
            nursery.cancel_scope.cancel()


def queued_error(name: str) -> SapoError:
    """Return the error for a transaction that the chain has not included in time."""
    return SapoError(
        f"the {name} is queued, but the chain has not included it yet",
        hint="it will be sent when the chain answers; watch it with: sapo ledger status",
        exit_code=ExitCode.LEDGER,
    )


def run(command: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Run a command; unwrap its `SapoError` from the exception groups of nurseries."""
    try:
        return trio.run(command, *arguments)
    except ExceptionGroup as group:
        if (error := find_sapo_error(group)) is not None:
            raise error from group
        raise


def format_time(seconds: int) -> str:
    """Return a block time as text; an endpoint may claim any."""
    if seconds >= _LAST_SECONDS:
        return f"second {seconds}, after the year 9999"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@contextmanager
def open_session(
    config: Config,
    opened: Identity | None = None,
    *,
    needs_archive: bool = True,
    sends: bool | None = None,
) -> Iterator[LedgerSession]:
    """Open the ledger session of a configuration's identity.

    Args:
        opened: the identity, if the caller has opened it and holds the lock of the data directory.
        sends: whether this session sends what it queues; unset: if the caller holds the lock or nobody does.

    Raises:
        SapoError: the swarm has no chain, or no identity, endpoint or required archive is named.
    """
    data = DataDir(config.data_dir)
    if needs_archive and not data.database.exists():
        raise SapoError(
            f"no node ever ran in {data.root}",
            hint="name its data directory with --data-dir: it holds the archive of granted points",
            exit_code=ExitCode.DATA,
        )
    manifest = settle_manifest(config.swarm.manifest, data)
    if not manifest.has_chain:
        raise SapoError(
            f"the swarm '{manifest.name}' has no chain, so nothing is counted or paid in it",
            hint="`sapo rollouts` shows what was accepted; `sapo swarm deploy` founds a swarm with a chain",
            exit_code=ExitCode.CONFIG,
        )
    identity = opened or _identity(config)
    if not config.ledger.rpc_urls:
        raise _lacking("an RPC endpoint of the swarm's chain", "--rpc URL")
    from eth_account import Account as EthAccount

    ledger = LedgerClient(
        manifest=manifest,
        account=EthAccount.from_key(identity.account_key),
        rpc_urls=config.ledger.rpc_urls,
        outbox_path=data.outbox,
        confirmations=config.ledger.confirmations,
        limit_wei=int(config.ledger.max_fee_gwei * GWEI),
    )
    try:
        archive = ContributionStore(data.database, manifest.swarm_id)
        if sends is None:
            sends = opened is not None or locks.holder(data.lock) is None
        yield LedgerSession(
            manifest=manifest,
            data=data,
            node=identity.node_id,
            account=identity.account,
            ledger=ledger,
            archive=archive,
            sends=sends,
        )
    finally:
        ledger.close()


def _identity(config: Config) -> Identity:
    return keystore.load(keystore.locate(config.identity), PassphraseSource(config.passphrase_file))


def _lacking(what: str, option: str) -> SapoError:
    return SapoError(
        f"{what} is needed for the ledger",
        hint=f"name it with {option}, or in the configuration file",
        exit_code=ExitCode.CONFIG,
    )
