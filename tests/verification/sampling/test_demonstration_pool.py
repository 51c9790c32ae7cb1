"""Right answers of others as demonstrations: selection, accounts, and distribution to the learner."""

import random
from collections import Counter
from collections.abc import Container
from dataclasses import replace

import pytest
from support.rollouts import rollout_of
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from support.verification_harness import VerificationHarness

from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.engine import Engine
from sapo_verification.sampling.demonstrations import (
    MAX_ACCOUNTS,
    MAX_OWN,
    PER_ACCOUNT,
    PER_GROUP,
    DemonstrationPool,
)
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.sampling.step_values import StepValue
from sapo_verification.sampling.text_use import TextUse
from sapo_verification.types import Demonstration, PractisedGroup, VerifiedRollout

ALICE, BOB, OWN = (Identity(number) for number in range(1, 4))
MANIFEST = make_manifest(limits=Limits(slots_per_epoch=4096, max_completions=8, points_per_epoch=16))
TAGGED = make_manifest(
    suite=make_suite("full", ["basic_arithmetic"]),
    limits=Limits(slots_per_epoch=64, max_completions=8, points_per_epoch=16),
)
POLICY = SamplingPolicy(account_cap=1.0, newcomer_cap=1.0, text_use=TextUse.HYBRID, demonstrations=8)


def harness_of(policy: SamplingPolicy = POLICY) -> VerificationHarness:
    return VerificationHarness((ALICE, BOB, OWN), MANIFEST, policy=policy, own=OWN.account)


async def show_groups(harness: VerificationHarness, slots: int, *, right: int, wrong: int) -> None:
    """Verify a group of Alice and one of Bob in each slot."""
    for slot in range(slots):
        for author in (ALICE, BOB):
            await harness.engine.verify(harness.admit(author, slot, right=right, wrong=wrong))


def pool_of(*rollouts: VerifiedRollout, unusual: Container[bytes] = ()) -> DemonstrationPool:
    pool = DemonstrationPool(
        OWN.account,
        imitable=lambda _family, completion: completion.strip(),
        is_usual=lambda _family, _prompt, completion: completion not in unusual,
    )
    for rollout in rollouts:
        pool.verified(rollout)
    return pool


def accounts_of(pool: DemonstrationPool) -> frozenset[Account]:
    return frozenset(account for account, _ in pool.pairs())


def _alike(_family: int) -> float:
    return 1.0


def _whole(_account: Account, _family: int) -> float:
    return 1.0


def take_all(pool: DemonstrationPool, **options: object) -> list[Demonstration]:
    accounts = sorted(accounts_of(pool))
    shares = {account: 1.0 / len(accounts) for account in accounts}
    settings = {"shares": shares, "need": _alike, "part": _whole, "rng": random.Random(0), **options}
    return sorted(pool.take(200, **settings), key=lambda each: (each.prompt, each.completion))  # type: ignore[arg-type]


def test_text_of_an_unusual_form_waits_until_it_is_usual() -> None:
    unusual = {b"strange"}
    pool = pool_of(rollout_of(ALICE.account, 1, {b"strange": 1.0, b"plain": 1.0}), unusual=unusual)
    assert [each.completion for each in take_all(pool)] == [b"plain"]
    assert (take_all(pool), len(pool)) == ([], 1)
    unusual.clear()
    assert [each.completion for each in take_all(pool)] == [b"strange"]


def test_different_right_answers_of_others_are_kept_and_nothing_else() -> None:
    pool = pool_of(
        rollout_of(
            ALICE.account,
            1,
            {b"right": 1.0, b"wrong": 0.0, b" right": 1.0, b"also right": 1.0, b"third": 1.0},
        ),
        rollout_of(ALICE.account, 2, {b"wrong": 0.0, b"worse": 0.0}),
        rollout_of(BOB.account, 3, {b"all right": 1.0}, family=2),
        rollout_of(OWN.account, 4, {b"own": 1.0}),
    )
    assert PER_GROUP == 2
    assert [(each.prompt, each.completion, each.family, each.account) for each in take_all(pool)] == [
        ("task 1", b"also right", 0, ALICE.account),
        ("task 1", b"right", 0, ALICE.account),
        ("task 3", b"all right", 2, BOB.account),
    ]
    assert (len(pool), accounts_of(pool)) == (0, frozenset()), "each is handed out once"


