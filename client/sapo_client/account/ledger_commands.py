"""``sapo ledger``: what an account earned and why, from the node's archive and the chain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sapo_client.account.bonds import bond_facts
from sapo_client.account.ledger_session import Consent, Facts, LedgerSession, moment, open_books, run
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.ledger.records import LedgerStatus
from sapo_client.node.auditing.disputes import Dispute, equivocations, find_fraud
from sapo_client.node.auditing.registration import end_of_new, is_fresh
from sapo_client.node.runtime.statements import registration_words, revocation_words, transaction_words
from sapo_client.observe.events import read_events
from sapo_client.observe.plain import to_json
from sapo_client.paths import DataDir
from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, cumulative_leaves, earned_points
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId

if TYPE_CHECKING:
    from sapo_client.ledger.fraud import FraudProof
    from sapo_protocol.eip712 import EpochRoot


@dataclass(frozen=True, slots=True)
class _Grant:
    """Points granted in all, and the proof that the contract wants."""

    points: int
    proof: tuple[Digest, ...]


def status(config: Config) -> Facts:
    """Return how the account stands."""
    with open_books(config) as books:
        return run(_status, books)


def register(config: Config, consent: Consent) -> Facts:
    """Claim the node key for the account on the chain, and waits for it."""
    DataDir(config.data_dir).create()
    with open_books(config, needs_archive=False) as books:
        return run(_register, books, consent)


def claim(config: Config, consent: Consent) -> Facts:
    """Claim everything that was granted and not paid yet, and waits for it."""
    with open_books(config) as books:
        return run(_claim, books, consent)


def challenge(config: Config, epoch: int, consent: Consent) -> Facts:
    """Hand in what proves an epoch's live posting, or an auditor of it, false, and waits for it."""
    with open_books(config) as books:
        return run(_challenge, books, epoch, consent)


def payout(config: Config, address: str, consent: Consent) -> Facts:
    """Has claims paid to an address, or announces it, or puts an announced one in place; waits for it."""
    receiver = _address(address)
    with open_books(config) as books:
        return run(_payout, books, receiver, consent)


def explain(config: Config, epoch: int) -> Facts:
    """Return which rollouts of an epoch counted and why others did not."""
    with open_books(config) as books:
        return run(_explain, books, epoch)


def revoke(config: Config, node: NodeId, consent: Consent) -> Facts:
    """End the account's claim on a node key, such as one of a machine that was lost, and waits for it."""
    with open_books(config) as books:
        consent([revocation_words(books.signer, books.manifest, node)])
        return run(_exchange, books, node)


def registrations(config: Config, identity: Identity, *, end: NodeId, not_after: int) -> Facts:
    """Claim an identity's node key until a moment and ends the claim on another, and waits for both."""
    with open_books(config, identity) as books:
        return run(_exchange, books, end, not_after)


async def _status(books: LedgerSession) -> Facts:
    await books.ledger.check()
    settlement = await books.settlement()
    shares = _shares(settlement[1]) if settlement else {}
    granted = shares.get(books.account, 0)
    claimed = await books.ledger.claimed()
    live = await books.ledger.live_accounts()
    posting = await books.ledger.live_record()
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
        **await bond_facts(books),
        **_sending(books.ledger.status()),
    }


def _sending(status: LedgerStatus) -> Facts:
    """Return how far what was wished is, and by whose word all this is said."""
    receipt = status.last_receipt_seconds
    return {
        "waiting to be sent": status.pending,
        "stuck": status.stuck,
        "refused": status.refused,
        "last error": status.last_error,
        "last receipt": None if receipt is None else datetime.fromtimestamp(receipt, UTC).isoformat(),
        "endpoints": [to_json(endpoint) for endpoint in status.endpoints],
    }


async def _register(books: LedgerSession, consent: Consent) -> Facts:
    await books.ledger.check()
    now = time.time()
    not_after = end_of_new(now)

    async def is_registered() -> bool:
        return is_fresh(await books.ledger.registered_until(books.node), now)

    async def wish() -> None:
        await books.ledger.register(books.node, not_after)

    known = await is_registered()
    if not known:
        consent([registration_words(books.signer, books.manifest, books.node, not_after)])
    await books.see_through("registration", wish, is_registered)
    return {"account": str(books.account), "node": str(books.node), "registered": True, "before": known}


async def _claim(books: LedgerSession, consent: Consent) -> Facts:
    await books.ledger.check()
    before, granted = await books.ledger.claimed(), (await _grant(books)).points
    if granted <= before:
        raise SapoError(
            f"nothing to claim: {granted} points granted, {before} claimed",
            hint="points are granted when an epoch is final: sapo ledger status",
            exit_code=ExitCode.LEDGER,
        )
    words = {
        "points": granted - before,
        "points in all": granted,
        "paid to": str(await books.ledger.payout()),
    }
    follows = "everything is paid that is granted when it is sent"
    paying = (await books.ledger.contracts()).distributor
    consent(
        [
            transaction_words(
                "RewardDistributor.claim", books.signer, contract=paying, fields=words, follows=follows
            )
        ]
    )

    async def wish() -> None:  # an epoch that becomes final meanwhile makes the proof stale
        grant = await _grant(books)
        await books.ledger.claim(grant.points, grant.proof)

    async def is_done() -> bool:
        return await books.ledger.claimed() != before

    await books.see_through("claim", wish, is_done)
    claimed = await books.ledger.claimed()
    return {
        "account": str(books.account),
        "points claimed": claimed - before,
        "points claimed in all": claimed,
        "tokens": await books.ledger.balance() / 10**18,
    }


