"""Auditors on a real chain count, propose, approve and post, also offline, restarted or dishonest ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from support.auditor_harness import (
    AUDITORS,
    FIRST_TURN_SECONDS,
    FOUR_AUDITORS,
    KINDS,
    TURN_SECONDS,
    WORKERS,
    AuditorHarness,
    World,
    agree,
    checking,
    connect,
)
from support.ledger import ServedChain, settled
from support.nodes import PATIENCE_SECONDS, until
from support.swarm import Identity

from sapo_client.account import epoch_audit, ledger_commands
from sapo_client.errors import SapoError
from sapo_protocol import merkle
from sapo_protocol.contributions import Approval, Proposal, Share, Tally
from sapo_protocol.envelope import seal
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import Account
from sapo_verification.jail.checkers import CheckerPool

EPOCH = 101
"""A minute after the chain's clock begins."""

COUNTED_SECONDS = 7  # after an epoch's end: its grace is over, tallies go out
ALICE, BOB = WORKERS


def points(harness: AuditorHarness, epoch: int) -> dict[Account, int]:
    """Return the points that an auditor counted."""
    counts = [
        t.points
        for t in harness.contributions.tallies(epoch).values()
        if t.account == harness.identity.account
    ]
    return dict(counts[0])


async def test_two_epochs_are_counted_posted_claimed_and_explained(world: World) -> None:
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        alice, bob = (AuditorHarness(world, identity, checkers, audits=False) for identity in WORKERS)
        everybody = [*auditors, alice, bob]
        lives = []
        for harness in everybody:
            life = trio.CancelScope()
            nursery.start_soon(_live, life, partial(harness.run, sends=harness in auditors))
            lives.append(life)
        world.turn_to(EPOCH, 30)
        await connect(*everybody)

        payable = [await alice.work(EPOCH, slot) for slot in range(3)]
        dull = await alice.work(EPOCH, 3, right=2, wrong=0)
        await bob.work(EPOCH, 0)
        await until(lambda: all(len(a.node.events("verified")) == 5 for a in auditors))
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(len(harness.contributions.tallies(EPOCH)) == 3 for harness in everybody))
        assert all(points(a, EPOCH) == {ALICE.account: 3, BOB.account: 1} for a in auditors)
        await world.until_posted(EPOCH, alice)

        record = await alice.ledger.last_record()
        assert record is not None
        leaves = {ALICE.account: 3, BOB.account: 1}
        root = merkle.sum_root(sorted(leaves.items()))
        assert (record.root.epoch, record.root.total) == (EPOCH, 4)
        assert record.root.contribution_root == record.root.cumulative_root == root
        await until(lambda: alice.auditor.points == 3)

        # The second epoch, without one of the auditors
        lives[0].cancel()
        world.turn_to(EPOCH + 1, 30)
        await bob.work(EPOCH + 1, 0)
        await alice.work(EPOCH + 1, 0)
        await until(lambda: all(len(a.node.events("verified")) == 7 for a in auditors[1:]))
        world.turn_to(EPOCH + 2, COUNTED_SECONDS)
        await until(lambda: len(alice.contributions.tallies(EPOCH + 1)) == 2)
        await world.until_posted(EPOCH + 1, alice)
        record = await alice.ledger.last_record()
        assert record is not None
        leaves = {ALICE.account: 4, BOB.account: 2}
        root = merkle.sum_root(sorted(leaves.items()))
        assert (record.root.epoch, record.root.total, record.root.cumulative_root) == (EPOCH + 1, 2, root)
        await until(lambda: (alice.auditor.points, bob.auditor.points) == (4, 2))

        # Pay, and why
        told = await _command(ledger_commands.claim, alice, agree)
        assert (told["points claimed"], told["tokens"]) == (4, 4.0)
        assert await alice.ledger.claimed() == 4
        with pytest.raises(SapoError, match="nothing to claim"):
            await _command(ledger_commands.claim, alice, agree)
        status = await _command(ledger_commands.status, alice)
        assert (status["points granted"], status["claimable"], status["last epoch"]) == (4, 0, EPOCH + 1)
        assert (status["registered"], status["waiting to be sent"]) == (True, 0)
        reasons = await _command(ledger_commands.explain, alice, EPOCH)
        assert (reasons["points"], reasons["counted"], reasons["total"]) == (3, 3, 4)
        outcome = {item["content_id"]: item["outcome"] for item in reasons["rollouts"]}
        assert outcome == {
            **{admitted.content_id.hex(): "payable" for admitted in payable},
            dull.content_id.hex(): "all completions earned the same: not payable",
        }
        with pytest.raises(SapoError, match="is not final"):
            await _command(ledger_commands.explain, alice, EPOCH + 5)
        for harness in everybody:
            assert harness.node.events("service_failed") == []
        posted = [event["epoch"] for event in alice.node.events("epoch_final")]
        assert posted == [EPOCH, EPOCH + 1]


