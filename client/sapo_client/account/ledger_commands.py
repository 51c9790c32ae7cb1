"""``sapo ledger``: an account's points and claims, from the node's archive and the chain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sapo_client.account.bonds import bond_facts
from sapo_client.account.ledger_session import Consent, LedgerSession, format_time, open_session, run
from sapo_client.account.payouts import claim_fields, payout_facts, require_receiver
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.ledger.records import LedgerStatus
from sapo_client.node.auditing.disputes import Dispute, equivocations, find_fraud, posted_trees
from sapo_client.node.auditing.registration import end_of_new, is_fresh
from sapo_client.node.runtime import statements
from sapo_client.observe.events import read_events
from sapo_client.observe.outcomes import OutcomeStore
from sapo_client.observe.plain import to_json
from sapo_client.paths import DataDir
from sapo_client.units import COIN, TOKEN
from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, cumulative_entries, earned_points
from sapo_protocol.identifiers import ContentId, Digest, NodeId

if TYPE_CHECKING:
    from sapo_client.ledger.fraud import FraudProof
    from sapo_protocol.eip712 import EpochRoot


PAYABLE: Final = "payable"
NO_SIGNAL: Final = "all completions earned the same: not payable"
"""Outcomes of own rollouts, as `sapo ledger explain` prints them."""


@dataclass(frozen=True, slots=True)
class _Grant:
    """Points granted in total, and the proof that the contract requires."""

    points: int
    proof: tuple[Digest, ...]


def status(config: Config) -> dict[str, Any]:
    """Return the account's registration, points, bond and queued transactions."""
    with open_session(config) as session:
        return run(_status, session)


def register(config: Config, consent: Consent) -> dict[str, Any]:
    """Register the node key with the account on the chain, and wait for it."""
    DataDir(config.data_dir).create()
    with open_session(config, needs_archive=False) as session:
        return run(_register, session, consent)


def claim(config: Config, consent: Consent, *, running: Identity | None = None) -> dict[str, Any]:
    """Claim everything that was granted and not paid yet, and wait for it.

    Args:
        running: the identity of the node in whose process this is, and which sends what is queued.
    """
    with open_session(config, running, sends=None if running is None else False) as session:
        return run(_claim, session, consent)


def challenge(config: Config, epoch: int, consent: Consent) -> dict[str, Any]:
    """Submit proofs that an epoch's live posting, or an auditor of it, is false, and wait for it."""
    with open_session(config) as session:
        return run(_challenge, session, epoch, consent)


def finalise(config: Config, consent: Consent) -> dict[str, Any]:
    """Make the live posting final once its window is over, which any account may, and wait for it."""
    with open_session(config) as session:
        return run(_finalise, session, consent)


def explain(config: Config, epoch: int) -> dict[str, Any]:
    """Return which own rollouts of an epoch counted, and why others did not."""
    with open_session(config) as session:
        return run(_explain, session, epoch)


def revoke(config: Config, node: NodeId, consent: Consent) -> dict[str, Any]:
    """Revoke the account's claim on a node key, such as that of a lost machine, and wait for it."""
    with open_session(config) as session:
        consent([statements.describe_revocation(session.signer, session.manifest, node)])
        return run(_replace_claim, session, node)


def registrations(config: Config, identity: Identity, *, end: NodeId, not_after: int) -> dict[str, Any]:
    """Claim an identity's node key until a given time, end the claim on another, and wait for both."""
    with open_session(config, identity) as session:
        return run(_replace_claim, session, end, not_after)


async def _status(session: LedgerSession) -> dict[str, Any]:
    await session.ledger.check()
    settlement = await session.last_settlement()
    missing = settlement if settlement and settlement.proposal is None else None
    granted = None if missing else _granted(session, settlement.proposal if settlement else None)
    claimed = await session.ledger.claimed()
    live = await session.ledger.live_accounts()
    posting = await session.ledger.live_record()
    coins = (await session.ledger.look(claims=False)).coins_wei
    return {
        "account": str(session.account),
        "chain": session.manifest.chain_id,
        "coins": None if coins is None else coins / COIN,
        "registered": session.account in {account for account, _ in live},
        "claimed keys": ", ".join(sorted(node.hex() for account, node in live if account == session.account)),
        "last epoch": settlement.epoch if settlement else None,
        "epoch in its challenge window": posting.root.epoch if posting else None,
        "points granted": granted,
        "points claimed": claimed,
        "claimable": None if granted is None else granted - claimed,
        **await payout_facts(session),
        "waits for": "; ".join(session.missing(missing)) if missing else None,
        "tokens": await session.ledger.balance() / TOKEN,
        **await _treasury_facts(session),
        **await bond_facts(session),
        **_sending(session.ledger.status(), coins),
    }


