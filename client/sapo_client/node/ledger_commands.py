"""``sapo ledger``: what an account earned and why, from the node's archive and the chain.

The node may run meanwhile: it owns the outbox, and what is queued here is sent by it; where no node
runs, the command sends it itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import trio

from sapo_client import keystore, locks
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.ledger.fees import GWEI
from sapo_client.ledger.records import LedgerStatus
from sapo_client.ledger.service import Ledger
from sapo_client.node.archive import Archive
from sapo_client.node.disputes import Dispute, equivocations, find_fraud
from sapo_client.node.identity import CERTIFICATE_SECONDS
from sapo_client.node.manifests import settle_manifest
from sapo_client.node.statements import Words, revocation_words
from sapo_client.node.supervisor import find_sapo_error
from sapo_client.observe.events import read_events
from sapo_client.observe.plain import to_json
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, cumulative_leaves
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sapo_client.ledger.fraud import FraudProof
    from sapo_protocol.eip712 import EpochRoot

Facts = dict[str, Any]
"""What a command prints, by name."""

PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5

_TIDY_SECONDS: Final = 5.0
"""For the outbox to learn that the chain has it; the next node would see it otherwise."""


@dataclass(frozen=True, slots=True)
class _Books:
    """What a ledger command works with."""

    manifest: Manifest
    data: DataDir
    node: NodeId
    account: Account
    ledger: Ledger
    archive: Archive

    async def settlement(self) -> tuple[int, Proposal] | None:
        """The last final epoch and the proposal behind it, if there is one.

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


@dataclass(frozen=True, slots=True)
class _Grant:
    """Points granted in all, and the proof that the contract wants."""

    points: int
    proof: tuple[Digest, ...]


def status(config: Config) -> Facts:
    """How the account stands."""
    with _books(config) as books:
        return _run(_status, books)


def register(config: Config) -> Facts:
    """Claims the node key for the account on the chain, and waits for it."""
    DataDir(config.data_dir).create()
    with _books(config, needs_archive=False) as books:
        running = locks.holder(books.data.lock) is not None
        return _run(_register, books, running)


def claim(config: Config) -> Facts:
    """Claims everything that was granted and not paid yet, and waits for it."""
    with _books(config) as books:
        running = locks.holder(books.data.lock) is not None
        return _run(_claim, books, running)


def challenge(config: Config, epoch: int) -> Facts:
    """Hands in what proves an epoch's live posting, or an auditor of it, false, and waits for it."""
    with _books(config) as books:
        running = locks.holder(books.data.lock) is not None
        return _run(_challenge, books, epoch, running)


def payout(config: Config, address: str) -> Facts:
    """Has claims paid to an address, or announces it, or puts an announced one in place; waits for it."""
    receiver = _address(address)
    with _books(config) as books:
        running = locks.holder(books.data.lock) is not None
        return _run(_payout, books, receiver, running)


def explain(config: Config, epoch: int) -> Facts:
    """Which rollouts of an epoch counted and why others did not."""
    with _books(config) as books:
        return _run(_explain, books, epoch)


def revoke(config: Config, node: NodeId, consent: Callable[[list[Words]], None]) -> Facts:
    """Ends the account's claim on a node key, such as one of a machine that was lost, and waits for it."""
    with _books(config) as books:
        consent([revocation_words(books.manifest, books.account, node)])
        running = locks.holder(books.data.lock) is not None
        return _run(_exchange, books, None, node, running)


def registrations(config: Config, identity: Identity, *, end: NodeId) -> Facts:
    """Claims an identity's node key and ends the claim on another, and waits for both."""
    with _books(config, identity) as books:
        return _run(_exchange, books, identity.node_id, end, False)


def _run(command: Callable[..., Awaitable[Facts]], *arguments: object) -> Facts:
    """A command's facts; its error for people, out of the groups that nurseries wrap it in."""
    try:
        return trio.run(command, *arguments)
    except ExceptionGroup as group:
        if (told := find_sapo_error(group)) is not None:
            raise told from group
        raise


async def _status(books: _Books) -> Facts:
    await books.ledger.check()
    settlement = await books.settlement()
    shares = _shares(settlement[1]) if settlement else {}
    granted = shares.get(books.account, 0)
    claimed = await books.ledger.claimed()
    live = await books.ledger.live_accounts()
    posting, stake = await books.ledger.live_record(), await books.ledger.stake()
    return {
        "account": str(books.account),
        "chain": books.manifest.chain_id,
        "registered": books.account in {account for account, _ in live},
        "claimed keys": ", ".join(sorted(node.hex() for account, node in live if account == books.account)),
        "last epoch": settlement[0] if settlement else None,
        "epoch in its challenge window": posting.root.epoch if posting else None,
        "points granted": granted,
        "points claimed": claimed,
        "claimable": granted - claimed,
        "tokens": await books.ledger.balance() / 10**18,
        "tokens bonded": stake.bonded / 10**18,
        **_sending(books.ledger.status()),
    }