async def _challenge(books: LedgerSession, epoch: int, consent: Consent) -> Facts:
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
    verifier = (await books.ledger.contracts()).verifier
    follows = "whoever signed what it proves false loses its bond, half of it to this account"
    names = [f"FraudVerifier.{proof.FUNCTION}" for proof in proofs]
    consent(
        [
            transaction_words(name, books.signer, contract=verifier, fields={"epoch": epoch}, follows=follows)
            for name in names
        ]
    )
    before = await books.ledger.balance()

    async def wish() -> None:
        for proof in proofs:
            await books.ledger.challenge(epoch, proof)

    async def is_done() -> bool:
        punished = [await books.ledger.has_equivocated(auditor, epoch) for auditor in liars]
        now = await books.ledger.live_record()
        return all(punished) and not (false and now and now.root == root)

    await books.see_through("challenge", wish, is_done)
    return {
        "epoch": epoch,
        "proofs": ", ".join(proof.FUNCTION for proof in proofs),
        "tokens earned": (await books.ledger.balance() - before) / 10**18,
    }


async def _payout(books: LedgerSession, receiver: Account, consent: Consent) -> Facts:
    await books.ledger.check()
    announced, announced_at = await books.ledger.payout_change()
    before = await books.ledger.payout()
    if before == receiver:
        raise SapoError(
            f"claims go to {receiver} already", hint="nothing is left to do", exit_code=ExitCode.LEDGER
        )
    is_announced = announced == receiver
    if is_announced and time.time() < announced_at:
        raise SapoError(
            f"claims may go to {receiver} from {moment(announced_at)}",
            hint="run the same command again then",
            exit_code=ExitCode.LEDGER,
        )
    function = "applyPayout" if is_announced else "setPayout"
    paying, words = (await books.ledger.contracts()).distributor, {"claims go to": str(receiver)}
    follows = "it counts at once if it is the first address or its delay is over, else in seven days"
    consent(
        [
            transaction_words(
                f"RewardDistributor.{function}", books.signer, contract=paying, fields=words, follows=follows
            )
        ]
    )

    async def wish() -> None:
        if is_announced:
            await books.ledger.apply_payout()
        else:
            await books.ledger.set_payout(receiver, instead_of=before, announced_seconds=announced_at)

    async def is_done() -> bool:
        known = await books.ledger.payout(), (await books.ledger.payout_change())[0]
        return known[0] == receiver or (known[1] == receiver and not is_announced)

    await books.see_through("payout address", wish, is_done)
    announced, effective_seconds = await books.ledger.payout_change()
    return {
        "account": str(books.account),
        "claims go to": str(await books.ledger.payout()),
        "announced": str(announced) if effective_seconds else None,
        "from": moment(effective_seconds) if effective_seconds else None,
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


async def _fraud(books: LedgerSession, root: EpochRoot) -> FraudProof | None:
    """What proves a live posting false, if anything does."""
    record = await books.ledger.last_record()
    last = record.root if record else None
    cap = await books.ledger.points_cap()
    dispute = Dispute(root, last, granted=await books.ledger.granted_points(), points_cap=cap)
    return find_fraud(dispute, books.archive)


async def _exchange(books: LedgerSession, end: NodeId, claim_until: int | None = None) -> Facts:
    """End the claim on a key; where a moment is named, claims the books' own key until then, too."""
    await books.ledger.check()
    live = await books.ledger.live_accounts()
    if claim_until is None and (books.account, end) not in live:
        raise SapoError(
            f"account {books.account} does not claim node key {end}",
            hint="`sapo ledger status` lists the keys that it claims",
            exit_code=ExitCode.LEDGER,
        )
    if claim_until is not None and (books.account, books.node) not in live:
        await books.ledger.register(books.node, claim_until)
    if (books.account, end) in live:
        await books.ledger.revoke(end)
    done = await books.drain()
    keys = sorted(
        node.hex() for account, node in await books.ledger.live_accounts() if account == books.account
    )
    return {"on the chain": "done" if done else "queued: sent when the chain answers", "claimed keys": keys}


async def _grant(books: LedgerSession) -> _Grant:
    """What the last final epoch grants this account in all, with the proof."""
    settlement = await books.settlement()
    shares = settlement[1].shares if settlement else ()
    for index, share in enumerate(shares):
        if share.account == books.account:
            return _Grant(share.cumulative, merkle.proof(cumulative_leaves(shares), index))
    return _Grant(0, ())


async def _explain(books: LedgerSession, epoch: int) -> Facts:
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
    named = [books.archive.tally(id_) for id_ in proposal.tallies] if proposal else []
    tallies = [tally for tally in named if tally is not None]
    counted = earned_points(tallies, books.manifest.limits.points_per_epoch).get(books.account, 0)
    outcomes = _outcomes(books, epoch)
    return {
        "epoch": epoch,
        "root": record.root.contribution_root.hex(),
        "total": record.root.total,
        "budget": await books.ledger.epoch_budget(),
        "counted": counted,
        "points": points,
        "rollouts": [{"content_id": id_, "outcome": outcome} for id_, outcome in outcomes.items()],
    }


def _outcomes(books: LedgerSession, epoch: int) -> Mapping[str, str]:
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