async def _treasury_facts(session: LedgerSession) -> dict[str, Any]:
    treasury = await session.ledger.treasury()
    left, length = treasury.epochs_left, session.manifest.epoch_seconds
    return {
        "treasury": treasury.tokens / TOKEN,
        "granted and not claimed": treasury.owed / TOKEN,
        "points per epoch": round(treasury.points_per_epoch, 1),
        "treasury pays": treasury.in_words(length),
        "treasury pays until": None if left is None else format_time(int(time.time() + left * length)),
    }


def _sending(status: LedgerStatus, coins: int | None) -> dict[str, Any]:
    """Return the state of queued transactions, and of the endpoints that were asked."""
    receipt = status.last_receipt_seconds
    error = status.last_error
    if status.pending and coins == 0:
        error = "the account holds no coins, so nothing can be sent: sapo doctor"
    return {
        "waiting to be sent": status.pending,
        "stuck": status.stuck,
        "refused": status.refused,
        "last error": error,
        "last receipt": None if receipt is None else datetime.fromtimestamp(receipt, UTC).isoformat(),
        "endpoints": [to_json(endpoint) for endpoint in status.endpoints],
    }


async def _register(session: LedgerSession, consent: Consent) -> dict[str, Any]:
    await session.ledger.check()
    now = time.time()
    not_after = end_of_new(now)

    async def is_registered() -> bool:
        return is_fresh(await session.ledger.registered_until(session.node), now)

    async def submit() -> None:
        await session.ledger.register(session.node, not_after)

    known = await is_registered()
    if not known:
        consent([statements.describe_registration(session.signer, session.manifest, session.node, not_after)])
    await session.submit_and_wait("registration", submit, is_registered)
    return {"account": str(session.account), "node": str(session.node), "registered": True, "before": known}


async def _claim(session: LedgerSession, consent: Consent) -> dict[str, Any]:
    await session.ledger.check()
    await session.require_current()
    before, granted = await session.ledger.claimed(), (await _grant(session)).points
    if granted <= before:
        raise await _nothing_to_claim(session, granted, before)
    await _require_covered(session, granted - before)
    payee = await session.ledger.payout()
    words = {"points": granted - before, "points in all": granted, **claim_fields(payee)}
    follows = "everything is paid that is granted when it is sent"
    paying = (await session.ledger.contracts()).distributor
    consent(
        [
            statements.describe_transaction(
                "RewardDistributor.claim", session.signer, contract=paying, fields=words, follows=follows
            )
        ]
    )

    async def submit() -> None:  # an epoch that becomes final meanwhile makes the proof stale
        await require_receiver(session, payee.receiver)
        grant = await _grant(session)
        await session.ledger.claim(grant.points, grant.proof)

    async def is_done() -> bool:
        return await session.ledger.claimed() != before

    await session.submit_and_wait("claim", submit, is_done)
    claimed = await session.reading(session.ledger.claimed)
    return {
        "account": str(session.account),
        "points claimed": claimed - before,
        "points claimed in all": claimed,
        "paid to": str((await session.reading(session.ledger.payout)).receiver),
        "tokens": await session.reading(session.ledger.balance) / TOKEN,
    }


async def _require_covered(session: LedgerSession, points: int) -> None:
    """Raise if the treasury cannot pay a claim, which would be refused."""
    treasury = await session.ledger.treasury()
    if not treasury.covers(points):
        paying = (await session.ledger.contracts()).distributor
        raise SapoError(
            f"the swarm's treasury holds {treasury.tokens / TOKEN:g} tokens,"
            f" and this claim of {points} points takes {points * treasury.tokens_per_point / TOKEN:g}",
            hint=f"the points stay granted; anyone may send tokens to {paying}, then claim again",
            exit_code=ExitCode.LEDGER,
        )


