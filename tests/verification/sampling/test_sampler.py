"""The sampler: influence is bounded by account, whatever is sent and with how many keys."""

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from support.verdicts import reason_of
from support.verification_harness import VerificationHarness
from trio.testing import MockClock

from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.jail.messages import Checked
from sapo_verification.reputation.evidence import AccountStanding, Reputation
from sapo_verification.reputation.origins import network_of_host
from sapo_verification.sampling.sampler import (
    FULL_TRUST,
    MAX_TIMEOUTS,
    PLACE_SECONDS,
    SamplingPolicy,
    cap_networks,
    capped_shares,
)
from sapo_verification.sampling.step_values import MIN_TEXTS, StepValue
from sapo_verification.sampling.text_use import TextUse
from sapo_verification.screens.recurring_runs import MIN_GROUPS
from sapo_verification.types import AdmittedRollout, SampledBatch, SampledGroup, VerifiedRollout

shares_of = st.floats(0.0, 1.0)
standings = st.builds(
    lambda weights, newcomers: AccountStanding(weights, tuple(sorted(newcomers - set(weights)))),
    st.dictionaries(fixed(Account), st.floats(0.0, 0.999), max_size=20),
    st.sets(fixed(Account), max_size=40),
)
policies = st.builds(SamplingPolicy, account_cap=shares_of, newcomer_cap=shares_of)


@given(standings, policies)
def test_no_share_is_above_its_cap_and_all_fit_into_one(
    standing: AccountStanding, policy: SamplingPolicy
) -> None:
    shares = capped_shares(standing, policy)
    newcomers = sum(shares.get(account, 0.0) for account in standing.newcomers)
    assert all(0.0 <= share <= policy.account_cap for share in shares.values())
    assert newcomers <= policy.newcomer_cap + 1e-9
    assert sum(shares.values()) <= 1.0 + 1e-9
    assert set(shares) == {a for a, w in standing.weights.items() if w > 0} | set(standing.newcomers)


@given(standings, st.integers(1, 30))
def test_shares_above_a_cap_are_not_redistributed(standing: AccountStanding, newcomers: int) -> None:
    """More accounts never raise another's share: what one loses goes to no other."""
    policy = SamplingPolicy()
    crowd = tuple(Account(b"\xee" * 18 + bytes((1, n))) for n in range(newcomers))
    crowded = AccountStanding(standing.weights, (*standing.newcomers, *crowd))
    before, after = capped_shares(standing, policy), capped_shares(crowded, policy)
    assert all(after[account] <= before[account] + 1e-12 for account in before)


def test_shares_of_a_worked_example() -> None:
    a, b, c, d = (Account(bytes((n,)) * 20) for n in range(4))
    standing = AccountStanding({a: 0.9, b: 0.1, c: 0.0}, (d,))
    assert capped_shares(standing, SamplingPolicy(account_cap=0.5)) == {
        a: 0.5,
        b: pytest.approx(0.9 * 0.1 / (FULL_TRUST + 0.1)),  # of what newcomers leave
        d: pytest.approx(0.1),
    }
    assert capped_shares(AccountStanding({}, (d,)), SamplingPolicy()) == {d: pytest.approx(0.1)}
    assert capped_shares(AccountStanding({}, ()), SamplingPolicy()) == {}


def test_newcomers_keep_a_part_among_many_trusted_accounts_and_none_is_above_their_average() -> None:
    trusted = {Account(bytes((n,)) * 20): 0.9 for n in range(40)}
    crowd = tuple(Account(b"\xff" * 19 + bytes((n,))) for n in range(20))
    one = capped_shares(AccountStanding(trusted, crowd[:1]), SamplingPolicy())
    many = capped_shares(AccountStanding(trusted, crowd), SamplingPolicy())
    assert one[crowd[0]] == pytest.approx(0.9 / 40), "what a trusted account has: a new name wins nothing"
    assert sum(many[account] for account in crowd) == pytest.approx(0.1)
    assert sum(many.values()) == pytest.approx(1.0)


def test_weight_beyond_full_trust_gains_no_share() -> None:
    a, b = (Account(bytes((n,)) * 20) for n in range(2))
    shares = capped_shares(AccountStanding({a: 0.99, b: FULL_TRUST}, ()), SamplingPolicy(account_cap=1.0))
    assert shares == {a: 0.5, b: 0.5}


NETWORK = network_of_host("9.9.9.1")


