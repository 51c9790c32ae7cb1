"""What an auditor counts: once, informative, of live accounts, capped."""

from support.swarm import EPOCH, Identity
from support.verification_harness import VerificationHarness

from sapo_protocol import merkle
from sapo_protocol.identifiers import Digest
from sapo_verification.payable import PayableCount
from sapo_verification.types import VerifiedRollout

ALICE, BOB, CAROL = Identity(1), Identity(2), Identity(3)
LIVE = [ALICE.account, BOB.account, CAROL.account]


async def _verified(
    desk: VerificationHarness, author: Identity, slots: range, **kind: int
) -> list[VerifiedRollout]:
    return [await desk.verifier.verify(desk.hear(author, slot, **kind)) for slot in slots]


async def test_informative_rollouts_of_live_accounts_count_once_and_up_to_the_cap() -> None:
    desk, count = VerificationHarness((ALICE, BOB, CAROL)), PayableCount()
    alices = await _verified(desk, ALICE, range(5))
    bobs = await _verified(desk, BOB, range(2))
    carols = await _verified(desk, CAROL, range(3), right=3, wrong=0)
    for verified in (*alices, *alices, *bobs, *carols):
        count.record(verified)
    expected = sorted([(ALICE.account, 4), (BOB.account, 2)])
    assert count.points(EPOCH, LIVE, points_per_epoch=4) == tuple(expected)
    assert count.points(EPOCH, [BOB.account, BOB.account], 4) == ((BOB.account, 2),)
    assert count.points(EPOCH + 1, LIVE, 4) == count.points(EPOCH, [], 4) == ()
    assert count.evidence(EPOCH, ALICE.account) == {verified.content_id for verified in alices}
    assert count.evidence(EPOCH, CAROL.account) == frozenset()


async def test_the_evidence_root_covers_every_counted_rollout_in_any_order() -> None:
    desk = VerificationHarness((ALICE, BOB))
    rollouts = [*await _verified(desk, ALICE, range(3)), *await _verified(desk, BOB, range(2))]
    roots = set()
    for order in (rollouts, rollouts[::-1], rollouts * 2):
        count = PayableCount()
        for verified in order:
            count.record(verified)
        roots.add(count.evidence_root(EPOCH))
    assert roots == {merkle.root(sorted(Digest(verified.content_id) for verified in rollouts))}
    assert PayableCount().evidence_root(EPOCH) == merkle.EMPTY_ROOT


async def test_older_epochs_are_forgotten() -> None:
    desk, count = VerificationHarness((ALICE,)), PayableCount()
    for epoch in (EPOCH - 1, EPOCH):
        count.record(await desk.verifier.verify(desk.hear(ALICE, 0, epoch=epoch)))
    count.forget(before_epoch=EPOCH)
    assert count.points(EPOCH - 1, LIVE, 4) == ()
    assert count.points(EPOCH, LIVE, 4) == ((ALICE.account, 1),)
