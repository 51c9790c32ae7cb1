"""The pool: bounded, fair, and admitted again after a restart."""

from functools import partial
from pathlib import Path

import pytest
from support.swarm import EPOCH, Identity, moment
from support.verdicts import reason_of
from support.verification_harness import VerificationHarness

from sapo_protocol.errors import Reason
from sapo_verification.sampling.newcomers import ENOUGH
from sapo_verification.sampling.pool import PoolLimits
from sapo_verification.types import AdmittedRollout

ALICE, BOB, CAROL, NEWCOMER = (Identity(number) for number in range(1, 5))
EVERYBODY = (ALICE, BOB, CAROL, NEWCOMER)


def plain(harness: VerificationHarness, author: Identity, slot: int, epoch: int = EPOCH) -> AdmittedRollout:
    """Return an admitted rollout with any answers."""
    message = author.message(harness.manifest, slot=slot, epoch=epoch)
    return harness.engine.admit_own(message, moment(harness.manifest, EPOCH))


def test_an_offered_rollout_waits_until_it_is_taken() -> None:
    harness = VerificationHarness(EVERYBODY)
    first, second, third = (plain(harness, author, 0) for author in (ALICE, BOB, CAROL))
    for admitted in (first, second, third):
        harness.pool.offer(admitted)
    assert (len(harness.pool), list(harness.pool.waiting())) == (3, [first, second, third])
    assert harness.pool.accounts() == {ALICE.account, BOB.account, CAROL.account}
    assert [harness.pool.take(second.content_id), harness.pool.take(second.content_id)] == [True, False]
    assert list(harness.pool.waiting()) == [first, third]
    assert list(harness.pool.waiting(CAROL.account)) == [third]
    assert list(harness.pool.waiting(BOB.account)) == []


def test_a_rollout_of_a_banned_account_is_refused() -> None:
    harness = VerificationHarness(EVERYBODY)
    harness.reputation.record_fault(ALICE.account, 0, EPOCH, Reason.EQUIVOCATION)
    assert reason_of(harness.pool.offer, plain(harness, ALICE, 0)) is Reason.BANNED
    assert reason_of(harness.pool.offer, plain(harness, BOB, 0)) is None


def test_a_ban_is_reported_before_a_full_quota() -> None:
    harness = VerificationHarness(EVERYBODY, limits=PoolLimits(per_account=1))
    harness.pool.offer(plain(harness, ALICE, 0))
    harness.reputation.record_fault(ALICE.account, 0, EPOCH, Reason.EQUIVOCATION)
    assert reason_of(harness.pool.offer, plain(harness, ALICE, 1)) is Reason.BANNED


def test_taking_rollouts_does_not_free_the_quota_of_an_epoch() -> None:
    harness = VerificationHarness(EVERYBODY, limits=PoolLimits(per_account=2))
    first, second, third = (plain(harness, ALICE, slot) for slot in range(3))
    harness.pool.offer(first)
    harness.pool.offer(second)
    harness.pool.take(first.content_id)
    assert reason_of(harness.pool.offer, third) is Reason.ACCOUNT_QUOTA
    assert reason_of(harness.pool.offer, plain(harness, BOB, 0)) is None
    assert reason_of(harness.pool.offer, plain(harness, ALICE, 0, EPOCH - 1)) is None


def test_newcomers_fill_their_share_and_the_better_lot_keeps_its_place() -> None:
    harness = VerificationHarness(EVERYBODY, limits=PoolLimits(rollouts=8, newcomer_share=0.5))
    harness.trust(ALICE, BOB)
    lots = {author: harness.engine.newcomers.lot(author.account, EPOCH) for author in (NEWCOMER, CAROL)}
    first, last = sorted(lots, key=lots.__getitem__)
    for author, slot in ((last, 0), (last, 1), (first, 0), (ALICE, 0), (first, 1)):
        harness.pool.offer(plain(harness, author, slot))
    assert reason_of(harness.pool.offer, plain(harness, last, 2)) is Reason.NEWCOMER_CAP
    assert reason_of(harness.pool.offer, plain(harness, BOB, 0)) is None
    assert reason_of(harness.pool.offer, plain(harness, first, 2)) is None
    assert [each.rollout.slot for each in harness.pool.waiting(last.account)] == [1], "its oldest one yields"
    harness.pool.take(next(harness.pool.waiting(first.account)).content_id)
    assert reason_of(harness.pool.offer, plain(harness, last, 3)) is None, "a place came free"
    assert len(list(harness.pool.waiting())) == 6


