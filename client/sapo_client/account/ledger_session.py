"""What a ledger command works with, and how it sees through what it wishes.

The node may run meanwhile: it sends what is queued here. Where no node runs, the command sends it itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import trio

from sapo_client import keystore, locks
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.ledger.fees import GWEI
from sapo_client.ledger.service import LedgerClient
from sapo_client.node.runtime.manifests import settle_manifest
from sapo_client.node.runtime.statements import Signer, Words
from sapo_client.node.runtime.supervisor import find_sapo_error
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol.contributions import Proposal
from sapo_protocol.identifiers import Account, ContentId, NodeId
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.contribution_store import ContributionStore

Facts = dict[str, Any]
"""What a command prints, by name."""

Consent = Callable[[Sequence[Words]], None]
"""Shows what is to be signed, and raises unless its owner agrees."""

PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5

_TIDY_SECONDS: Final = 5.0
"""For the outbox to learn that the chain has it; the next node would see it otherwise."""


@dataclass(frozen=True, slots=True)
class LedgerSession:
    """An account's ledger and archive, and the swarm that they belong to.

    Attributes:
        sends: whether this process sends what is queued: no node does.
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
        """Who signs what is shown."""
        return Signer(self.manifest.chain_id, self.account)

    async def settlement(self) -> tuple[int, Proposal] | None:
        """Return the last final epoch and the proposal behind it, if there is one.

        Raises:
            SapoError: this node did not hear the proposal.
        """
        record = await self.ledger.last_record()
        if record is None:
            return None
        proposal = self.archive.proposal(ContentId(record.root.archive_digest))
        if proposal is None:
            raise SapoError(
                f"the settlement of epoch {record.root.epoch} is on the chain, but not in {self.data.root}",
                hint="let the node run for a minute: its peers hold the settlement and will tell it",
                exit_code=ExitCode.LEDGER,
            )
        return record.root.epoch, proposal

    async def see_through(
        self, name: str, wish: Callable[[], Awaitable[None]], is_done: Callable[[], Awaitable[bool]]
    ) -> None:
        """Queue what is wished until the chain has it.

        Args:
            wish: called again and again; the outbox keeps each wish once.

        Raises:
            SapoError: the chain does not take it in time; it stays queued.
        """
        async with self._sending():
            with trio.move_on_after(PATIENCE_SECONDS) as patience:
                while not await is_done():
                    await wish()
                    await trio.sleep(_LOOK_SECONDS)
            if self.sends:
                with trio.move_on_after(_TIDY_SECONDS):
                    while self.ledger.status().pending:
                        await trio.sleep(_LOOK_SECONDS)
        if patience.cancelled_caught:
            raise still_queued(name)

    async def drain(self, kind: str | None = None) -> bool:
        """Whether everything queued, of one kind if it is named, was settled in time."""
        async with self._sending():
            with trio.move_on_after(PATIENCE_SECONDS) as patience:
                while await self.ledger.pending(kind):
                    await trio.sleep(_LOOK_SECONDS)
        return not patience.cancelled_caught

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        """A time in which somebody sends what is queued."""
        async with trio.open_nursery() as nursery:
            if self.sends:
                nursery.start_soon(self.ledger.run)
            yield
            nursery.cancel_scope.cancel()


def still_queued(name: str) -> SapoError:
    """What to say of a wish that the chain has not taken in time."""
    return SapoError(
        f"the {name} is queued, but the chain has not taken it yet",
        hint="it will be sent when the chain answers; watch it with: sapo ledger status",
        exit_code=ExitCode.LEDGER,
    )


def run(command: Callable[..., Awaitable[Facts]], *arguments: object) -> Facts:
    """Return a command's facts; its error for people, out of the groups that nurseries wrap it in."""
    try:
        return trio.run(command, *arguments)
    except ExceptionGroup as group:
        if (told := find_sapo_error(group)) is not None:
            raise told from group
        raise


def moment(seconds: int) -> str:
    """Return a time of the chain's, for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@contextmanager
def open_books(
    config: Config, opened: Identity | None = None, *, needs_archive: bool = True
) -> Iterator[LedgerSession]:
    """The books of a configuration's identity.

    Args:
        opened: the identity, where the caller opened it and keeps every node out of the data directory.

    Raises:
        SapoError: no identity, no end point or (where it is needed) no archive is named.
    """
    data = DataDir(config.data_dir)
    if needs_archive and not data.database.exists():
        raise SapoError(
            f"no node ever ran in {data.root}",
            hint="name its data directory with --data-dir: it holds the archive of what was granted",
            exit_code=ExitCode.DATA,
        )
    manifest = settle_manifest(config.swarm.manifest, data)
    identity = opened or _identity(config)
    if not config.ledger.rpc_urls:
        raise _lacking()
    from eth_account import Account as EthAccount

    ledger = LedgerClient(
        manifest=manifest,
        account=EthAccount.from_key(identity.account_key),
        rpc_urls=config.ledger.rpc_urls,
        outbox_path=data.root / "outbox.sqlite",
        confirmations=config.ledger.confirmations,
        limit_wei=int(config.ledger.max_fee_gwei * GWEI),
    )
    try:
        archive = ContributionStore(data.database, manifest.swarm_id)
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
    if config.identity is None:
        raise _lacking()
    return keystore.load(keystore.locate(config.identity), PassphraseSource(config.passphrase_file))


def _lacking() -> SapoError:
    return SapoError(
        "an identity and an RPC end point are needed for the ledger",
        hint="sapo ledger ... --identity KEY --rpc URL, or the same in the configuration file",
        exit_code=ExitCode.CONFIG,
    )