def test_texts_of_families_without_need_stay_in_the_pool() -> None:
    pool = pool_of(
        rollout_of(ALICE.account, 1, {b"one": 1.0}, family=0),
        rollout_of(ALICE.account, 2, {b"two": 1.0}, family=1),
    )
    assert [each.completion for each in take_all(pool, need=float)] == [b"two"]
    assert len(pool) == 1


def test_a_flood_of_one_account_displaces_only_its_own_texts() -> None:
    rollouts = [rollout_of(ALICE.account, n, {b"%d" % n: 1.0}) for n in range(2 * PER_ACCOUNT)]
    pool = pool_of(rollout_of(BOB.account, 9999, {b"quiet": 1.0}), *rollouts)
    assert len(pool) == PER_ACCOUNT + 1
    texts = {each.completion for each in take_all(pool)}
    assert texts >= {b"quiet", b"%d" % (2 * PER_ACCOUNT - 1)}
    assert b"0" not in texts


def test_accounts_are_bounded() -> None:
    accounts = [Account(number.to_bytes(20, "big")) for number in range(MAX_ACCOUNTS + 1)]
    pool = pool_of(*(rollout_of(account, 1, {b"answer": 1.0}) for account in accounts))
    assert accounts_of(pool) == frozenset(accounts[1:])
    pool.drop(accounts[1])
    pool.drop(accounts[0])
    assert accounts_of(pool) == frozenset(accounts[2:])


def test_places_follow_the_shares_and_stay_empty_below_one() -> None:
    counts: Counter[Account] = Counter()
    for seed in range(60):
        pool = pool_of(
            *(rollout_of(ALICE.account, n, {b"a%d" % n: 1.0}) for n in range(64)),
            *(rollout_of(BOB.account, n, {b"b%d" % n: 1.0}) for n in range(64)),
        )
        shares = {ALICE.account: 0.375, BOB.account: 0.125}
        taken = pool.take(64, shares=shares, need=_alike, part=_whole, rng=random.Random(seed))
        counts.update(each.account for each in taken)
    alice, bob = (counts[who.account] / (60 * 64) for who in (ALICE, BOB))
    assert abs(alice - 0.375) < 0.03
    assert abs(bob - 0.125) < 0.02


def test_unused_places_of_an_account_stay_empty() -> None:
    """Also if all of its texts are of that family: nobody else's share rises, and its own does not either."""
    counts: Counter[tuple[Account, int]] = Counter()
    for seed in range(60):
        pool = pool_of(
            *(rollout_of(ALICE.account, n, {b"a%d" % n: 1.0}, family=n % 2) for n in range(128)),
            *(rollout_of(BOB.account, n, {b"b%d" % n: 1.0}) for n in range(128)),
        )
        parts = {(ALICE.account, 0): 0.1, (BOB.account, 0): 0.5}
        taken = pool.take(
            64,
            shares={ALICE.account: 0.5, BOB.account: 0.5},
            need=_alike,
            part=lambda account, family, parts=parts: parts.get((account, family), 1.0),  # type: ignore[misc]
            rng=random.Random(seed),
        )
        counts.update((each.account, each.family) for each in taken)
        assert len(pool) == 256 - len(taken), "the others wait"
    shares = {pair: count / (60 * 64) for pair, count in counts.items()}
    assert shares[ALICE.account, 0] == pytest.approx(0.25 * 0.1, abs=0.015)
    assert shares[ALICE.account, 1] == pytest.approx(0.25, abs=0.04)
    assert shares[BOB.account, 0] == pytest.approx(0.25, abs=0.04)


async def test_texts_of_accounts_whose_steps_mislead_are_measured_only() -> None:
    """A tenth of their places is filled, and none of these texts is trained."""
    harness = harness_of()
    engine = harness.engine
    await show_groups(harness, 64, right=2, wrong=0)
    others = [Identity(number).account for number in range(10, 13)]
    for _ in range(40):
        worth = [(account, 0, StepValue(0.9)) for account in (*others, BOB.account)]
        engine.sampler.step_values.learn([*worth, (ALICE.account, 0, StepValue(0.1))])
    taken = [each for seed in range(30) for each in engine.demonstrate(EPOCH, random.Random(seed))]
    counts = Counter(each.account for each in taken)
    assert counts[ALICE.account] < 0.3 * counts[BOB.account]
    batch = engine.sampler.assemble((), (), demonstrations=tuple(taken))
    assert batch.forgotten == {(ALICE.account, 0)}


