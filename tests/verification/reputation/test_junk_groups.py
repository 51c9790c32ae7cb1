"""Groups that fail give an account no trust, however many are audited."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from support.swarm import EPOCH, Identity, make_manifest
from support.verdicts import reason_of
from support.verification_harness import VerificationHarness

from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, AccountStanding, Evidence, Reputation
from sapo_verification.reputation.penalties import SOFT
from sapo_verification.reputation.suspension import MIN_VOTERS
from sapo_verification.sampling.pool import PoolLimits

JUNK = [Identity(number) for number in range(1, 8)]
HONEST = [Identity(number) for number in range(10, 10 + MIN_VOTERS)]
MANY = 2 * AUDITS_BEFORE_WEIGHT
MANIFEST = make_manifest(limits=Limits(slots_per_epoch=256, max_completions=8, points_per_epoch=16))


async def timed_out(task: Task, completions: object) -> None:
    raise CheckFailed(Failure.TIMEOUT)


async def audited(harness: VerificationHarness, author: Identity, groups: int, *, right: int = 0) -> None:
    """Let the node audit so many groups of an author, with two answers or none that is right."""
    for slot in range(groups):
        with suppress(RemoteProtocolError):  # a time-out is told so
            await harness.engine.verify(harness.admit(author, slot, right=right, wrong=2 - right))


@pytest.mark.parametrize("right", [0, 2])
async def test_groups_without_signal_leave_a_newcomer_a_newcomer(right: int) -> None:
    harness = VerificationHarness((JUNK[0],), MANIFEST)
    await audited(harness, JUNK[0], MANY, right=right)
    account = JUNK[0].account
    assert harness.reputation.evidence(account, EPOCH) == Evidence(0.0, 0.0, MANY, EPOCH)
    assert harness.reputation.weigh([account], EPOCH) == AccountStanding({}, (account,))
    harness.receive(JUNK[0], MANY)
    assert not harness.engine.audits.take().known, "it has the time of strangers"


async def test_an_account_without_passed_groups_has_the_places_of_newcomers_in_the_pool() -> None:
    harness = VerificationHarness((JUNK[0],), MANIFEST, limits=PoolLimits(rollouts=4, newcomer_share=0.0))
    await audited(harness, JUNK[0], MANY)
    assert reason_of(harness.pool.offer, harness.admit(JUNK[0], MANY)) is Reason.NEWCOMER_CAP


@pytest.mark.parametrize("check", [None, timed_out])
async def test_accounts_that_passed_nothing_do_not_vote(check: Callable[..., Awaitable[None]] | None) -> None:
    """Neither groups without signal nor faults make a voter: else seven accounts would excuse each other."""
    harness = VerificationHarness((*JUNK, *HONEST), MANIFEST, check=check)  # type: ignore[arg-type]
    harness.trust(*HONEST, epoch=EPOCH - 1)
    for author in JUNK:
        await audited(harness, author, MANY)
    for identity in HONEST:
        harness.reputation.record_good(identity.account, 0, EPOCH)
    for author in JUNK:
        for _ in range(3 * MANY):
            harness.reputation.record_fault(author.account, 0, EPOCH, Reason.NEAR_DUPLICATE)
    assert harness.reputation.suspended(EPOCH) == ()


def test_enough_faults_end_the_share_of_a_newcomer() -> None:
    """As much bad evidence as of a proven lie: the node draws nothing of it and its bounds stay."""
    reputation, account = Reputation(), JUNK[0].account
    for _ in range(AUDITS_BEFORE_WEIGHT - 1):
        reputation.record_fault(account, 0, EPOCH, Reason.CHECKER_TIMEOUT)
    assert reputation.weigh([account], EPOCH) == AccountStanding({}, (account,))
    reputation.record_fault(account, 0, EPOCH, Reason.CHECKER_TIMEOUT)
    assert reputation.evidence(account, EPOCH) == Evidence(0.0, 20 * SOFT, 20, EPOCH)
    assert reputation.weigh([account], EPOCH) == AccountStanding({account: 0.0}, ())
    assert reputation.is_newcomer(account)


async def test_an_account_that_finally_passes_becomes_known() -> None:
    """An honest account whose policy was weak for long is not held back by it."""
    harness = VerificationHarness((HONEST[0],), MANIFEST)
    await audited(harness, HONEST[0], MANY)
    for slot in range(MANY, MANY + AUDITS_BEFORE_WEIGHT):
        assert harness.reputation.is_newcomer(HONEST[0].account)
        await harness.engine.verify(harness.admit(HONEST[0], slot))
    assert not harness.reputation.is_newcomer(HONEST[0].account)
    weight = Evidence(20.0, 0.0, 60, EPOCH, passed=20).weight
    assert harness.reputation.weigh([HONEST[0].account], EPOCH) == AccountStanding(
        {HONEST[0].account: weight}, ()
    )