async def _live(life: trio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with life:
        await run()


async def _command(
    command: Callable[..., dict[str, Any]], harness: AuditorHarness, *arguments: object
) -> dict[str, Any]:
    return await trio.to_thread.run_sync(partial(command, harness.config(), *arguments))


def turn_of(auditors: Sequence[Identity], identity: Identity) -> int:
    """Return the first turn in which an auditor may propose."""
    return (list(auditors).index(identity) - EPOCH) % len(auditors)


def counted(harness: AuditorHarness, epoch: int, counts: dict[Account, int]) -> Tally:
    """Return a tally of an auditor."""
    identity = harness.identity
    return Tally(
        node=identity.node,
        account=identity.account,
        epoch=epoch,
        points=tuple(sorted(counts.items())),
        evidence_root=merkle.EMPTY_ROOT,
    )


@pytest.mark.long
async def test_an_epoch_over_its_budget_is_posted_with_reduced_pay(tmp_path: Path) -> None:
    world = World.create(tmp_path, epoch_budget_points=4)
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        alice, bob = (AuditorHarness(world, identity, checkers, audits=False) for identity in WORKERS)
        for harness in (*auditors, alice, bob):
            nursery.start_soon(partial(harness.run, sends=harness in auditors))
        world.turn_to(EPOCH, 30)
        await connect(*auditors, alice, bob)
        for worker, slots in ((alice, 5), (bob, 3)):
            for slot in range(slots):
                await worker.work(EPOCH, slot)
        await until(lambda: all(len(a.node.events("verified")) == 8 for a in auditors))
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(len(a.contributions.tallies(EPOCH)) == 3 for a in (*auditors, alice, bob)))
        await world.until_posted(EPOCH, alice)

        granted = {ALICE.account: 2, BOB.account: 1}  # 5 · 4 / 8 and 3 · 4 / 8
        record = await alice.ledger.last_record()
        assert record is not None
        root = merkle.sum_root(sorted(granted.items()))
        assert (record.root.total, record.root.contribution_root) == (3, root)
        await until(lambda: (alice.auditor.points, bob.auditor.points) == (2, 1))
        told = await _command(ledger_commands.explain, alice, EPOCH)
        assert (told["budget"], told["total"], told["counted"], told["points"]) == (4, 3, 5, 2)
        checked = await _command(epoch_audit.audit, alice, EPOCH)
        assert (checked["verdict"], checked["budget"]) == (epoch_audit.EXPLAINED, 4)
        assert checked["paid as by all tallies"]
        for harness in (*auditors, alice, bob):
            assert harness.node.events("service_failed", "posting_doubted") == []
    world.chain.close()


@pytest.mark.long
async def test_an_auditor_that_approved_a_proposal_posts_it_and_makes_no_other(tmp_path: Path) -> None:
    world = World.create(tmp_path, quorum=3)
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        first, second = auditors[EPOCH % 3], auditors[(EPOCH + 1) % 3]
        for harness in auditors:
            nursery.start_soon(partial(harness.run, sends=harness is second))
        world.turn_to(EPOCH, 30)
        await connect(*auditors)
        for harness in auditors:
            await harness.work(EPOCH, 0)
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(len(a.contributions.tallies(EPOCH)) == 3 for a in auditors))
        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS)
        await until(lambda: all(a.node.events("approval") for a in auditors))
        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS + TURN_SECONDS)
        await _posted(second)
        assert [list(a.contributions.proposals(EPOCH).values()) for a in auditors] == [
            list(first.contributions.proposals(EPOCH).values())
        ] * 3
        assert {p.account for p in first.contributions.proposals(EPOCH).values()} == {first.identity.account}
    world.chain.close()