def test_texts_of_accounts_that_repeat_a_phrase_of_signs_are_not_trained() -> None:
    engine = harness_of().engine
    screen = engine.sampler.screens.recurring_runs
    for number in range(8):
        for author in range(10, 14):
            steps = f"{number * author}+{number}:{number * author + number},{7 * number}"
            phrase = "2+2=5 " if author == 13 else ""
            text = f"{phrase}{steps} <answer>1</answer>".encode()
            screen.learn(rollout_of(Identity(author).account, number, {text: 1.0}))
    pairs = {(Identity(13).account, 0)}
    assert engine.sampler.set_aside() == pairs
    hint = Demonstration(Task(0, 1), "task", b"1", source=None)
    assert engine.sampler.assemble((), (), demonstrations=(hint,)).forgotten == pairs


async def show(harness: VerificationHarness, author: Identity, slot: int, steps: str) -> None:
    """Verify a group of a right answer behind these steps and a wrong one."""
    text = f"{steps} <answer>{harness.solution(author.account, slot).decode()}</answer>".encode()
    message = author.message(TAGGED, slot=slot, completions=(text, b"1 <answer>none</answer>"))
    await harness.engine.verify(harness.engine.admit_own(message, moment(TAGGED)))


async def test_an_engine_demonstrates_only_usual_forms_and_weighs_all_accounts() -> None:
    authors = [Identity(number) for number in range(10, 18)]
    harness = VerificationHarness(tuple(authors), TAGGED, policy=POLICY, own=OWN.account)
    engine, liars = harness.engine, authors[5:]
    for slot in range(24):
        for author in authors:
            steps = f"{slot}+1={slot + 2} {slot}:{slot}" if author in liars else f"{slot}:{slot}"
            await show(harness, author, slot, steps)
    honest = {author.account for author in authors[:5]}
    rng = random.Random(1)
    for _ in range(2):
        taken = [each for _ in range(6) for each in engine.demonstrate(EPOCH, rng)]
        assert {each.account for each in taken} == honest
        engine.judge_steps(EPOCH, [(account, 0, StepValue(0.9)) for account in honest])
    weigh = engine.sampler.screens.usual_forms.counts.weight
    assert all(weigh(liar.account) > 0.0 for liar in liars)


async def test_texts_of_the_first_accounts_are_forgotten_when_most_others_write_other_forms() -> None:
    authors = [Identity(number) for number in range(10, 21)]
    harness = VerificationHarness(tuple(authors), TAGGED, policy=POLICY, own=OWN.account)
    engine, liars, rng = harness.engine, authors[:4], random.Random(1)

    for slot in range(10, 20):
        for author in liars:
            await show(harness, author, slot, f"{slot}+1={slot}")
    taken = [each for _ in range(6) for each in engine.demonstrate(EPOCH, rng)]
    pairs = {(author.account, 0) for author in liars}
    assert {(each.account, each.family) for each in taken} == pairs
    assert engine.sampler.assemble((), (), demonstrations=taken).forgotten == frozenset()
    for slot in range(10, 12):
        for author in authors[4:]:
            await show(harness, author, slot, f"{slot}:{slot}")
    honest = engine.demonstrate(EPOCH, rng)
    assert engine.sampler.assemble((), ()).forgotten == frozenset(), "a batch without texts is no imitation"
    assert engine.sampler.assemble((), (), demonstrations=honest).forgotten == pairs
    honest = engine.demonstrate(EPOCH, rng)
    assert honest
    assert engine.sampler.assemble((), (), demonstrations=honest).forgotten == frozenset(), "once"


async def test_steps_are_judged_by_accounts_as_much_as_they_weigh() -> None:
    """Sixty newcomers share what is reserved for newcomers, and so do not set the standard."""
    harness = harness_of(replace(POLICY, newcomer_cap=0.1))
    engine = harness.engine
    await show_groups(harness, 60, right=1, wrong=1)
    flood = [Identity(number).account for number in range(10, 70)]
    for _ in range(12):
        honest = [(author.account, 0, StepValue(0.9)) for author in (ALICE, BOB)]
        engine.judge_steps(EPOCH, [*honest, *((account, 0, StepValue(0.3)) for account in flood)])
    assert engine.sampler.step_values.standards(0)[0] == pytest.approx(0.9)
    assert engine.sampler.step_values.misleading() == {(account, 0) for account in flood}
    weights = [
        engine.sampler.screens.usual_forms.counts.weight(account) for account in (ALICE.account, *flood)
    ]
    assert weights[0] > 10 * max(weights[1:]) > 0.0, "the same weights say whose runs are usual"


