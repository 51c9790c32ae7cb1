"""The pay count: informative rollouts of live accounts, once, up to a cap, the same after any restart."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from support.swarm import EPOCH, Identity, moment
from support.verification_harness import VerificationHarness

from sapo_protocol import merkle
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.rules import Rule
from sapo_verification.epoch_count import EpochCount
from sapo_verification.types import VerifiedRollout

ALICE, BOB, CAROL = Identity(1), Identity(2), Identity(3)
EVERYBODY = (ALICE, BOB, CAROL)
LIVE = [ALICE.account, BOB.account, CAROL.account]


async def _verified(
    harness: VerificationHarness, author: Identity, slots: range, **kind: int
) -> list[VerifiedRollout]:
    return [await harness.engine.verify(harness.admit(author, slot, **kind)) for slot in slots]


async def test_informative_rollouts_of_live_accounts_count_once_and_up_to_the_cap() -> None:
    harness = VerificationHarness(EVERYBODY)
    alices = await _verified(harness, ALICE, range(5))
    await _verified(harness, BOB, range(2))
    await _verified(harness, CAROL, range(3), right=3, wrong=0)
    for verified in alices:
        assert await harness.engine.verify(verified.admitted) is verified
    count = harness.engine.count
    expected = sorted([(ALICE.account, 4), (BOB.account, 2)])
    assert count.points(EPOCH, LIVE, points_per_epoch=4) == tuple(expected)
    assert count.points(EPOCH, [BOB.account, BOB.account], 4) == ((BOB.account, 2),)
    assert count.points(EPOCH + 1, LIVE, 4) == count.points(EPOCH, [], 4) == ()
    assert count.evidence(EPOCH, ALICE.account) == {verified.content_id for verified in alices}
    assert count.evidence(EPOCH, CAROL.account) == frozenset()


async def test_the_evidence_root_covers_every_counted_rollout_in_any_order() -> None:
    harness = VerificationHarness((ALICE, BOB))
    rollouts = [*await _verified(harness, ALICE, range(3)), *await _verified(harness, BOB, range(2))]
    roots = set()
    for order in (rollouts, rollouts[::-1], rollouts * 2):
        count = EpochCount()
        for verified in order:
            count.verified(verified)
        roots.add(count.evidence_root(EPOCH))
    assert roots == {merkle.root(sorted(Digest(verified.content_id) for verified in rollouts))}
    assert EpochCount().evidence_root(EPOCH) == merkle.EMPTY_ROOT


async def test_older_epochs_are_forgotten() -> None:
    harness = VerificationHarness((ALICE,))
    for epoch in (EPOCH - 1, EPOCH):
        await harness.engine.verify(harness.admit(ALICE, 0, epoch=epoch))
    count = harness.engine.count
    count.forget(before_epoch=EPOCH)
    assert count.points(EPOCH - 1, LIVE, 4) == ()
    assert count.points(EPOCH, LIVE, 4) == ((ALICE.account, 1),)


async def test_the_first_outcome_of_a_rollout_stays() -> None:
    harness, count = VerificationHarness((ALICE,)), EpochCount()
    [verified] = await _verified(harness, ALICE, range(1))
    for rule in (Rule.BEACON_KNOWN, Rule.NODE_HAD_TIME):
        count.refused(rule, verified.admitted, "it may be verified later")
    assert not count.is_decided(verified.content_id)
    count.refused(Rule.OWN_WORK, verified.admitted, "a copy")
    count.verified(verified)
    assert count.is_decided(verified.content_id)
    assert count.points(EPOCH, LIVE, 4) == ()


sent = st.lists(
    st.tuples(st.sampled_from(EVERYBODY), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12
)
"""Author, right and wrong answers of each group; the slot is the position in the list."""

restarts = st.sets(st.integers(0, 24))
"""Steps before which the auditor's process ends and another one begins."""


@given(sent, restarts, st.integers(0, 4))
async def test_a_restarted_auditor_has_the_same_count(
    groups: list[tuple[Identity, int, int]], ends: set[int], lag: int
) -> None:
    """Rollouts come and are audited later; what waits when the process ends is not lost."""
    with TemporaryDirectory() as folder:
        steady = await _auditor(Path(folder) / "steady.sqlite", groups, set(), lag)
        restarted = await _auditor(Path(folder) / "restarted.sqlite", groups, ends, lag)
        assert steady.points(EPOCH, LIVE, 16) == restarted.points(EPOCH, LIVE, 16)
        assert steady.evidence_root(EPOCH) == restarted.evidence_root(EPOCH)


async def _auditor(
    database: Path, groups: list[tuple[Identity, int, int]], ends: set[int], lag: int
) -> EpochCount:
    """Return the count of an auditor that receives the groups, audits ``lag`` behind, and may restart."""
    harness = VerificationHarness(EVERYBODY, database=database)
    for step in range(2 * len(groups)):
        if step in ends:
            harness = VerificationHarness(EVERYBODY, database=database)
            harness.engine.restore(moment(harness.manifest))
        author, right, wrong = groups[step // 2]
        if step % 2 == 0 and right + wrong:
            harness.receive(author, step // 2, right=right, wrong=wrong)
        elif len(harness.engine.audits) > lag:
            await _audit_one(harness)
    while len(harness.engine.audits):
        await _audit_one(harness)
    return harness.engine.count


async def _audit_one(harness: VerificationHarness) -> None:
    turn = harness.engine.audits.take()
    with suppress(RemoteProtocolError):  # counted by the engine
        await harness.engine.verify(turn.admitted)
    harness.engine.audits.charge(turn, 0.0)