def test_a_newcomer_with_enough_places_is_evicted_first() -> None:
    harness = VerificationHarness(EVERYBODY, limits=PoolLimits(rollouts=2 * ENOUGH, newcomer_share=1.0))
    by_lot = sorted((NEWCOMER, CAROL, BOB), key=lambda one: harness.engine.newcomers.lot(one.account, EPOCH))
    flooding, usual, last = by_lot
    flood = [plain(harness, flooding, slot) for slot in range(3 * ENOUGH)]
    for admitted in flood:
        harness.pool.offer(admitted)
    assert list(harness.pool.waiting()) == flood[-2 * ENOUGH :]
    for slot in range(ENOUGH):
        assert reason_of(harness.pool.offer, plain(harness, last, slot)) is None, "whatever its lot"
    assert len(list(harness.pool.waiting(flooding.account))) == ENOUGH
    assert reason_of(harness.pool.offer, plain(harness, last, ENOUGH)) is None, "in place of its own oldest"
    assert [each.rollout.slot for each in harness.pool.waiting(last.account)] == list(range(1, ENOUGH + 1))
    assert reason_of(harness.pool.offer, plain(harness, usual, 0)) is None, "its lot is before that one"
    assert len(list(harness.pool.waiting(last.account))) == ENOUGH - 1


def test_a_full_pool_evicts_the_oldest(tmp_path: Path) -> None:
    harness = VerificationHarness(EVERYBODY, limits=PoolLimits(rollouts=3), database=tmp_path / "pool.sqlite")
    harness.trust(ALICE)
    offered = [plain(harness, ALICE, slot) for slot in range(5)]
    for admitted in offered:
        harness.pool.offer(admitted)
    assert list(harness.pool.waiting()) == offered[2:]
    again = VerificationHarness(EVERYBODY, limits=harness.limits, database=harness.database)
    assert (
        again.pool.restore(
            harness.engine.envelopes.envelope,
            partial(again.engine.admit_own, now_seconds=moment(again.manifest)),
        )
        == 3
    )


def test_old_epochs_expire_with_their_quotas() -> None:
    harness = VerificationHarness(EVERYBODY, limits=PoolLimits(per_account=1))
    old, new = plain(harness, ALICE, 0, EPOCH - 1), plain(harness, ALICE, 0)
    harness.pool.offer(old)
    harness.pool.offer(new)
    assert (harness.pool.expire(before_epoch=EPOCH), list(harness.pool.waiting())) == (1, [new])
    assert harness.pool.expire(before_epoch=EPOCH) == 0


def test_a_restart_admits_stored_rollouts_again_and_drops_refused_ones(tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    before = VerificationHarness(EVERYBODY, database=path)
    kept = {plain(before, ALICE, slot) for slot in range(3)}
    expired = plain(before, ALICE, 0, EPOCH - 1)
    unknown = plain(before, BOB, 0)
    banned = plain(before, CAROL, 0)
    for admitted in (*kept, expired, unknown, banned):
        before.pool.offer(admitted)
    messages = before.engine.envelopes.envelope
    after = VerificationHarness((ALICE, CAROL), database=path)
    after.reputation.record_fault(CAROL.account, 0, EPOCH, Reason.EQUIVOCATION)
    later = moment(after.manifest, EPOCH + 1)
    assert after.pool.restore(messages, partial(after.engine.admit_own, now_seconds=later)) == 3
    assert set(after.pool.waiting()) == kept
    third = VerificationHarness(EVERYBODY, database=path)
    now = moment(third.manifest)
    assert third.pool.restore(messages, partial(third.engine.admit_own, now_seconds=now)) == 3, (
        "what was refused once was deleted"
    )


@pytest.mark.parametrize("message", [b"forged", None])
def test_a_tampered_database_admits_nothing(tmp_path: Path, message: bytes | None) -> None:
    path = tmp_path / "pool.sqlite"
    VerificationHarness(EVERYBODY, database=path).pool.offer(plain(VerificationHarness(EVERYBODY), ALICE, 0))
    again = VerificationHarness(EVERYBODY, database=path)
    admit = partial(again.engine.admit_own, now_seconds=moment(again.manifest))
    assert again.pool.restore(lambda _content_id: message, admit) == 0


def test_a_replaced_message_is_restored_under_its_own_account(tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    harness = VerificationHarness(EVERYBODY, database=path)
    one, other = plain(harness, ALICE, 0), plain(harness, BOB, 0)
    harness.pool.offer(one)
    again = VerificationHarness(EVERYBODY, database=path)
    admit = partial(again.engine.admit_own, now_seconds=moment(again.manifest))
    message = harness.engine.envelopes.envelope(other.content_id)
    assert again.pool.restore(lambda _content_id: message, admit) == 1
    rows = again.pool._connection.execute("SELECT content_id FROM waiting").fetchall()
    assert (rows, list(again.pool.waiting())) == ([(other.content_id,)], [other])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_newcomer_share_may_be_zero_or_one(share: float) -> None:
    harness = VerificationHarness(EVERYBODY, limits=PoolLimits(rollouts=2, newcomer_share=share))
    reasons = [reason_of(harness.pool.offer, plain(harness, NEWCOMER, slot)) for slot in range(2)]
    assert reasons == ([None, None] if share else [Reason.NEWCOMER_CAP] * 2)