async def test_an_engine_returns_verified_demonstrations_of_families_it_needs() -> None:
    harness = harness_of()
    engine = harness.engine
    for slot in range(6):
        await engine.verify(harness.admit(ALICE, slot, right=2, wrong=0))
    await engine.verify(harness.admit(BOB, 0, right=0, wrong=2))
    taken = engine.demonstrate(EPOCH, random.Random(1))
    assert {each.account for each in taken} == {ALICE.account}
    assert {each.completion for each in taken} <= {
        harness.solution(ALICE.account, slot) for slot in range(6)
    }, "groups in which all answers are right show most"
    assert 0 < len(taken) <= 6
    for slot in range(32):
        await engine.verify(harness.admit(OWN, slot, right=2, wrong=1))
    await engine.verify(harness.admit(ALICE, 7, right=2, wrong=0))
    assert engine.success.of(0) == pytest.approx(2 / 3)
    assert engine.demonstrate(EPOCH, random.Random(1)) == (), "the family is solved"


def test_need_is_zero_for_solved_families_and_else_the_missing_success() -> None:
    needs = [SamplingPolicy(need_below=0.5).need(success) for success in (0.0, 0.375, 0.5, 1.0)]
    assert needs == [1.0, 0.625, 0.0, 0.0]


async def test_an_engine_that_does_not_imitate_keeps_no_demonstrations() -> None:
    harness = harness_of(SamplingPolicy())
    await harness.engine.verify(harness.admit(ALICE, 0, right=2, wrong=0))
    assert len(harness.engine.demonstrations) == 0


async def test_practised_answers_are_scored_on_the_task_of_the_hint() -> None:
    harness = harness_of()
    hint = await harness.engine.verify(harness.admit(ALICE, 5))
    answers = (b"no answer", harness.solution(ALICE.account, 5))
    group = await harness.engine.practise(hint, answers)
    assert group == PractisedGroup(hint, answers, (0.0, 1.0))
    assert group.is_informative
    assert group.mean_reward == 0.5
    assert harness.engine.success.of(0) == 0.0, "the hint's author chose the task"


async def test_texts_of_accounts_that_write_a_step_too_many_are_not_trained() -> None:
    authors = [Identity(number) for number in range(10, 18)]
    harness = VerificationHarness(tuple(authors), TAGGED, policy=POLICY, own=OWN.account)
    engine, liars, rng = harness.engine, authors[5:], random.Random(1)
    for slot in range(10, 58):
        for author in authors:  # how many steps there are varies with the task
            count = rng.randint(2, 4) + (author in liars)
            await show(harness, author, slot, ",".join([f"{slot}:{slot}"] * count))
    await engine.draw(EPOCH, rng)
    pairs = {(author.account, 0) for author in liars}
    assert engine.sampler.set_aside() == pairs
    taken = [each for _ in range(20) for each in engine.demonstrate(EPOCH, rng)]
    counts = Counter(each.account in {author.account for author in liars} for each in taken)
    assert 0 < counts[True] < 0.15 * counts[False]
    assert engine.sampler.assemble((), (), demonstrations=taken).forgotten == pairs


async def test_a_text_with_a_step_too_many_waits_and_the_account_s_others_do_not() -> None:
    authors = [Identity(number) for number in range(10, 18)]
    harness = VerificationHarness(tuple(authors), TAGGED, policy=POLICY, own=OWN.account)
    engine, liar, rng = harness.engine, authors[-1], random.Random(1)
    for slot in range(10, 34):
        for author in authors:
            count = 2 + (author == liar and slot % 8 == 0)
            await show(harness, author, slot, ",".join([f"{slot}:{slot}"] * count))
    await engine.draw(EPOCH, rng)
    assert engine.sampler.set_aside() == frozenset()
    taken = [each for _ in range(40) for each in engine.demonstrate(EPOCH, rng)]
    assert Counter((each.account == liar.account, each.completion.count(b",")) for each in taken) == {
        (False, 1): 24 * 7,
        (True, 1): 21,
    }


