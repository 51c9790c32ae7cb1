"""A live posting that lost its quorum: running auditors approve it in a later turn and complete it."""

from __future__ import annotations

from functools import partial

import trio
from support.auditor_harness import (
    AUDITORS,
    FIRST_TURN_SECONDS,
    TURN_SECONDS,
    AuditorHarness,
    World,
    checking,
    connect,
)
from support.ledger import make_root, settled
from support.nodes import PATIENCE_SECONDS, until

from sapo_client.ledger.fraud import Equivocation, by_signer
from sapo_protocol import secp256k1
from sapo_protocol.contributions import Proposal, Tally
from sapo_protocol.eip712 import EpochApproval
from sapo_protocol.merkle import EMPTY_ROOT
from sapo_verification.signing.database import UNKNOWN_ROOT, ApprovalMark

EPOCH = 101
COUNTED_SECONDS = 7


async def test_running_auditors_complete_a_posting_with_approvals_of_a_later_turn(world: World) -> None:
    """One of the two honest ones has signed another root in the turn of the proposal."""
    domain, contracts = world.manifest.ledger_domain, world.contracts
    async with checking(world) as (nursery, checkers):
        liar, first, second = (
            AuditorHarness(world, AUDITORS[(EPOCH + n) % 3], checkers, audits=n > 0) for n in range(3)
        )
        mark = ApprovalMark(world.manifest.swarm_id, second.identity.account, EPOCH, 0, UNKNOWN_ROOT)
        second.parts.signing.raise_marks((), (mark,))
        nursery.start_soon(partial(liar.run, sends=False))
        nursery.start_soon(partial(first.run, sends=False))
        nursery.start_soon(partial(second.run, sends=True))
        world.turn_to(EPOCH, 30)
        await connect(first, second, liar)
        await liar.work(EPOCH, 0)
        await until(lambda: first.node.events("verified") and second.node.events("verified"))
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        place = liar.identity.node, liar.identity.account, EPOCH
        await liar.publish_message(Tally(*place, ((liar.identity.account, 1),), EMPTY_ROOT))
        await until(lambda: all(len(a.contributions.tallies(EPOCH)) == 3 for a in (first, second)))

        tallies = first.contributions.tallies(EPOCH)
        proposal = Proposal(*place, tuple(sorted(tallies)), settled([*tallies.values()], {}))
        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS)
        content_id = await liar.publish_message(proposal)
        await until(lambda: len(liar.contributions.approvals(EPOCH, content_id)) == 1)
        statement = proposal.approval(content_id)
        own = secp256k1.sign(liar.identity.secret, statement.digest(domain))
        [approval] = liar.contributions.approvals(EPOCH, content_id)
        contracts.post(statement.root, by_signer(statement.digest(domain), [own, approval.signature]))
        pair = [make_root(EPOCH, archive=archive) for archive in (8, 9)]
        lies = [secp256k1.sign(liar.identity.secret, EpochApproval(9, each).digest(domain)) for each in pair]
        contracts.prove(Equivocation(9, pair[0], pair[1], lies[0], lies[1]))

        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS + TURN_SECONDS)
        honest = sorted(each.identity.account for each in (first, second))
        bits = sum(1 << place for place, each in enumerate(AUDITORS) if each.account in honest)
        with trio.fail_after(PATIENCE_SECONDS):
            while (live := contracts.ledger.live()) is None or live.signers != bits:
                await trio.sleep(0.2)
        assert live.root == statement.root
        approvals = second.contributions.approvals(EPOCH, content_id)
        assert {(each.account, each.turn) for each in approvals} == {
            (first.identity.account, 0),
            *((account, 1) for account in honest),
        }
        nursery.cancel_scope.cancel()