@pytest.mark.long
async def test_points_are_known_though_the_proposal_comes_after_the_record(world: World) -> None:
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS[:2]]
        alice = AuditorHarness(world, ALICE, checkers, audits=False)
        for harness in (*auditors, alice):
            nursery.start_soon(partial(harness.run, sends=harness in auditors))
        world.turn_to(EPOCH, 30)
        await connect(*auditors, alice)
        await alice.work(EPOCH, 0)
        await until(lambda: all(harness.node.events("verified") for harness in auditors))
        world.hub.partition([alice.node.peer_id])
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(len(harness.contributions.tallies(EPOCH)) == 2 for harness in auditors))
        await world.until_posted(EPOCH, alice)
        await until(lambda: alice.node.events("epoch_final"))
        assert alice.auditor.points == 0

        world.hub.heal()
        for harness in auditors:  # old connections are closed; new peers are asked for what was missed
            alice.node.transport.drop(harness.node.peer_id)
            harness.node.transport.drop(alice.node.peer_id)
        await until(lambda: alice.node.events("peer_lost"))
        await alice.node.transport.connect(auditors[0].node.address)
        await until(lambda: alice.auditor.points == 1)
        assert len(alice.node.events("epoch_final")) == 1


async def test_a_false_proposal_gets_no_approval_and_changes_no_points(world: World) -> None:
    async with checking(world) as (nursery, checkers):
        honest = [AuditorHarness(world, identity, checkers) for identity in AUDITORS[:2]]
        liar = AuditorHarness(world, AUDITORS[2], checkers)
        alice = AuditorHarness(world, ALICE, checkers, audits=False)
        everybody = [*honest, liar, alice]
        for harness in everybody:
            nursery.start_soon(partial(harness.run, sends=harness in honest, acts=harness is not liar))
        world.turn_to(EPOCH, 30)
        await connect(*everybody)
        for slot in range(3):
            await alice.work(EPOCH, slot)
        await until(lambda: all(len(harness.node.events("verified")) == 3 for harness in honest))

        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        lie = counted(liar, EPOCH, {BOB.account: 16})
        lie_id = await liar.publish_message(lie)
        await until(lambda: all(len(harness.contributions.tallies(EPOCH)) == 3 for harness in honest))
        everyones = honest[0].contributions.tallies(EPOCH)
        genuine = {id_: tally for id_, tally in everyones.items() if id_ != lie_id}
        identity, ids = liar.identity, tuple(sorted(everyones))
        invented = [
            (Share(BOB.account, 16, 16),),  # not what its tallies settle to
            settled([lie], {}),  # right for fewer tallies than it names
            tuple(Share(s.account, s.points, s.cumulative + 100) for s in settled([*everyones.values()], {})),
        ]
        of_all = [(ids, shares) for shares in invented]
        lies = [
            Proposal(
                node=identity.node,
                account=identity.account,
                epoch=EPOCH,
                tallies=named,
                shares=shares,
                turn=turn,
            )
            for turn, (named, shares) in zip(
                # two proposals of a turn are kept
                [turn_of(AUDITORS, identity) + round_ * len(AUDITORS) for round_ in (0, 0, 1, 1)],
                [*of_all, ((lie_id,), settled([lie], {}))],
                strict=True,
            )
        ]
        lie_ids = [await liar.publish_message(proposal) for proposal in lies]
        await until(lambda: all(set(lie_ids) <= set(o.contributions.proposals(EPOCH)) for o in honest))
        await world.until_posted(EPOCH, alice)

        record = await alice.ledger.last_record()
        assert record is not None
        assert (record.root.total, record.root.epoch) == (3, EPOCH)
        share = merkle.sum_root([(ALICE.account, 3)])
        assert record.root.contribution_root == record.root.cumulative_root == share
        assert {points(harness, EPOCH)[ALICE.account] for harness in honest} == {3}
        assert len(genuine) == 2
        for harness in honest:
            assert all(harness.contributions.approvals(EPOCH, id_) == [] for id_ in lie_ids)
            assert harness.node.events("service_failed") == []