async def _finalise(session: LedgerSession, consent: Consent) -> dict[str, Any]:
    await session.ledger.check()
    live = await session.ledger.live_record()
    if live is None:
        raise SapoError(
            "no epoch waits to become final",
            hint="`sapo ledger status` names the last final one",
            exit_code=ExitCode.LEDGER,
        )
    over = live.posted_at_seconds + await session.ledger.challenge_seconds()
    if max(time.time(), session.ledger.chain_seconds) < over:
        raise SapoError(
            f"epoch {live.root.epoch} can be challenged until {format_time(over)}",
            hint="run the same command again after that time",
            exit_code=ExitCode.LEDGER,
        )
    ledger = session.manifest.ledger
    assert ledger is not None  # a session has a chain
    words = statements.describe_transaction(
        "EpochLedger.finalise",
        session.signer,
        contract=ledger,
        fields={"epoch": live.root.epoch, "points": live.root.total},
        follows="its points can be claimed; check it before with `sapo ledger audit`",
    )
    consent([words])

    async def is_done() -> bool:
        return await session.ledger.live_record() != live

    await session.submit_and_wait("finalisation", lambda: session.ledger.finalise(live), is_done)
    return {"epoch": live.root.epoch, "points": live.root.total, "final": True}


async def _nothing_to_claim(session: LedgerSession, granted: int, claimed: int) -> SapoError:
    """Return the error, with the reason that an account has most often."""
    text = f"nothing to claim: {granted} points granted, {claimed} claimed"
    hint = "points are granted when an epoch is final: sapo ledger status"
    if session.account not in {account for account, _ in await session.ledger.live_accounts()}:
        text += f"; {session.account} is not registered, so nothing that it shares now is counted"
        hint = "a running node registers by itself once the account holds coins: sapo ledger status"
    return SapoError(text, hint=hint, exit_code=ExitCode.LEDGER)


async def _challenge(session: LedgerSession, epoch: int, consent: Consent) -> dict[str, Any]:
    await session.ledger.check()
    live = await session.ledger.live_record()
    root = live.root if live is not None and live.root.epoch == epoch else None
    by_turns = await session.ledger.can_settle()  # else the proofs are those of 0.1.0, which sends them
    false = await _fraud(session, root) if root and by_turns else None
    found = equivocations(session.archive, epoch, session.manifest.ledger_domain) if by_turns else {}
    liars = {
        place: proof
        for place, proof in found.items()
        if not await session.ledger.has_equivocated(place[0], epoch, place[1])
    }
    proofs = [*liars.values(), *([false] if false else [])]
    if not proofs:
        raise SapoError(
            f"no message in {session.data.root} proves epoch {epoch} false",
            hint="only what breaks the contracts' rules can be challenged, until the epoch is final",
            exit_code=ExitCode.LEDGER,
        )
    verifier = (await session.ledger.contracts()).verifier
    follows = "the signers of what it proves false lose their bonds; half of each goes to this account"
    names = [f"FraudVerifier.{proof.FUNCTION}" for proof in proofs]
    consent(
        [
            statements.describe_transaction(
                name, session.signer, contract=verifier, fields={"epoch": epoch}, follows=follows
            )
            for name in names
        ]
    )
    before = await session.ledger.balance()

    async def submit() -> None:
        for proof in proofs:
            await session.ledger.challenge(epoch, proof)

    async def is_done() -> bool:
        punished = [await session.ledger.has_equivocated(auditor, epoch, turn) for auditor, turn in liars]
        now = await session.ledger.live_record()
        return all(punished) and not (false and now and now.root == root)

    await session.submit_and_wait("challenge", submit, is_done)
    return {
        "epoch": epoch,
        "proofs": ", ".join(proof.FUNCTION for proof in proofs),
        "tokens earned": (await session.ledger.balance() - before) / TOKEN,
    }


async def _fraud(session: LedgerSession, root: EpochRoot) -> FraudProof | None:
    """Return a proof that a live posting is false, if there is one."""
    record = await session.ledger.last_record()
    last = record.root if record else None
    cap = await session.ledger.points_cap()
    dispute = Dispute(root, last, points_cap=cap)
    return find_fraud(dispute, posted_trees(dispute, session.archive))