def _sending(status: LedgerStatus) -> Facts:
    """How far what was wished is, and by whose word all this is said."""
    receipt = status.last_receipt_seconds
    return {
        "waiting to be sent": status.pending,
        "stuck": status.stuck,
        "refused": status.refused,
        "last error": status.last_error,
        "last receipt": None if receipt is None else datetime.fromtimestamp(receipt, UTC).isoformat(),
        "endpoints": [to_json(endpoint) for endpoint in status.endpoints],
    }


async def _register(books: _Books, running: bool) -> Facts:
    await books.ledger.check()
    not_after = int(time.time()) + CERTIFICATE_SECONDS

    async def is_registered() -> bool:
        return (books.account, books.node) in await books.ledger.live_accounts()

    async def wish() -> None:
        await books.ledger.register(books.node, not_after)

    known = await is_registered()
    await _settle(books, "registration", wish, is_registered, running)
    return {"account": str(books.account), "node": str(books.node), "registered": True, "before": known}


async def _claim(books: _Books, running: bool) -> Facts:
    await books.ledger.check()
    before, granted = await books.ledger.claimed(), (await _grant(books)).points
    if granted <= before:
        raise SapoError(
            f"nothing to claim: {granted} points granted, {before} claimed",
            hint="points are granted when an epoch is final: sapo ledger status",
            exit_code=ExitCode.LEDGER,
        )

    async def wish() -> None:  # an epoch that becomes final meanwhile makes the proof stale
        grant = await _grant(books)
        await books.ledger.claim(grant.points, grant.proof)

    async def is_done() -> bool:
        return await books.ledger.claimed() != before

    await _settle(books, "claim", wish, is_done, running)
    claimed = await books.ledger.claimed()
    return {
        "account": str(books.account),
        "points claimed": claimed - before,
        "points claimed in all": claimed,
        "tokens": await books.ledger.balance() / 10**18,
    }


async def _challenge(books: _Books, epoch: int, running: bool) -> Facts:
    await books.ledger.check()
    live = await books.ledger.live_record()
    root = live.root if live is not None and live.root.epoch == epoch else None
    false = await _fraud(books, root) if root else None
    liars = {
        auditor: proof
        for auditor, proof in equivocations(books.archive, epoch, books.manifest.ledger_domain).items()
        if not await books.ledger.has_equivocated(auditor, epoch)
    }
    proofs = [*liars.values(), *([false] if false else [])]
    if not proofs:
        raise SapoError(
            f"nothing in {books.data.root} proves epoch {epoch} false",
            hint="only what breaks a rule of the contracts can be challenged, and only until it is final",
            exit_code=ExitCode.LEDGER,
        )
    before = await books.ledger.balance()

    async def wish() -> None:
        for proof in proofs:
            await books.ledger.challenge(epoch, proof)

    async def is_done() -> bool:
        punished = [await books.ledger.has_equivocated(auditor, epoch) for auditor in liars]
        now = await books.ledger.live_record()
        return all(punished) and not (false and now and now.root == root)

    await _settle(books, "challenge", wish, is_done, running)
    return {
        "epoch": epoch,
        "proofs": ", ".join(proof.FUNCTION for proof in proofs),
        "tokens earned": (await books.ledger.balance() - before) / 10**18,
    }


async def _payout(books: _Books, receiver: Account, running: bool) -> Facts:
    await books.ledger.check()
    announced, effective_seconds = await books.ledger.payout_change()
    if await books.ledger.payout() == receiver:
        raise SapoError(
            f"claims go to {receiver} already", hint="nothing is left to do", exit_code=ExitCode.LEDGER
        )
    is_announced = announced == receiver
    if is_announced and time.time() < effective_seconds:
        raise SapoError(
            f"claims may go to {receiver} from {_moment(effective_seconds)}",
            hint="run the same command again then",
            exit_code=ExitCode.LEDGER,
        )

    async def wish() -> None:
        await (books.ledger.apply_payout() if is_announced else books.ledger.set_payout(receiver))

    async def is_done() -> bool:
        known = await books.ledger.payout(), (await books.ledger.payout_change())[0]
        return known[0] == receiver or (known[1] == receiver and not is_announced)

    await _settle(books, "payout address", wish, is_done, running)
    announced, effective_seconds = await books.ledger.payout_change()
    return {
        "account": str(books.account),
        "claims go to": str(await books.ledger.payout()),
        "announced": str(announced) if effective_seconds else None,
        "from": _moment(effective_seconds) if effective_seconds else None,
    }


def _address(text: str) -> Account:
    try:
        return Account.from_hex(text)
    except LocalProtocolError as error:
        raise SapoError(
            f"{text!r} is no account",
            hint="an account is 0x and 40 hexadecimal digits",
            exit_code=ExitCode.USAGE,
        ) from error


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


