"""The verifier: all results are derived locally, evidence is recorded once, own failures cause no penalty."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from support.verification_harness import WRONG, RecordingObserver, VerificationHarness

from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.manifest import Limits
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.jail.messages import Checked
from sapo_verification.reputation.evidence import Evidence
from sapo_verification.reputation.penalties import CONSEQUENCES, HARD, SOFT
from sapo_verification.types import AdmittedRollout, VerifiedRollout
from sapo_verification.verifier import MAX_REMEMBERED, CheckResult

ALICE, BOB = Identity(1), Identity(2)


async def test_task_prompt_and_rewards_are_derived_by_the_verifier() -> None:
    harness = VerificationHarness((ALICE,))
    admitted = harness.admit(ALICE, 4, right=2, wrong=1)
    verified = await harness.engine.verify(admitted)
    task = assigned_task(
        harness.manifest.swarm_id, harness.beacon_of(EPOCH), account=ALICE.account, family=0, slot=4
    )
    prompt = (await harness.score(task, ())).prompt
    assert verified == VerifiedRollout(admitted, task, prompt, (1.0, 1.0, 0.0))
    assert (verified.content_id, verified.account) == (admitted.content_id, ALICE.account)
    assert verified.completions == admitted.rollout.completions
    assert verified.mean_reward == pytest.approx(2 / 3)
    assert verified.is_informative
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, 0.0, 1, EPOCH, 1)
    assert harness.record == RecordingObserver([], [verified])


async def test_an_answer_fits_its_own_slot_and_account_alone() -> None:
    harness = VerificationHarness((ALICE, BOB))
    answers = [harness.solution(ALICE.account, slot) for slot in range(8)]
    earned = []
    for author, slot, answer in [(BOB, slot, answer) for slot, answer in enumerate(answers)]:
        message = author.message(harness.manifest, slot=slot, completions=(answer, WRONG))
        verified = await harness.engine.verify(harness.engine.admit_own(message, moment(harness.manifest)))
        earned.append(verified.rewards[0])
    assert sum(earned) <= 2, "one-digit sums coincide now and then"
    tasks = {harness.engine.task_of(EPOCH, who.account, 0, slot) for who in (ALICE, BOB) for slot in range(8)}
    assert len(tasks) == 16


async def test_verifying_a_rollout_twice_counts_once_as_evidence() -> None:
    harness = VerificationHarness((ALICE,))
    admitted = harness.admit(ALICE, 0)
    assert await harness.engine.verify(admitted) is await harness.engine.verify(admitted)
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, 0.0, 1, EPOCH, 1)
    assert len(harness.record.rollouts) == 1


@pytest.mark.parametrize(("right", "wrong"), [(3, 0), (0, 3)])
async def test_a_group_without_spread_is_verified_without_good_evidence(right: int, wrong: int) -> None:
    harness = VerificationHarness((ALICE,))
    admitted = harness.admit(ALICE, 0, right=right, wrong=wrong)
    verified = await harness.engine.verify(admitted)
    assert not verified.is_informative
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(0.0, 0.0, 1, EPOCH)
    assert harness.record == RecordingObserver(
        [(Reason.NO_SIGNAL, admitted.content_id, ALICE.account)], [verified]
    )


async def test_code_in_a_group_without_reward_has_a_small_penalty() -> None:
    harness = VerificationHarness((ALICE,))
    code = (b"__import__('os').system('id')", WRONG)
    message = ALICE.message(harness.manifest, completions=code)
    admitted = harness.engine.admit_own(message, moment(harness.manifest))
    assert (await harness.engine.verify(admitted)).rewards == (0.0, 0.0)
    assert [reason for reason, _, _ in harness.record.refusals] == [Reason.CODE_IN_ANSWER]
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(0.0, SOFT, 1, EPOCH)
    assert not harness.reputation.is_banned(ALICE.account, EPOCH), "an honest model may write code too"


async def test_code_in_a_group_that_solves_its_task_has_no_penalty() -> None:
    harness = VerificationHarness((ALICE,))
    answers = (harness.solution(ALICE.account, 0), b"import os")
    admitted = harness.engine.admit_own(
        ALICE.message(harness.manifest, completions=answers), moment(harness.manifest)
    )
    assert (await harness.engine.verify(admitted)).rewards == (1.0, 0.0)
    assert harness.record.refusals == []
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, 0.0, 1, EPOCH, 1)


@pytest.mark.parametrize(
    ("failure", "reason", "is_fault"),
    [
        (Failure.TIMEOUT, Reason.CHECKER_TIMEOUT, True),
        (Failure.CRASH, Reason.CHECKER_CRASH, True),
        (Failure.MALFORMED, Reason.CHECKER_CRASH, True),
        (Failure.UNDERIVABLE, Reason.CHECKER_CRASH, False),
        (Failure.NODE_BUSY, Reason.NODE_BUSY, False),
        (Failure.CLOSED, Reason.NODE_BUSY, False),
    ],
)
async def test_a_failed_check_penalises_the_author_only_if_its_answers_may_have_caused_it(
    failure: Failure, reason: Reason, is_fault: bool
) -> None:
    async def check(task: Task, completions: Sequence[bytes]) -> Checked:
        raise CheckFailed(failure)

    harness = VerificationHarness((ALICE,), check=check)
    admitted = harness.admit(ALICE, 0)
    with pytest.raises(RemoteProtocolError) as raised:
        await harness.engine.verify(admitted)
    assert raised.value.reason is reason
    evidence = Evidence(0.0, CONSEQUENCES[reason].evidence, 1, EPOCH) if is_fault else Evidence(epoch=EPOCH)
    assert harness.reputation.evidence(ALICE.account, EPOCH) == evidence
    assert CONSEQUENCES[reason].evidence < HARD, "a hang can happen to an honest node"
    assert harness.record == RecordingObserver([(reason, admitted.content_id, ALICE.account)], [])


async def test_an_undecided_rollout_is_neither_paid_nor_refused_and_can_be_verified_later() -> None:
    async def check(task: Task, completions: Sequence[bytes]) -> Checked:
        raise CheckFailed(Failure.NODE_BUSY)

    harness = VerificationHarness((ALICE,), check=check)
    admitted = harness.admit(ALICE, 0)
    count = harness.engine.count
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            await harness.engine.verify(admitted)
        assert (count.is_decided(admitted.content_id), count.points(EPOCH, (ALICE.account,), 16)) == (
            False,
            (),
        )
    harness.check = None
    assert (await harness.engine.verify(admitted)).is_informative
    assert count.points(EPOCH, (ALICE.account,), 16) == ((ALICE.account, 1),)
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, 0.0, 1, EPOCH, 1)


async def test_an_unknown_beacon_causes_no_penalty() -> None:
    harness = VerificationHarness((ALICE,), knows_beacons=False)
    admitted = harness.admit(ALICE, 0)
    with pytest.raises(RemoteProtocolError) as raised:
        await harness.engine.verify(admitted)
    assert raised.value.reason is Reason.BEACON_UNKNOWN
    harness.knows_beacons = True
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(epoch=EPOCH)
    assert (await harness.engine.verify(admitted)).is_informative, (
        "and it is verified once the beacon is known"
    )


HIDDEN = "7\N{ZERO WIDTH SPACE}".encode()


async def test_a_group_of_hidden_text_is_refused_once_and_never_scored() -> None:
    async def check(task: Task, completions: Sequence[bytes]) -> Checked:
        raise AssertionError("the jail is not troubled with it")

    harness = VerificationHarness((ALICE,), check=check)
    message = ALICE.message(harness.manifest, completions=(HIDDEN, b"7"))
    admitted = harness.engine.admit_own(message, moment(harness.manifest))
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as raised:
            await harness.engine.verify(admitted)
        assert raised.value.reason is Reason.TEXT_POLICY
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(0.0, SOFT, 1, EPOCH)
    assert harness.record.refusals == [(Reason.TEXT_POLICY, admitted.content_id, ALICE.account)]


async def test_little_hidden_text_is_neither_rewarded_nor_penalised() -> None:
    harness = VerificationHarness((ALICE,))
    right = harness.solution(ALICE.account, 0)
    answers = (right, right, right, right + "\N{ZERO WIDTH SPACE}".encode())
    admitted = harness.engine.admit_own(
        ALICE.message(harness.manifest, completions=answers), moment(harness.manifest)
    )
    assert (await harness.engine.verify(admitted)).rewards == (1.0, 1.0, 1.0, 0.0)
    assert harness.record.refusals == []


def tagged_harness() -> VerificationHarness:
    """Return a harness whose suite asks for reasoning."""
    return VerificationHarness(
        (ALICE, BOB), manifest=make_manifest(suite=make_suite("full", ["basic_arithmetic"]))
    )


def reasoned(harness: VerificationHarness, author: Identity, slot: int, reasoning: str) -> AdmittedRollout:
    """Return a group of right and wrong answers after the same reasoning."""
    right = harness.solution(author.account, slot).decode()
    texts = [f"{reasoning} <answer>{answer}</answer>".encode() for answer in (right, "none", right, "none")]
    return harness.engine.admit_own(
        author.message(harness.manifest, slot=slot, completions=tuple(texts)), moment(harness.manifest)
    )


ESSAY = " ".join(f"word{n} and{n % 7}" for n in range(60))


async def test_pasted_text_is_refused_with_a_small_penalty() -> None:
    harness, scored = tagged_harness(), list[Task]()

    async def check(task: Task, completions: Sequence[bytes]) -> CheckResult:
        scored.append(task)
        return await harness.score(task, completions)

    harness.check = check
    first, second = (reasoned(harness, ALICE, slot, ESSAY) for slot in (0, 1))
    assert (await harness.engine.verify(first)).is_informative
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as raised:
            await harness.engine.verify(second)
        assert raised.value.reason is Reason.NEAR_DUPLICATE
    assert len(scored) == 2, "what was refused for good is not scored again"
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, SOFT, 2, EPOCH, 1)
    assert harness.record.refusals == [(Reason.NEAR_DUPLICATE, second.content_id, ALICE.account)]


async def test_three_concurrent_requests_count_once() -> None:
    harness, results = VerificationHarness((ALICE,)), list[VerifiedRollout]()
    admitted = harness.admit(ALICE, 0)
    harness.hold_checks_until(3)

    async def ask() -> None:
        results.append(await harness.engine.verify(admitted))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, 0.0, 1, EPOCH, 1)
    assert harness.record == RecordingObserver([], results[:1])
    assert results == results[:1] * 3


async def test_two_concurrent_requests_for_a_pasted_text_are_refused_and_count_once() -> None:
    harness, refusals = tagged_harness(), list[Rule]()
    first, second = (reasoned(harness, ALICE, slot, ESSAY) for slot in (0, 1))
    await harness.engine.verify(first)
    harness.hold_checks_until(2)

    async def ask() -> None:
        with pytest.raises(RemoteProtocolError) as raised:
            await harness.engine.verify(second)
        refusals.append(raised.value.rule)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    assert refusals == [Rule.OWN_WORK] * 2
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, SOFT, 2, EPOCH, 1)
    assert harness.record.refusals == [(Reason.NEAR_DUPLICATE, second.content_id, ALICE.account)]


async def test_a_refusal_before_a_restart_counts_once(tmp_path: Path) -> None:
    for _ in range(2):
        harness = VerificationHarness((ALICE,), database=tmp_path / "node.sqlite")
        admitted = harness.admit(ALICE, 0, right=0)
        assert not (await harness.engine.verify(admitted)).is_informative
        assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(0.0, 0.0, 1, EPOCH)
        assert harness.record.refusals == [(Reason.NO_SIGNAL, admitted.content_id, ALICE.account)]


async def test_memory_of_results_is_bounded_and_a_forgotten_one_is_derived_again() -> None:
    checked: list[int] = []

    async def check(task: Task, completions: Sequence[bytes]) -> Checked:
        checked.append(task.seed)
        return Checked("one and one", (1.0, 0.0))

    slots = MAX_REMEMBERED + 1
    limits = Limits(slots_per_epoch=slots, max_completions=8, points_per_epoch=slots)
    harness = VerificationHarness((ALICE,), manifest=make_manifest(limits=limits), check=check)
    admitted = [
        harness.engine.admit_own(ALICE.message(harness.manifest, slot=slot), moment(harness.manifest))
        for slot in range(slots)
    ]
    for each in (*admitted, admitted[-1], admitted[0]):
        await harness.engine.verify(each)
    assert checked == [*checked[:slots], checked[0]]
    assert harness.reputation.evidence(ALICE.account, EPOCH).audits == slots, "it is evidence once"
