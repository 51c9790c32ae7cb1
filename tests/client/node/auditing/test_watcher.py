"""Eight nodes, four of them auditors, one of which lies: a node's watchtower challenges it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio
from support.auditor_harness import (
    CROWD,
    FIRST_TURN_SECONDS,
    FOUR_AUDITORS,
    TURN_SECONDS,
    AuditorHarness,
    World,
    agree,
    checking,
    connect,
)
from support.ledger import (
    AUDITOR_BOND,
    CHALLENGE_SECONDS,
    DEPLOYER,
    POINTS_CAP,
    Contracts,
    Tree,
    ask,
    keys,
    make_root,
    settled,
    sign,
)
from support.nodes import until

from sapo_client.account import ledger_commands
from sapo_client.errors import SapoError
from sapo_client.ledger.fraud import by_signer, posting_name
from sapo_client.ledger.records import Stake
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Approval, Proposal, Share, Tally
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, ContentId

pytestmark = pytest.mark.long

EPOCH = 101
COUNTED_SECONDS = 7

WORK = {CROWD[0].account: 3, CROWD[1].account: 1, CROWD[2].account: 2}
"""Payable rollouts of each worker; the fourth shares none."""


@dataclass(frozen=True)
class Swarm:
    """All nodes, after an epoch of work that all have verified."""

    world: World
    honest: Sequence[AuditorHarness]
    liar: AuditorHarness
    workers: Sequence[AuditorHarness]
    nursery: trio.Nursery

    @property
    def contracts(self) -> Contracts:
        return self.world.contracts

    def bonds(self) -> dict[Account, Stake]:
        auditors = [*self.honest, self.liar]
        return {
            harness.identity.account: self.contracts.vault.stake(harness.identity.account)
            for harness in auditors
        }

    def passes(self, seconds: float) -> bool:
        """Let the clock go on; return true."""
        self.world.chain.now_seconds += seconds
        return True

    async def settle(self) -> EpochRoot:
        """Let the honest auditors send, and advance the clock, until the epoch is final."""
        for harness in self.honest:
            self.nursery.start_soon(partial(harness.node.supervisor.keep, "ledger", harness.ledger.run))
        return await self.until_final(EPOCH)

    async def until_final(self, epoch: int) -> EpochRoot:
        """Advance the clock from turn to turn until an epoch is final."""
        for turn in range(9):
            self.world.turn_to(epoch + 1, FIRST_TURN_SECONDS + turn * TURN_SECONDS)
            with trio.move_on_after(4):
                while (record := self.contracts.history.record(epoch)) is None:
                    await trio.sleep(0.05)
                return record.root
        raise AssertionError("the epoch never became final")


@asynccontextmanager
async def swarm(folder: Path, *, quorum: int, watched: bool = True) -> AsyncIterator[Swarm]:
    """Yield the swarm; the auditors send nothing yet, so earlier transactions are another node's."""
    world = World.create(folder, auditors=FOUR_AUDITORS, quorum=quorum, workers=CROWD)
    async with checking(world) as (nursery, checkers):
        *honest, liar = (AuditorHarness(world, identity, checkers) for identity in FOUR_AUDITORS)
        workers = [AuditorHarness(world, identity, checkers, audits=False) for identity in CROWD]
        everybody = [*honest, liar, *workers]
        for harness in everybody:
            sends = watched and harness is workers[0]
            nursery.start_soon(partial(harness.run, sends=sends, acts=harness is not liar))
        world.turn_to(EPOCH, 30)
        await connect(*everybody)
        for worker in workers:
            for slot in range(WORK.get(worker.identity.account, 0)):
                await worker.work(EPOCH, slot)
        done = sum(WORK.values())
        await until(lambda: all(len(harness.node.events("verified")) == done for harness in honest))
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        node = [*honest, *workers]
        await until(lambda: all(len(harness.contributions.tallies(EPOCH)) == len(honest) for harness in node))
        yield Swarm(world=world, honest=honest, liar=liar, workers=workers, nursery=nursery)
    world.chain.close()


def own_turn(liar: AuditorHarness) -> int:
    """Return the first turn in which others accept the dishonest auditor's proposals."""
    return (FOUR_AUDITORS.index(liar.identity) - EPOCH) % len(FOUR_AUDITORS)


async def propose(liar: AuditorHarness, points: dict[Account, int]) -> tuple[ContentId, Proposal]:
    """Publish a proposal of the dishonest auditor with a tally that matches it, and return both."""
    identity = liar.identity
    tally = Tally(
        node=identity.node,
        account=identity.account,
        epoch=EPOCH,
        points=tuple(sorted(points.items())),
        evidence_root=merkle.EMPTY_ROOT,
    )
    shares = tuple(Share(account, count, count) for account, count in sorted(points.items()))
    proposal = Proposal(
        node=identity.node,
        account=identity.account,
        epoch=EPOCH,
        tallies=(await liar.publish_message(tally),),
        shares=shares,
        turn=own_turn(liar),
    )
    return await liar.publish_message(proposal), proposal