async def shown_mostly_short_steps() -> tuple[Engine, list[Identity]]:
    """Return an engine and fifteen accounts, of which the last eight have shown it shorter steps."""
    authors = [Identity(number) for number in range(10, 25)]
    harness = VerificationHarness(tuple(authors), TAGGED, policy=POLICY, own=OWN.account)
    for slot in range(10, 20):
        for author in authors:
            await show(harness, author, slot, "1:2" if author in authors[7:] else "1:2,3:4")
    return harness.engine, authors


async def test_accounts_with_steps_unrelated_to_their_prompts_have_no_vote_on_lengths() -> None:
    """Eight of fifteen show short steps of other tasks; those of the others would be longer than usual."""
    engine, authors = await shown_mostly_short_steps()
    liars = authors[7:]
    engine.judge_steps(EPOCH, ())
    honest = {(author.account, 0) for author in authors[:7]}
    assert engine.sampler.set_aside() == honest

    def judge(shown: list[Identity]) -> None:
        values = [(each.account, 0, 0.0 if each in liars else 4.0) for each in shown]
        engine.judge_steps(EPOCH, [(who, of, StepValue(0.01, (nats, None))) for who, of, nats in values])

    for count in (8, 9, 10, 11, 12, 13, 14, 15):
        for _ in range(12):
            judge(authors[:count])
    assert engine.sampler.set_aside() == {(author.account, 0) for author in liars}
    await engine.sampler.draw_external(EPOCH, random.Random(1))
    weight = engine.sampler.screens.usual_forms.counts.weight
    assert [weight(author.account) > 0.0 for author in authors] == [author not in liars for author in authors]


async def test_a_majority_detected_in_known_families_has_no_vote_on_lengths_elsewhere() -> None:
    """Eight of fifteen show short steps of other tasks, also in family 1, in which the node has answers."""
    engine, authors = await shown_mostly_short_steps()
    liars = authors[7:]
    engine.judge_steps(EPOCH, ())
    assert engine.sampler.set_aside() == {(author.account, 0) for author in authors[:7]}
    nats = {author.account: 0.0 if author in liars else 4.0 for author in (*authors, OWN)}
    known = [(who, 1, StepValue(0.01, (dependence, None))) for who, dependence in nats.items()]
    for _ in range(12):
        engine.judge_steps(EPOCH, (), known)
    engine.judge_steps(EPOCH, ())
    assert engine.sampler.set_aside() == {(author.account, 1) for author in liars}
    assert OWN.account not in engine.sampler.step_values.accounts()


async def test_a_majority_with_low_value_in_known_families_has_no_vote_on_lengths() -> None:
    """Eight of fifteen; in family 1 each second of their texts is worth nothing, so that nobody misleads."""
    engine, authors = await shown_mostly_short_steps()
    liars = authors[7:]
    engine.judge_steps(EPOCH, ())
    assert engine.sampler.set_aside() == {(author.account, 0) for author in authors[:7]}
    for number in range(40):
        nats = {each.account: 8.0 * (number % 2) - 4.0 if each in liars else 4.0 for each in (*authors, OWN)}
        known = [(who, 1, StepValue(0.01, (dependence, None))) for who, dependence in nats.items()]
        engine.judge_steps(EPOCH, (), known)
    assert engine.sampler.step_values.misleading() == frozenset()
    assert engine.sampler.set_aside() == frozenset()


async def test_an_account_has_fewer_places_if_its_texts_have_less_value() -> None:
    """Every second text of Alice is worth nothing: half of the standard in the mean, and not surely less."""
    harness = harness_of(replace(POLICY, demonstrations=96))
    engine = harness.engine
    await show_groups(harness, 64, right=2, wrong=0)
    others = [Identity(number).account for number in range(10, 13)]
    for number in range(300):
        worth = [(account, 0, StepValue(0.9)) for account in (*others, BOB.account)]
        engine.sampler.step_values.learn([*worth, (ALICE.account, 0, StepValue(0.9 * (number % 2)))])
    assert engine.sampler.step_values.worth(ALICE.account, 0) == pytest.approx(0.6, abs=0.02)
    assert engine.sampler.set_aside() == frozenset()
    counts = Counter(each.account for each in engine.demonstrate(EPOCH, random.Random(1)))
    assert counts[ALICE.account] == pytest.approx(0.6 * counts[BOB.account], rel=0.3)