@given(standings, st.sets(st.integers(0, 19)), st.floats(0.01, 1.0))
def test_accounts_behind_one_network_share_its_cap(
    standing: AccountStanding, inside: set[int], network_cap: float
) -> None:
    policy = SamplingPolicy(network_cap=network_cap)
    before = capped_shares(standing, policy)
    neighbours = {account for index, account in enumerate(before) if index in inside}
    after = cap_networks(before, policy, lambda account: NETWORK if account in neighbours else None)
    assert sum(after[account] for account in neighbours) <= network_cap + 1e-9
    assert {a: s for a, s in after.items() if a not in neighbours} == {
        a: s for a, s in before.items() if a not in neighbours
    }, "what the cap cuts goes to nobody"
    assert all(after[account] <= before[account] + 1e-12 for account in neighbours)


async def _draw_many(harness: VerificationHarness, draws: int) -> Counter[Account | None]:
    """Return the authors of single draws; what was drawn is offered again, so that all keep rollouts."""
    rng = random.Random(20_240_921)
    drawn: Counter[Account | None] = Counter()
    for _ in range(draws):
        rollouts = await harness.sampler.draw_external(EPOCH, rng)
        drawn[rollouts[0].account if rollouts else None] += 1
        for rollout in rollouts:
            harness.pool.offer(rollout.admitted)
            harness.pool._per_account.clear()  # quotas are tested elsewhere
    return drawn


ONE = SamplingPolicy(external_groups=1)
DRAWS = 1500


def _deviations(observed: int, share: float) -> float:
    return abs(observed - share * DRAWS) / math.sqrt(share * (1 - share) * DRAWS)


async def test_a_flood_gains_no_share() -> None:
    flooder, *others = people = [Identity(number) for number in range(10)]
    harness = VerificationHarness(tuple(people), policy=ONE)
    harness.trust(*people)
    for slot in range(30):
        harness.pool.offer(harness.admit(flooder, slot))
    for identity in others:
        harness.pool.offer(harness.admit(identity, 0))
    drawn = await _draw_many(harness, DRAWS)
    assert _deviations(drawn[flooder.account], 0.1) < 4
    assert all(_deviations(drawn[identity.account], 0.1) < 4 for identity in others)
    assert drawn[None] == 0


async def test_few_accounts_leave_places_to_local_groups() -> None:
    people = [Identity(number) for number in range(3)]
    harness = VerificationHarness(tuple(people), policy=ONE)
    harness.trust(*people)
    for identity in people:
        harness.pool.offer(harness.admit(identity, 0))
    drawn = await _draw_many(harness, DRAWS)
    assert all(_deviations(drawn[identity.account], 0.125) < 4 for identity in people)
    assert _deviations(drawn[None], 1 - 3 * 0.125) < 4


async def test_newcomers_share_one_cap() -> None:
    known, *crowd = people = [Identity(number) for number in range(41)]
    harness = VerificationHarness(tuple(people), policy=ONE)
    harness.trust(known)
    for identity in people:
        harness.pool.offer(harness.admit(identity, 0))
    drawn = await _draw_many(harness, 300)
    newcomers = sum(drawn[identity.account] for identity in crowd)
    assert newcomers <= 300 * 0.1 + 4 * (300 * 0.09) ** 0.5
    assert drawn[known.account] <= 300 * 0.125 + 4 * (300 * 0.11) ** 0.5


def test_a_thousand_keys_of_one_account_are_one_account() -> None:
    """The certificates of four keys are valid, and they share the account's slots."""
    keys = [Identity(1, key) for key in range(1000)]
    honest = Identity(2)
    harness = VerificationHarness((honest, *keys))
    reasons: Counter[Reason | None] = Counter()
    for number, key in enumerate(keys):
        message = key.message(harness.manifest, slot=number % 32)
        reasons[reason_of(harness.engine.admit_own, message, moment(harness.manifest))] += 1
    assert reasons == {Reason.CERTIFICATE_UNKNOWN: 996, None: 4}
    harness.trust(honest, keys[0])
    shares = capped_shares(
        harness.reputation.weigh([key.account for key in (honest, *keys)], EPOCH), SamplingPolicy()
    )
    assert shares == {honest.account: 0.125, keys[0].account: 0.125}