async def approve(liar: AuditorHarness, content_id: ContentId, proposal: Proposal) -> None:
    """Publish the dishonest auditor's signature on a proposal."""
    identity = liar.identity
    digest = proposal.approval(content_id).digest(liar.manifest.ledger_domain)
    signature = secp256k1.sign(identity.secret, digest)
    await liar.publish_message(
        Approval(
            node=identity.node,
            account=identity.account,
            epoch=EPOCH,
            proposal=content_id,
            signature=signature,
            turn=proposal.turn,
        )
    )


def is_reference(root: EpochRoot) -> bool:
    """Whether a root holds each worker's rollouts, no more and no less."""
    leaves = merkle.sum_root(sorted(WORK.items()))
    return (root.total, root.contribution_root, root.cumulative_root) == (6, leaves, leaves)


async def test_a_false_posting_is_rejected_and_costs_its_signer_the_bond(tmp_path: Path) -> None:
    async with swarm(tmp_path, quorum=1) as net:  # the dishonest auditor needs no consent
        watcher, contracts = net.workers[0], net.contracts
        lie = await propose(net.liar, {CROWD[3].account: POINTS_CAP + 1})
        root = lie[1].root(lie[0])
        contracts.post(root, sign(root, contracts.domain, [keys(net.liar.identity.number)]))
        posted = contracts.ledger.live()
        assert posted is not None
        # Nodes challenge by turns, so that one pays; the last turn comes when half of the window is over.
        net.world.chain.now_seconds = posted.posted_at_seconds + CHALLENGE_SECONDS / 2
        await until(lambda: contracts.ledger.live() is None)

        honest = {harness.identity.account: Stake(AUDITOR_BOND, 0, 0) for harness in net.honest}
        assert net.bonds() == {**honest, net.liar.identity.account: Stake(0, 0, 0)}
        assert contracts.token.balance(watcher.identity.account) == AUDITOR_BOND // 2
        assert [event["proof"] for event in watcher.node.events("challenge")] == ["proveOverCap"]
        assert contracts.ledger.next_epoch() == 0
        assert is_reference(await net.settle())
        assert net.bonds() == {**honest, net.liar.identity.account: Stake(0, 0, 0)}
        for harness in (*net.honest, *net.workers):
            assert harness.node.events("service_failed") == []


async def test_two_signatures_for_one_epoch_cost_the_bond(tmp_path: Path) -> None:
    async with swarm(tmp_path, quorum=3) as net:
        watcher, contracts = net.workers[0], net.contracts
        for points in ({CROWD[3].account: 2}, {CROWD[3].account: 3}):
            await approve(net.liar, *await propose(net.liar, points))
        # Nodes prove it by turns, so that one pays.
        await until(lambda: net.passes(0.1) and net.bonds()[net.liar.identity.account] == Stake(0, 0, 0))
        assert contracts.token.balance(watcher.identity.account) == AUDITOR_BOND // 2
        assert contracts.verifier.has_equivocated(net.liar.identity.account, EPOCH, own_turn(net.liar))
        assert is_reference(await net.settle())
        honest = [net.bonds()[harness.identity.account] for harness in net.honest]
        assert honest == [Stake(AUDITOR_BOND, 0, 0)] * 3


async def test_a_signature_of_a_slashed_auditor_does_not_invalidate_a_posting(tmp_path: Path) -> None:
    async with swarm(tmp_path, quorum=3) as net:
        liar = net.liar
        for points in ({CROWD[3].account: 2}, {CROWD[3].account: 3}):
            await approve(liar, *await propose(liar, points))
        await until(lambda: net.passes(0.1) and net.bonds()[liar.identity.account] == Stake(0, 0, 0))
        # Now it proposes the truth, and is the first to sign it.
        tallies = {
            id_: tally
            for id_, tally in net.workers[0].contributions.tallies(EPOCH).items()
            if tally.account != liar.identity.account
        }
        shares = settled([*tallies.values()], {})
        truth = Proposal(
            node=liar.identity.node,
            account=liar.identity.account,
            epoch=EPOCH,
            tallies=tuple(sorted(tallies)),
            shares=shares,
            turn=own_turn(liar) + len(FOUR_AUDITORS),
        )
        await approve(liar, await liar.publish_message(truth), truth)
        assert is_reference(await net.settle())