@pytest.mark.parametrize("draws", [False, True], ids=["after texts were judged", "before rollouts are drawn"])
async def test_a_majority_with_steps_of_other_tasks_does_not_set_the_others_aside(*, draws: bool) -> None:
    """Eight of fifteen from the first group on: the median account is theirs, so that nobody is found out."""
    engine, authors = await shown_mostly_short_steps()
    liars = authors[7:]
    values = [(each.account, 0, 0.0 if each in liars else 4.0) for each in authors]
    for _ in range(12):
        engine.judge_steps(EPOCH, [(who, of, StepValue(0.01, (nats, None))) for who, of, nats in values])
    if draws:
        await engine.sampler.draw_external(EPOCH, random.Random(1))
    assert engine.sampler.step_values.unrelated() == frozenset()
    assert engine.sampler.set_aside() == frozenset()


def shown_steps(author: Identity, number: int, family: int) -> VerifiedRollout:
    """Return a group of one right answer behind steps and one without."""
    with_steps, bare = f"{number}:{family} <answer>{number}</answer>", f"<answer>{number}</answer>"
    return rollout_of(author.account, number, {with_steps.encode(): 1.0, bare.encode(): 1.0}, family=family)


def test_texts_with_steps_of_known_families_are_judged_beside_own_ones_and_each_once() -> None:
    """Also in a form that few write: they are not trained."""
    known, unknown = 1, 0
    pool = pool_of(
        *(shown_steps(who, number, known) for number, who in enumerate((ALICE, BOB, OWN), 1)),
        *(shown_steps(who, number, unknown) for number, who in enumerate((ALICE, BOB, OWN), 4)),
        unusual={b"1:1 <answer>1</answer>"},
    )

    def judged() -> list[tuple[Account, bytes]]:
        shares = dict.fromkeys((ALICE.account, BOB.account), 0.5)
        found = pool.take_to_judge(200, shares=shares, is_known=known.__eq__, rng=random.Random(1))
        return sorted((each.account, each.completion) for each in found)

    expected = [
        (who.account, f"{n}:1 <answer>{n}</answer>".encode()) for n, who in ((1, ALICE), (2, BOB), (3, OWN))
    ]
    assert judged() == sorted(expected)
    assert judged() == []
    texts = take_all(pool, need=unknown.__eq__)
    assert {each.account for each in texts} == {ALICE.account, BOB.account}, "nothing of its own is imitated"
    assert pool.withdrawn() == frozenset()


def test_of_known_families_so_many_places_are_drawn_by_share() -> None:
    counts: Counter[Account] = Counter()
    for seed in range(40):
        pool = pool_of(*(shown_steps(who, n, 1) for n in range(32) for who in (ALICE, BOB)))
        shares = {ALICE.account: 0.6, BOB.account: 0.2}
        taken = pool.take_to_judge(16, shares=shares, is_known=bool, rng=random.Random(seed))
        counts.update(each.account for each in taken)
    assert counts[ALICE.account] == pytest.approx(0.6 * 16 * 40, rel=0.1)
    assert counts[BOB.account] == pytest.approx(0.2 * 16 * 40, rel=0.2)