@pytest.mark.long
async def test_a_proposal_without_an_honest_tally_changes_no_points(tmp_path: Path) -> None:
    """It names its own tally and those of two others: their lower median is an honest count."""
    world = World.create(tmp_path, auditors=FOUR_AUDITORS, quorum=3)
    async with checking(world) as (nursery, checkers):
        liar, *honest = [AuditorHarness(world, identity, checkers) for identity in FOUR_AUDITORS]
        alice = AuditorHarness(world, ALICE, checkers, audits=False)
        everybody = [*honest, liar, alice]
        for harness in everybody:
            nursery.start_soon(partial(harness.run, sends=harness in honest, acts=harness is not liar))
        world.turn_to(EPOCH, 30)
        await connect(*everybody)
        for slot in range(3):
            await alice.work(EPOCH, slot)
        await until(lambda: all(len(harness.node.events("verified")) == 3 for harness in honest))
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        lie_id = await liar.publish_message(counted(liar, EPOCH, {}))
        await until(lambda: all(len(harness.contributions.tallies(EPOCH)) == 4 for harness in honest))
        tallies = honest[0].contributions.tallies(EPOCH)
        ids = tuple(sorted((lie_id, *[id_ for id_ in tallies if id_ != lie_id][:2])))
        identity, shares = liar.identity, settled([tallies[id_] for id_ in ids], {})
        denial = await liar.publish_message(
            Proposal(
                node=identity.node,
                account=identity.account,
                epoch=EPOCH,
                tallies=ids,
                shares=shares,
                turn=turn_of(FOUR_AUDITORS, identity),
            )
        )
        await until(lambda: all(denial in harness.contributions.proposals(EPOCH) for harness in honest))
        await world.until_posted(EPOCH, alice)
        record = await alice.ledger.last_record()
        assert record is not None
        assert (shares, record.root.total) == ((Share(ALICE.account, 3, 3),), 3)
    world.chain.close()


async def test_an_auditor_signs_one_root_per_turn_also_after_a_restart(world: World) -> None:
    """No transaction is sent before the restart: the epoch stays open, and it could sign again."""
    async with checking(world) as (nursery, checkers):
        other, first, second = (
            AuditorHarness(world, identity, checkers, audits=turn_of(AUDITORS, identity) > 0)
            for identity in sorted(AUDITORS, key=lambda identity: turn_of(AUDITORS, identity))
        )  # the first one keeps the contributions, and sends on request
        life = trio.CancelScope()
        nursery.start_soon(_live, life, partial(first.run, sends=False))
        nursery.start_soon(partial(second.run, sends=False))
        nursery.start_soon(partial(other.run, sends=False))
        world.turn_to(EPOCH, 30)
        await connect(first, second, other)
        await other.work(EPOCH, 0)
        await until(lambda: first.node.events("verified") and second.node.events("verified"))
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await other.publish_message(counted(other, EPOCH, {other.identity.account: 1}))
        await until(lambda: all(len(a.contributions.tallies(EPOCH)) == 3 for a in (first, second)))

        tallies = first.contributions.tallies(EPOCH)
        genuine, rival = (
            Proposal(
                node=other.identity.node,
                account=other.identity.account,
                epoch=EPOCH,
                tallies=ids,
                shares=settled([tallies[id_] for id_ in ids], {}),
            )
            for ids in (tuple(sorted(tallies)), tuple(sorted(tallies))[:2])
        )
        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS)
        signed = await other.publish_message(genuine)
        both = {first.identity.account, second.identity.account}
        await until(lambda: {a.account for a in other.contributions.approvals(EPOCH, signed)} == both)

        life.cancel()
        await until(lambda: first.node.hub.node(first.node.peer_id) is None)
        restarted = AuditorHarness(world, first.identity, checkers)
        restarted.node.certificates.restore(world.now())
        nursery.start_soon(restarted.run)
        await connect(restarted, second, other)
        refused = await other.publish_message(rival)
        await until(lambda: refused in restarted.contributions.proposals(EPOCH))
        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS + TURN_SECONDS)
        await _posted(restarted)  # it examined the other proposal before
        for harness in (restarted, second):
            account = harness.identity.account
            assert signed in _signed(harness, EPOCH, account)
            assert [*(world.root / "locks").glob(f"{account.hex()}.*.approved.json")], "for other directories"
            assert refused not in _signed(harness, EPOCH, account) | _signed(other, EPOCH, account)
            assert harness.node.events("service_failed") == []