async def test_a_false_posting_is_challenged_by_hand(tmp_path: Path) -> None:
    async with swarm(tmp_path, quorum=1, watched=False) as net:
        watcher, contracts = net.workers[0], net.contracts
        command = partial(ledger_commands.challenge, watcher.config(), EPOCH, agree)
        with pytest.raises(SapoError, match="proves epoch 101 false"):
            await trio.to_thread.run_sync(command)
        content_id, proposal = await propose(net.liar, {CROWD[3].account: POINTS_CAP + 1})
        root = proposal.root(content_id)
        contracts.post(root, sign(root, contracts.domain, [keys(net.liar.identity.number)]))
        told = await trio.to_thread.run_sync(command)
        assert told == {
            "epoch": EPOCH,
            "proofs": "proveOverCap",
            "tokens earned": (AUDITOR_BOND // 2) / 10**18,
        }
        assert contracts.ledger.live() is None


async def test_an_unverifiable_posting_is_reported_and_not_made_final(tmp_path: Path) -> None:
    """Without the leaves nothing can be proved against a quorum; no honest node finalises its root."""
    async with swarm(tmp_path, quorum=1) as net:
        watcher, contracts = net.workers[0], net.contracts
        proposal = Proposal(
            node=net.liar.identity.node,
            account=net.liar.identity.account,
            epoch=EPOCH,
            tallies=(ContentId(bytes(32)),),
            shares=(Share(CROWD[3].account, 2, 2),),
        )
        root = proposal.root(ContentId(bytes(32)))
        contracts.post(root, sign(root, contracts.domain, [keys(net.liar.identity.number)]))
        await until(lambda: watcher.node.events("posting_doubted"))
        net.world.turn_to(EPOCH + 1, COUNTED_SECONDS + CHALLENGE_SECONDS + 10 * TURN_SECONDS)
        for harness in (*net.honest, *net.workers):
            await harness.parts.watchtower().look()
            assert harness.ledger.status().pending == 0
        assert contracts.ledger.live() is not None
        assert net.bonds()[net.liar.identity.account] == Stake(AUDITOR_BOND, 0, 0)


async def test_a_node_asks_for_hidden_leaves_and_the_next_honest_posting_becomes_final(
    tmp_path: Path,
) -> None:
    """A quorum gives one of its accounts what others have not claimed yet, and shows its leaves to nobody."""
    async with swarm(tmp_path, quorum=1) as net:
        contracts, chain, watcher = net.contracts, net.world.chain, net.workers[0]
        had, account = await net.settle(), watcher.identity.account
        token, bond = contracts.token, contracts.verifier.question_bond()
        chain.send(DEPLOYER, token.address, token.transfer(account, bond))
        net.world.turn_to(EPOCH + 1, 50)
        await watcher.work(EPOCH + 1, 0)
        done = sum(WORK.values()) + 1
        await until(lambda: all(len(harness.node.events("verified")) == done for harness in net.honest))
        net.world.turn_to(EPOCH + 2, COUNTED_SECONDS)
        stolen = Tree({CROWD[3].account: had.total}).root
        hidden = make_root(EPOCH + 1, base_root=had.cumulative_root, total=0, cumulative_root=stolen)
        contracts.post(hidden, sign(hidden, contracts.domain, [keys(net.liar.identity.number)]))
        await until(lambda: watcher.node.events("posting_doubted"))
        live = contracts.ledger.live()
        assert live is not None
        posting = posting_name(hidden.digest(contracts.domain), live.posted_at_seconds)
        chain.now_seconds = live.posted_at_seconds + CHALLENGE_SECONDS / 2
        await until(lambda: contracts.verifier.questions(posting))
        [(asked, question)] = contracts.verifier.questions(posting).items()
        assert (asked, question.asker, token.balance(account)) == (account, account, 0)

        chain.now_seconds = question.deadline_seconds
        await until(lambda: contracts.ledger.live() is None)
        assert token.balance(account) == bond, "what nobody answered is returned"
        assert set(net.bonds().values()) == {Stake(AUDITOR_BOND, 0, 0)}, "a slow chain is no lie"
        root = await net.until_final(EPOCH + 1)
        points = {**WORK, account: WORK[account] + 1}
        assert (root.base_root, root.total) == (had.cumulative_root, 1)
        assert root.cumulative_root == merkle.sum_root(sorted(points.items()))
        assert [event["account"] for event in watcher.node.events("leaf_asked")] == [account.hex()]
        everybody = (*net.honest, *net.workers)
        assert any(harness.node.events("leaf_hidden") for harness in everybody), (
            "whoever was first rejected it"
        )
        assert not any(harness.node.events("challenge") for harness in everybody)


async def test_a_true_posting_that_was_rejected_is_proposed_again_and_paid(tmp_path: Path) -> None:
    """All nodes were disconnected from the chain while leaves were asked for: that root is rejected."""
    async with swarm(tmp_path, quorum=3, watched=False) as net:
        contracts, chain, verifier = net.contracts, net.world.chain, net.contracts.verifier
        net.world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS + TURN_SECONDS)
        store = net.honest[0].contributions
        await until(lambda: any(len(store.approvals(EPOCH, each)) == 3 for each in store.proposals(EPOCH)))
        [content_id] = [each for each in store.proposals(EPOCH) if len(store.approvals(EPOCH, each)) == 3]
        statement = store.proposals(EPOCH)[content_id].approval(content_id)
        signed = [each.signature for each in store.approvals(EPOCH, content_id)]
        post = contracts.ledger.post(statement, by_signer(statement.digest(contracts.domain), signed))
        chain.send(DEPLOYER, contracts.ledger.address, post)
        ask(contracts, CROWD[3].account)
        chain.now_seconds += verifier.answer_seconds()
        chain.send(DEPLOYER, verifier.address, verifier.prove_hidden(CROWD[3].account))
        assert contracts.ledger.live() is None

        for harness in net.honest:
            net.nursery.start_soon(partial(harness.node.supervisor.keep, "ledger", harness.ledger.run))
        await until(lambda: net.passes(0.1) and contracts.history.record(EPOCH))
        record = contracts.history.record(EPOCH)
        assert record is not None
        assert is_reference(record.root)
        assert record.root.archive_digest != statement.root.archive_digest
        assert any(harness.node.events("root_rejected") for harness in net.honest)
        assert set(net.bonds().values()) == {Stake(AUDITOR_BOND, 0, 0)}