async def test_only_informative_verified_groups_of_accounts_in_good_standing_are_drawn() -> None:
    good, wrong, right, banned, newcomer = people = [Identity(number) for number in range(5)]
    policy = SamplingPolicy(external_groups=60, account_cap=0.3, newcomer_cap=0.2)
    harness = VerificationHarness(tuple(people), policy=policy)
    harness.trust(good, wrong, right, banned)
    expected = [harness.admit(author, slot) for author in (good, newcomer) for slot in range(4)]
    silent = [harness.admit(wrong, slot, right=0) for slot in range(4)]
    silent += [harness.admit(right, slot, wrong=0) for slot in range(4)]
    barred = [harness.admit(banned, slot) for slot in range(4)]
    for admitted in (*expected, *silent, *barred):
        harness.pool.offer(admitted)
    harness.reputation.record_fault(banned.account, 0, EPOCH, Reason.EQUIVOCATION)
    drawn = await harness.sampler.draw_external(EPOCH, random.Random(5))
    assert {rollout.admitted for rollout in drawn} == set(expected)
    assert all(isinstance(rollout, VerifiedRollout) and rollout.is_informative for rollout in drawn)
    assert len(drawn) == len(expected), "no group is drawn twice"
    assert {reason for reason, _, _ in harness.record.refusals} == {Reason.NO_SIGNAL}
    assert list(harness.pool.waiting()) == barred


async def test_a_batch_names_the_origin_of_its_groups() -> None:
    me, other = Identity(1), Identity(2)
    harness = VerificationHarness((me, other))
    mine, theirs = [await harness.engine.verify(harness.admit(who, 0)) for who in (me, other)]
    batch = harness.sampler.assemble([mine], [theirs])
    assert batch == SampledBatch((SampledGroup(mine, external=False), SampledGroup(theirs, external=True)))
    assert (batch.local, batch.external) == ((mine,), (theirs,))