async def _fraud(books: _Books, root: EpochRoot) -> FraudProof | None:
    """What proves a live posting false, if anything does."""
    record = await books.ledger.last_record()
    last = record.root if record else None
    cap = await books.ledger.points_cap()
    dispute = Dispute(root, last, granted=await books.ledger.granted_points(), points_cap=cap)
    return find_fraud(dispute, books.archive)


async def _exchange(books: _Books, claim: NodeId | None, end: NodeId, running: bool) -> Facts:
    await books.ledger.check()
    live = await books.ledger.live_accounts()
    if claim is None and (books.account, end) not in live:
        raise SapoError(
            f"account {books.account} does not claim node key {end}",
            hint="`sapo ledger status` lists the keys that it claims",
            exit_code=ExitCode.LEDGER,
        )
    if claim is not None and (books.account, claim) not in live:
        await books.ledger.register(claim, int(time.time()) + CERTIFICATE_SECONDS)
    if (books.account, end) in live:
        await books.ledger.revoke(end)
    done = await _wait(books, running)
    keys = sorted(
        node.hex() for account, node in await books.ledger.live_accounts() if account == books.account
    )
    return {"on the chain": "done" if done else "queued: sent when the chain answers", "claimed keys": keys}


async def _wait(books: _Books, running: bool) -> bool:
    """Whether everything queued was settled in time; sends it, if no node does."""
    async with trio.open_nursery() as nursery:
        if not running:
            nursery.start_soon(books.ledger.run)
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            while await books.ledger.pending():
                await trio.sleep(_LOOK_SECONDS)
        nursery.cancel_scope.cancel()
    return not patience.cancelled_caught


async def _grant(books: _Books) -> _Grant:
    """What the last final epoch grants this account in all, with the proof."""
    settlement = await books.settlement()
    shares = settlement[1].shares if settlement else ()
    for index, share in enumerate(shares):
        if share.account == books.account:
            return _Grant(share.cumulative, merkle.proof(cumulative_leaves(shares), index))
    return _Grant(0, ())


async def _settle(
    books: _Books, name: str, wish: Callable[[], Awaitable[None]], is_done: Callable[[], Awaitable[bool]],
    running: bool,
) -> None:  # fmt: skip
    """Queues what is wished and waits until the chain has it; sends it, if no node does."""
    async with trio.open_nursery() as nursery:
        if not running:
            nursery.start_soon(books.ledger.run)
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            while not await is_done():
                await wish()  # the outbox keeps each wish once
                await trio.sleep(_LOOK_SECONDS)
        if not running:
            with trio.move_on_after(_TIDY_SECONDS):
                while books.ledger.status().pending:
                    await trio.sleep(_LOOK_SECONDS)
        nursery.cancel_scope.cancel()
    if patience.cancelled_caught:
        raise SapoError(
            f"the {name} is queued, but the chain has not taken it yet",
            hint="it will be sent when the chain answers; watch it with: sapo ledger status",
            exit_code=ExitCode.LEDGER,
        )


async def _explain(books: _Books, epoch: int) -> Facts:
    record = await books.ledger.record(epoch)
    if record is None:
        raise SapoError(
            f"epoch {epoch} is not final",
            hint="`sapo ledger status` names the last final epoch, and the posting that can be challenged",
            exit_code=ExitCode.LEDGER,
        )
    proposal = books.archive.proposal(ContentId(record.root.archive_digest))
    shares = proposal.shares if proposal else ()
    points = next((share.points for share in shares if share.account == books.account), 0)
    outcomes = _outcomes(books, epoch)
    return {
        "epoch": epoch,
        "root": record.root.contribution_root.hex(),
        "total": record.root.total,
        "points": points,
        "rollouts": [{"content_id": id_, "outcome": outcome} for id_, outcome in outcomes.items()],
    }


def _outcomes(books: _Books, epoch: int) -> Mapping[str, str]:
    """What this node knows of each of its own rollouts of an epoch."""
    outcomes: dict[str, str] = {}
    for event in read_events(books.data.events):
        id_ = str(event.get("content_id"))
        if event["event"] == "published" and event["epoch"] == epoch:
            outcomes[id_] = "shared"
        elif event["event"] == "verified" and id_ in outcomes:
            reward = float(str(event["mean_reward"]))
            dull = "all completions earned the same: not payable"
            outcomes[id_] = "payable" if 0 < reward < 1 else dull
    return outcomes


def _shares(proposal: Proposal) -> dict[Account, int]:
    return {share.account: share.cumulative for share in proposal.shares}


@contextmanager
def _books(config: Config, opened: Identity | None = None, *, needs_archive: bool = True) -> Iterator[_Books]:
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

    ledger = Ledger(
        manifest=manifest,
        account=EthAccount.from_key(identity.account_key),
        rpc_urls=config.ledger.rpc_urls,
        outbox_path=data.root / "outbox.sqlite",
        confirmations=config.ledger.confirmations,
        limit_wei=int(config.ledger.max_fee_gwei * GWEI),
    )
    try:
        archive = Archive(data.database, manifest.swarm_id)
        yield _Books(manifest, data, identity.node_id, identity.account, ledger, archive)
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