async def test_a_restarted_auditor_has_the_same_tally(world: World) -> None:
    """The first one ends before it has audited anything of the epoch; it has the same rollouts to count."""
    async with checking(world) as (nursery, checkers):
        first, second = (AuditorHarness(world, identity, checkers) for identity in AUDITORS[:2])
        alice = AuditorHarness(world, ALICE, checkers, audits=False)
        life = trio.CancelScope()
        nursery.start_soon(_live, life, partial(first.run, sends=False, verifies=False))
        nursery.start_soon(partial(second.run, sends=False))
        nursery.start_soon(partial(alice.run, sends=False))
        world.turn_to(EPOCH, 30)
        await connect(first, second, alice)
        for slot in range(3):
            await alice.work(EPOCH, slot)
        await until(lambda: len(first.node.events("admitted")) == len(second.node.events("verified")) == 3)
        assert first.node.events("verified") == []

        life.cancel()
        await until(lambda: first.node.hub.node(first.node.peer_id) is None)
        restarted = AuditorHarness(world, AUDITORS[0], checkers)
        restarted.node.restore()
        nursery.start_soon(partial(restarted.run, sends=False))
        await connect(restarted, second, alice)
        await alice.work(EPOCH, 3)
        await until(lambda: len(restarted.node.events("verified")) == 4)
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: len(alice.contributions.tallies(EPOCH)) == 2)
        ones, others = alice.contributions.tallies(EPOCH).values()
        assert (ones.points, ones.evidence_root) == (others.points, others.evidence_root)
        assert dict(ones.points) == {ALICE.account: 4}
        nursery.cancel_scope.cancel()


async def _posted(harness: AuditorHarness) -> None:
    """Wait until a root is posted."""
    with trio.fail_after(PATIENCE_SECONDS):
        while await harness.ledger.live_record() is None:
            await trio.sleep(0.2)


def _signed(harness: AuditorHarness, epoch: int, auditor: Account) -> set[bytes]:
    """Return the proposals of an epoch that an auditor signed, as far as a node knows."""
    contributions = harness.contributions
    return {
        bytes(id_)
        for id_ in contributions.proposals(epoch)
        if any(approval.account == auditor for approval in contributions.approvals(epoch, id_))
    }


async def test_each_contribution_has_its_verdict(world: World) -> None:
    """The engine of a node that knows all identities decides; no checker runs and no time passes."""
    checkers = CheckerPool(world.manifest.suite)
    listener, author = (
        AuditorHarness(world, AUDITORS[0], checkers),
        AuditorHarness(world, AUDITORS[1], checkers),
    )
    worker = AuditorHarness(world, ALICE, checkers)
    world.turn_to(EPOCH + 1, 1)
    now = int(world.now())
    for identity in (*AUDITORS, ALICE):
        certificate = identity.certificate(world.manifest, now - 60, now + 600).to_bytes()
        listener.node.certificates.admit(certificate, now)
    validate, genuine = (
        partial(listener.node.gossip.validate_contribution, forwarder="peer"),
        sealed(author, counted(author, EPOCH, {})),
    )
    assert validate(genuine) is Verdict.IGNORE  # the chain was not asked yet
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.auditor.run)
        await until(lambda: listener.node.gossip.hears_contributions)
        assert validate(genuine) is Verdict.ACCEPT
        nursery.cancel_scope.cancel()
    before = len(listener.node.events("refused"))
    assert validate(genuine) is Verdict.IGNORE
    assert validate(sealed(author, counted(author, EPOCH + 1, {}))) is Verdict.IGNORE
    assert validate(sealed(author, counted(author, 2**64 - 1, {}))) is Verdict.IGNORE
    assert validate(sealed(worker, counted(worker, EPOCH, {}))) is Verdict.IGNORE
    assert validate(sealed(worker, counted(author, EPOCH, {ALICE.account: 1}))) is Verdict.REJECT
    assert validate(BOB.message(world.manifest)) is Verdict.REJECT
    assert validate(b"noise") is Verdict.REJECT
    assert [event["reason"] for event in listener.node.events("refused")[before:]] == [
        *("epoch_future", "epoch_future", "not_an_auditor", "bad_signature", "wrong_kind", "not_canonical")
    ]
    world.chain.now_seconds = world.manifest.genesis_seconds - 60.0  # a clock before the swarm began
    assert validate(sealed(author, counted(author, 0, {}))) is Verdict.IGNORE


def sealed(harness: AuditorHarness, message: Tally | Proposal | Approval) -> bytes:
    """Return a contribution message signed by a node, whichever node it names."""
    payload = message.to_payload()
    return seal(KINDS[type(message)], harness.manifest.swarm_id, payload, harness.identity.seed).to_bytes()


async def test_a_chain_that_goes_away_is_waited_for(world: World) -> None:
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS[:2]]
        for harness in auditors:
            nursery.start_soon(harness.run)
        world.turn_to(EPOCH, 30)
        await connect(*auditors)
        port = int(world.chain.url.rsplit(":", 1)[1])
        world.chain.close()
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(harness.node.events("service_failed") for harness in auditors))
        world.chain = ServedChain(world.root / "chain.sqlite", port=port)
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(len(harness.contributions.tallies(EPOCH)) == 2 for harness in auditors))