async def test_a_group_found_by_two_concurrent_draws_is_used_once() -> None:
    author, policy = Identity(1), SamplingPolicy(local_groups=1, external_groups=1, account_cap=1.0)
    harness, drawn = VerificationHarness((author,), policy=policy), list[tuple[VerifiedRollout, ...]]()
    harness.trust(author)
    harness.receive(author, 0)
    (waiting,) = harness.pool.waiting()
    harness.hold_checks_until(2)

    async def draw() -> None:
        drawn.append(await harness.engine.draw(EPOCH, random.Random(1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(draw)
        nursery.start_soon(draw)
    assert sorted(drawn, key=len) == [(), (await harness.engine.verify(waiting),)]
    assert list(harness.pool.waiting()) == []


async def test_an_empty_pool_gives_no_groups() -> None:
    assert await VerificationHarness(()).sampler.draw_external(EPOCH, random.Random(1)) == ()
    assert Reputation().weigh([], EPOCH) == AccountStanding({}, ())


@pytest.mark.parametrize(("use", "is_drawn"), [(TextUse.REINFORCE, False), (TextUse.PRACTISE, True)])
async def test_an_account_that_repeats_a_phrase_is_not_trained_without_a_penalty(
    use: TextUse, is_drawn: bool
) -> None:
    harness, authors = tagged_harness(use)
    for slot in range(MIN_GROUPS + 4):
        for author in authors:
            phrase = "All hail to the thief." if author == authors[0] else f"So it is {author.number * slot}."
            await harness.engine.verify(reasoned(harness, author, slot, phrase))
    repeated = reasoned(harness, authors[0], 40, "All hail to the thief.")
    honest = reasoned(harness, authors[1], 40, "So it is 7.")
    before = harness.reputation.evidence(authors[0].account, EPOCH)
    refusals = len(planted_by(harness))
    for admitted in (repeated, honest):
        harness.pool.offer(admitted)
    drawn = {
        rollout.content_id
        for seed in range(20)
        for rollout in await harness.sampler.draw_external(EPOCH, random.Random(seed))
    }
    assert drawn == ({honest.content_id, repeated.content_id} if is_drawn else {honest.content_id})
    assert planted_by(harness)[refusals:] == [(repeated.content_id, authors[0].account)], "once"
    assert {account for _, account in planted_by(harness)} == {authors[0].account}
    assert harness.reputation.evidence(authors[0].account, EPOCH).bad == before.bad == 0.0
    assert harness.engine.count.is_payable(repeated.content_id)


async def test_newcomers_do_not_define_usual_phrases_in_a_draw() -> None:
    """Five newcomers repeat one phrase, which none of four known accounts has."""
    harness, authors = tagged_harness(TextUse.REINFORCE, newcomer_cap=0.1, accounts=9)
    known, newcomers = authors[:4], authors[4:]
    for slot in range(40):
        for author in known:
            await harness.engine.verify(reasoned(harness, author, slot, f"So it is {author.number * slot}."))
    for slot in range(2 * MIN_GROUPS):
        for author in newcomers:
            await harness.engine.verify(reasoned(harness, author, slot, "All hail to the thief."))
        assert await harness.sampler.draw_external(EPOCH, random.Random(0)) == ()
    assert {account for _, account in planted_by(harness)} == {author.account for author in newcomers}


def test_the_vote_of_a_detected_account_goes_to_the_others_of_its_cap() -> None:
    """Three newcomers share a cap; the steps of the last one depend on nothing in a family of this node."""
    harness, authors = tagged_harness(TextUse.HYBRID, newcomer_cap=0.3, accounts=3)
    accounts = [author.account for author in authors]
    sampler = harness.sampler
    assert sampler.votes(accounts, EPOCH) == dict.fromkeys(accounts, pytest.approx(0.1))
    text, foreign = (StepValue(0.01, (nats, None)) for nats in (4.0, 0.0))
    for _ in range(2 * MIN_TEXTS):
        sampler.step_values.learn_known([(0, text)], [(accounts[2], 0, foreign)])
    assert sampler.votes(accounts, EPOCH) == dict.fromkeys(accounts[:2], pytest.approx(0.15))


def planted_by(harness: VerificationHarness) -> list[tuple[ContentId, Account]]:
    """Return the rollouts that were refused for a phrase, with their accounts."""
    refused = [refusal for refusal in harness.record.refusals if refusal[0] is Reason.PLANTED_PHRASE]
    return [(content_id, account) for _, content_id, account in refused]


def tagged_harness(
    use: TextUse, newcomer_cap: float = 1.0, accounts: int = 5
) -> tuple[VerificationHarness, list[Identity]]:
    """Return a harness with authors whose suite asks for reasoning."""
    authors = [Identity(number) for number in range(1, accounts + 1)]
    limits = Limits(slots_per_epoch=64, max_completions=8, points_per_epoch=16)
    manifest = make_manifest(suite=make_suite("full", ["basic_arithmetic"]), limits=limits)
    policy = SamplingPolicy(account_cap=1.0, newcomer_cap=newcomer_cap, text_use=use)
    return VerificationHarness(tuple(authors), manifest=manifest, policy=policy), authors


def reasoned(harness: VerificationHarness, author: Identity, slot: int, text: str) -> AdmittedRollout:
    """Return a group of a right and a wrong answer after a text."""
    right = harness.solution(author.account, slot).decode()
    answers = tuple(f"{text} <answer>{answer}</answer>".encode() for answer in (right, "none"))
    message = author.message(harness.manifest, slot=slot, completions=answers)
    return harness.engine.admit_own(message, moment(harness.manifest))


@pytest.mark.parametrize("failure", [Failure.TIMEOUT, Failure.NODE_BUSY])
async def test_an_account_whose_answers_never_end_costs_a_place_few_deadlines(failure: Failure) -> None:
    harness = VerificationHarness((Identity(1),), policy=SamplingPolicy(local_groups=1, external_groups=1))
    asked = []

    async def spin(task: Task, completions: Sequence[bytes]) -> Checked:
        asked.append(task)
        raise CheckFailed(failure)

    harness.check = spin
    for slot in range(8):
        harness.pool.offer(harness.admit(Identity(1), slot))
    shares = {Identity(1).account: 1.0}
    assert await harness.sampler._draw_one(shares, EPOCH, random.Random(0)) is None
    assert (len(asked), len(harness.pool)) == (MAX_TIMEOUTS, 8 - MAX_TIMEOUTS)


@pytest.mark.parametrize(("right", "checks"), [(0, 3), (1, 1)], ids=["no advantage", "an advantage"])
async def test_an_account_whose_answers_end_just_before_the_deadline_costs_a_place_few_deadlines(
    right: int, checks: int, autojump_clock: MockClock
) -> None:
    """No check times out, so nothing is held against the account; thirty-two of them took a minute."""
    mallory = Identity(1)
    harness = VerificationHarness((mallory,), policy=SamplingPolicy(local_groups=1, external_groups=1))
    check_seconds = 0.475 * PLACE_SECONDS

    async def slowly(task: Task, completions: Sequence[bytes]) -> Checked:
        await trio.sleep(check_seconds)
        return await harness.score(task, completions)

    harness.check = slowly
    for slot in range(8):
        harness.pool.offer(harness.admit(mallory, slot, right=right, wrong=2))
    began = trio.current_time()
    drawn = await harness.sampler._draw_one({mallory.account: 1.0}, EPOCH, random.Random(0))
    took_seconds = trio.current_time() - began
    assert (drawn is not None, len(harness.pool)) == (bool(right), 8 - checks)
    assert took_seconds == pytest.approx(checks * check_seconds)
    assert harness.reputation.evidence(mallory.account, EPOCH).bad == 0.0