async def _replace_claim(
    session: LedgerSession, end: NodeId, claim_until: int | None = None
) -> dict[str, Any]:
    """End the claim on a key; with `claim_until`, also claim the session's own key until then."""
    await session.ledger.check()
    live = await session.ledger.live_accounts()
    if claim_until is None and (session.account, end) not in live:
        raise SapoError(
            f"account {session.account} does not claim node key {end}",
            hint="`sapo ledger status` lists the keys that it claims",
            exit_code=ExitCode.LEDGER,
        )
    if claim_until is not None and (session.account, session.node) not in live:
        await session.ledger.register(session.node, claim_until)
    if (session.account, end) in live:
        await session.ledger.revoke(end)
    done = await session.drain()
    keys = sorted(
        node.hex() for account, node in await session.ledger.live_accounts() if account == session.account
    )
    return {"on the chain": "done" if done else "queued: sent when the chain answers", "claimed keys": keys}


async def _grant(session: LedgerSession) -> _Grant:
    """Return this account's total of points in the last final epoch, with its Merkle proof."""
    settled = await session.settled()
    entries = cumulative_entries(settled.shares) if settled else ()
    if await session.ledger.can_settle():
        place = merkle.sum_place(entries, session.account)
        return _Grant(place.value if place.holder == session.account else 0, place.proof)
    for index, (account, points) in enumerate(entries):
        if account == session.account:
            leaves = [merkle.leaf(*entry) for entry in entries]
            return _Grant(points, merkle.proof(leaves, index))
    return _Grant(0, ())


async def _explain(session: LedgerSession, epoch: int) -> dict[str, Any]:
    record = await session.ledger.record(epoch)
    if record is None:
        raise SapoError(
            f"epoch {epoch} is not final",
            hint="`sapo ledger status` names the last final epoch, and the posting that can be challenged",
            exit_code=ExitCode.LEDGER,
        )
    proposal = session.archive.proposal(ContentId(record.root.archive_digest))
    shares = proposal.shares if proposal else ()
    points = next((share.points for share in shares if share.account == session.account), 0)
    named = [session.archive.tally(id_) for id_ in proposal.tallies] if proposal else []
    tallies = [tally for tally in named if tally is not None]
    counted = earned_points(tallies, session.manifest.points_cap).get(session.account, 0)
    outcomes = _outcomes(session, epoch)
    live = await session.ledger.live_accounts()
    return {
        "epoch": epoch,
        "registered": session.account in {account for account, _ in live},
        "root": record.root.contribution_root.hex(),
        "total": record.root.total,
        "budget": await session.ledger.epoch_budget(),
        "counted": counted,
        "points": points,
        "rollouts": [{"content_id": id_, "outcome": outcome} for id_, outcome in outcomes.items()],
    }


def _outcomes(session: LedgerSession, epoch: int) -> Mapping[str, str]:
    """Return the outcome of each of this node's own rollouts of an epoch, or the number of each outcome."""
    outcomes = _outcomes_in_events(session, epoch)
    with closing(OutcomeStore(session.data.outcomes)) as store:
        outcomes |= {id_: _outcome(reward) for id_, reward in store.own(epoch)}
        if outcomes or (totals := store.totals(epoch)) is None:
            return outcomes
    shared, payable, equal = totals
    return {
        f"{count} rollouts": outcome
        for count, outcome in ((payable, PAYABLE), (equal, NO_SIGNAL), (shared - payable - equal, "shared"))
        if count
    }


def _outcome(reward: float | None) -> str:
    if reward is None:
        return "shared"
    return PAYABLE if 0 < reward < 1 else NO_SIGNAL


def _outcomes_in_events(session: LedgerSession, epoch: int) -> dict[str, str]:
    """Return the outcomes from the event file: versions before 0.2 stored them only there."""
    outcomes: dict[str, str] = {}
    for event in read_events(session.data.events):
        id_ = str(event.get("content_id"))
        if event["event"] == "published" and event["epoch"] == epoch:
            outcomes[id_] = "shared"
        elif event["event"] == "verified" and id_ in outcomes:
            outcomes[id_] = _outcome(float(str(event["mean_reward"])))
    return outcomes


def _granted(session: LedgerSession, settled: Proposal | None) -> int:
    shares = settled.shares if settled else ()
    return next((share.cumulative for share in shares if share.account == session.account), 0)