async def test_honest_auditors_continue_from_the_last_verifiable_root(tmp_path: Path) -> None:
    """Nobody could ask in time, so a root that hides its leaves became final, and another on top of it."""
    async with swarm(tmp_path, quorum=1) as net:
        contracts, chain, watcher = net.contracts, net.world.chain, net.workers[0]
        had, account, token = await net.settle(), watcher.identity.account, net.contracts.token
        stolen = Tree({CROWD[3].account: had.total}).root
        for epoch in (EPOCH + 1, EPOCH + 2):
            net.world.turn_to(epoch + 1, 1)
            hidden = make_root(epoch, base_root=contracts.base_root, total=0, cumulative_root=stolen)
            contracts.post(hidden, sign(hidden, contracts.domain, [keys(net.liar.identity.number)]))
            contracts.finalise()
        assert contracts.base_root == stolen

        bond = contracts.verifier.question_bond()
        chain.send(DEPLOYER, token.address, token.transfer(account, bond))
        [newest, oldest, _] = contracts.history.newest(3)
        await until(lambda: net.passes(0.2) and contracts.verifier.questions(oldest.name))
        assert contracts.verifier.questions(newest.name) == {}
        [(asked, question)] = contracts.verifier.questions(oldest.name).items()
        assert (asked, question.asker) == (account, account)
        chain.now_seconds = question.deadline_seconds
        await until(lambda: contracts.base_root == had.cumulative_root)
        assert token.balance(account) == bond, "what nobody answered is returned"

        net.world.turn_to(EPOCH + 3, 50)
        await watcher.work(EPOCH + 3, 0)
        done = sum(WORK.values()) + 1
        await until(lambda: all(len(harness.node.events("verified")) == done for harness in net.honest))
        net.world.turn_to(EPOCH + 4, COUNTED_SECONDS)
        root = await net.until_final(EPOCH + 3)
        points = {**WORK, account: WORK[account] + 1}
        assert (root.base_root, root.total) == (had.cumulative_root, 1)
        assert root.cumulative_root == merkle.sum_root(sorted(points.items()))
        assert set(net.bonds().values()) == {Stake(AUDITOR_BOND, 0, 0)}
        assert not any(harness.node.events("challenge") for harness in (*net.honest, *net.workers))


async def test_a_question_about_an_honest_final_epoch_costs_its_asker_the_bond(tmp_path: Path) -> None:
    """Anyone may ask, also to have a true epoch recalled: a node that holds its leaves shows them in time."""
    async with swarm(tmp_path, quorum=1) as net:
        contracts, chain, token = net.contracts, net.world.chain, net.contracts.token
        verifier, had, stranger = contracts.verifier, await net.settle(), CROWD[3].account
        bond, [final] = verifier.question_bond(), contracts.history.newest(2)
        accounts = [harness.identity.account for harness in (*net.honest, *net.workers)]
        before = {account: token.balance(account) for account in accounts}
        chain.send(DEPLOYER, token.address, token.approve(verifier.address, 2 * bond))
        for account in (stranger, CROWD[0].account):  # one that has nothing there, and one that has points
            chain.send(DEPLOYER, verifier.address, verifier.ask_final([final], account))
        assert set(verifier.questions(final.name)) == {stranger, CROWD[0].account}
        await until(lambda: net.passes(0.2) and not verifier.questions(final.name))
        earned = sum(token.balance(account) - held for account, held in before.items())
        assert (earned, contracts.base_root) == (2 * bond, had.cumulative_root)