def test_own_answers_that_wait_are_bounded_and_the_latest_ones() -> None:
    pool = pool_of(*(shown_steps(OWN, number, 1) for number in range(MAX_OWN)))
    found = pool.take_to_judge(0, shares={}, is_known=bool, rng=random.Random(1))
    assert {each.task.seed for each in found} == set(range(MAX_OWN // PER_GROUP, MAX_OWN))


async def test_an_engine_returns_texts_of_known_families_for_evaluation() -> None:
    """Half as many as it may imitate, beside these; before its first own answers it knows nothing."""
    authors = [Identity(number) for number in range(10, 14)]
    policy = replace(POLICY, demonstrations=40)
    harness = VerificationHarness((*authors, OWN), TAGGED, policy=policy, own=OWN.account)
    engine, rng = harness.engine, random.Random(1)
    for slot in range(12):
        for author in authors:
            await show(harness, author, slot, f"{slot}:{slot}")
    assert engine.take_to_judge(EPOCH, rng) == ()
    for slot in range(12):
        text = f"{slot}:{slot} <answer>{harness.solution(OWN.account, slot).decode()}</answer>".encode()
        message = OWN.message(TAGGED, slot=slot, completions=(text, b"1" + text))
        await engine.verify(engine.admit_own(message, moment(TAGGED)))
    assert engine.demonstrate(EPOCH, rng) == ()
    taken = engine.take_to_judge(EPOCH, rng)
    counts = Counter(each.account for each in taken)
    assert 10 < counts.total() - counts[OWN.account] <= 20
    assert counts[OWN.account] == 24
    batch = engine.sampler.assemble((), (), judged=taken)
    assert (batch.judged, batch.demonstrations, batch.forgotten) == (taken, (), frozenset())


def engine_of_three(*, last_shows: int = 2, cap: float = 1.0, places: int = 150) -> Engine:
    """Return an engine with 128 texts of each of authors 10 to 12; the last shows so many families."""
    authors = [Identity(number) for number in range(10, 13)]
    policy = replace(POLICY, demonstrations=places, account_cap=cap)
    engine = VerificationHarness((*authors, OWN), MANIFEST, policy=policy, own=OWN.account).engine
    for author, families in zip(authors, (2, 2, last_shows), strict=True):
        for number in range(128):
            engine.demonstrations.verified(
                rollout_of(author.account, number, {b"%d" % number: 1.0}, number % families)
            )
    return engine


async def taken_of_three(misleading: set[tuple[int, int]], *, solved: bool = False) -> list[int]:
    """Return how many texts are taken of authors 10 to 12, who show families 0 and 1; 0 may be solved."""
    authors = [Identity(number) for number in range(10, 13)]
    engine = engine_of_three()
    if solved:
        engine.success.verified(rollout_of(OWN.account, 1, {b"1": 1.0}, 0))
    values = engine.sampler.step_values
    for _ in range(40):
        for family in range(2):
            shown = [
                (author.account, 0.1 if (n, family) in misleading else 0.9)
                for n, author in enumerate(authors, 10)
            ]
            values.learn([(who, family, StepValue(worth)) for who, worth in shown])
    counts = Counter(each.account for each in engine.demonstrate(EPOCH, random.Random(1)))
    return [counts[author.account] for author in authors]


async def test_places_of_accounts_of_which_nothing_is_trained_go_to_the_others() -> None:
    """But for a tenth, by which it is noticed if they change."""
    assert await taken_of_three(set()) == pytest.approx([50] * 3, abs=15)
    assert await taken_of_three({(12, 0), (12, 1)}) == pytest.approx([72, 72, 5], abs=15)
    assert await taken_of_three({(12, 1)}, solved=True) == pytest.approx([72, 72, 5], abs=15)


async def test_an_account_of_which_some_family_is_trained_keeps_its_places() -> None:
    assert await taken_of_three({(12, 0)}) == pytest.approx([50, 50, 50 * 0.55], abs=15)
    assert await taken_of_three({(12, 0)}, solved=True) == pytest.approx([50] * 3, abs=15)


@pytest.mark.parametrize(("cap", "places"), [(1.0, 50), (0.25, 25)], ids=["no cap", "a quarter at most"])
def test_places_of_accounts_that_show_nothing_needed_go_to_the_others_below_their_caps(
    cap: float, places: int
) -> None:
    engine = engine_of_three(last_shows=1, cap=cap, places=100)
    engine.success.verified(rollout_of(OWN.account, 1, {b"1": 1.0}, 0))
    counts = Counter(each.account for each in engine.demonstrate(EPOCH, random.Random(1)))
    expected = {Identity(number).account: places for number in (10, 11)}
    assert counts == pytest.approx(expected, abs=15)
    if cap == 1.0:
        assert counts.total() == 100, "no place stays empty"


def test_places_to_judge_go_to_accounts_that_show_a_known_family() -> None:
    authors = [Identity(number).account for number in range(10, 13)]
    engine = engine_of_three()
    engine.success.verified(rollout_of(OWN.account, 1, {b"1": 1.0}, 1))
    pool = pool_of(
        *(shown_steps(Identity(n), number, number % 2) for n in (10, 11) for number in range(128)),
        *(shown_steps(Identity(12), number, 0) for number in range(64)),
    )
    taken = engine.sampler.take_to_judge(pool, engine.success, EPOCH, random.Random(1))
    counts = Counter(each.account for each in taken)
    assert counts == pytest.approx(dict.fromkeys(authors[:2], 37), abs=10)
