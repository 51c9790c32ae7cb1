"""Accounts whose steps mislead: far below the median account of a family, and never before there is one."""

import random
from collections.abc import Mapping, Sequence
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.swarm import EPOCH, Identity
from support.verification_harness import VerificationHarness

from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account
from sapo_verification.sampling import step_values
from sapo_verification.sampling.step_values import (
    BENEFIT,
    DEPENDENCE,
    FIGURES,
    LIKELIHOOD,
    MAX_EARLY,
    MIN_ACCOUNTS,
    MIN_OWN_TEXTS,
    MIN_TEXTS,
    OWN_PART,
    SPLITS,
    TEXTS_COMPARED,
    TEXTS_IN_MEAN,
    Mean,
    StepValue,
    StepValues,
)

HONEST, NONSENSE, FAMILY = 0.9, 0.1, 3


def account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


def values_of(means: Mapping[int, float], rounds: int = 2 * MIN_TEXTS, family: int = FAMILY) -> StepValues:
    """Return what is known after rounds in which each account shows a text of its likelihood."""
    values = StepValues()
    show(values, means, rounds, family)
    return values


def show(values: StepValues, means: Mapping[int, float], rounds: int, family: int = FAMILY) -> None:
    for _ in range(rounds):
        values.learn([(account(number), family, StepValue(value)) for number, value in means.items()])


def test_an_account_far_below_the_median_misleads_in_that_family() -> None:
    values = values_of({1: HONEST, 2: 0.8, 3: NONSENSE, 4: 0.6})
    assert values.misleading() == {(account(3), FAMILY)}


def test_an_account_that_misleads_in_some_families_is_not_trusted_in_others() -> None:
    """Family 4 is understood by nobody yet; in family 5 the account is as good as the others."""
    values = values_of({1: HONEST, 2: HONEST, 3: NONSENSE}, rounds=40)
    show(values, {1: 0.1, 2: 0.1, 3: 0.1}, 12, family=4)
    show(values, {1: HONEST, 2: HONEST, 3: HONEST}, 12, family=5)
    assert values.misleading() == {(account(3), FAMILY), (account(3), 4)}


def test_an_account_that_misleads_in_one_family_is_trusted_only_where_it_surely_does_not() -> None:
    """Its mean over all families is good; family 7 is understood by nobody yet, and later by this node."""
    values = values_of({1: HONEST, 2: HONEST, 3: NONSENSE})
    for family in (4, 5, 6):
        show(values, {1: HONEST, 2: HONEST, 3: HONEST}, 12, family)
    show(values, {1: 0.1, 2: 0.1, 3: 0.1}, 12, family=7)
    assert values.misleading() == {(account(3), FAMILY), (account(3), 7)}
    show(values, {1: HONEST, 2: HONEST, 3: HONEST}, 40, family=7)
    assert values.misleading() == {(account(3), FAMILY)}


@pytest.mark.parametrize(
    ("means", "rounds"),
    [
        ({1: HONEST, 2: HONEST, 3: NONSENSE}, 2 * MIN_TEXTS - 1),
        ({1: HONEST, 3: NONSENSE}, 40),
        (dict.fromkeys((1, 2), LIKELIHOOD.min_standard - 0.01) | {3: 0.0}, 40),
        ({1: HONEST, 2: HONEST, 3: LIKELIHOOD.misleading_below * HONEST + 1e-6}, 40),
    ],
    ids=["few texts", "two accounts", "the policy knows nothing yet", "just enough"],
)
def test_no_account_misleads_without_a_standard_or_by_little(means: Mapping[int, float], rounds: int) -> None:
    assert values_of(means, rounds).misleading() == frozenset()


def test_accounts_with_few_texts_are_no_part_of_a_standard() -> None:
    values = StepValues()
    show(values, {1: HONEST, 3: NONSENSE}, 40)
    show(values, {2: HONEST}, MIN_TEXTS - 1)
    assert values.standards(FAMILY) == (None,) * len(FIGURES)


def test_an_account_that_changes_is_judged_by_its_last_texts() -> None:
    values = values_of({1: HONEST, 2: HONEST, 3: NONSENSE}, rounds=100)
    assert values.misleading() == {(account(3), FAMILY)}
    show(values, {1: HONEST, 2: HONEST, 3: HONEST}, 2 * TEXTS_COMPARED)
    assert values.misleading() == frozenset()


def test_an_account_that_begins_to_mislead_is_set_aside_within_two_windows() -> None:
    values = values_of({1: HONEST, 2: HONEST, 3: HONEST}, rounds=100)
    show(values, {1: HONEST, 2: HONEST, 3: NONSENSE}, 2 * TEXTS_COMPARED)
    assert values.misleading() == {(account(3), FAMILY)}


@given(
    st.lists(st.floats(0.6, 1.0), min_size=MIN_ACCOUNTS, max_size=9),
    st.lists(st.floats(0.0, 1.0), max_size=8),
)
def test_fewer_than_half_of_the_accounts_cannot_make_an_honest_one_misleading(
    honest: list[float], hostile: list[float]
) -> None:
    """The median of a minority and of values from 0.6 to 1 is at most 1."""
    hostile = hostile[: len(honest) - 1]
    accused = {who for who, _ in values_of(dict(enumerate((*honest, *hostile)))).misleading()}
    assert accused.isdisjoint(map(account, range(len(honest))))


def test_a_flood_of_newcomers_does_not_set_the_standard() -> None:
    """Each shows few texts, and all together weigh a tenth, as they do when texts are drawn."""
    values = StepValues()
    honest, flood = range(6), range(100, 140)
    weights = {account(number): 0.15 for number in honest} | {account(number): 0.1 / 40 for number in flood}
    for _ in range(2 * MIN_TEXTS):
        shown = dict.fromkeys(honest, HONEST) | dict.fromkeys(flood, NONSENSE)
        values.learn([(account(n), FAMILY, StepValue(value)) for n, value in shown.items()], weights)
    assert values.standards(FAMILY)[0] == pytest.approx(HONEST)
    assert values.misleading() == {(account(number), FAMILY) for number in flood}


def test_accounts_without_a_weight_are_not_counted_for_a_standard() -> None:
    """Two accounts that weigh are no standard, however many that do not weigh are beside them."""
    values, flood = StepValues(), range(100, 140)
    shown = dict.fromkeys((1, 2), HONEST) | dict.fromkeys(flood, NONSENSE)
    weights = {account(1): 0.5, account(2): 0.5} | {account(number): 0.0 for number in flood}
    for _ in range(2 * MIN_TEXTS):
        values.learn([(account(n), FAMILY, StepValue(value)) for n, value in shown.items()], weights)
    assert values.standards(FAMILY) == (None,) * len(FIGURES)
    values.learn([], weights | {account(100): 0.01})
    assert values.standards(FAMILY)[0] == pytest.approx(HONEST)


def test_newcomers_one_after_the_other_do_not_set_the_standard() -> None:
    """Each is alone in its round, where it weighs most; all that came before it weigh a tenth together."""
    honest, generations = [Identity(number) for number in range(1, 9)], [Identity(n) for n in range(100, 140)]
    harness = VerificationHarness(tuple(honest))
    harness.trust(*honest)

    def judge(who: Identity, value: float) -> None:
        for _ in range(2 * MIN_TEXTS):
            harness.engine.judge_steps(EPOCH, [(who.account, FAMILY, StepValue(value))])

    for who in honest:
        judge(who, HONEST)
    for who in generations:
        judge(who, NONSENSE)
    assert harness.sampler.step_values.standards(FAMILY)[0] == pytest.approx(HONEST)
    assert harness.sampler.step_values.misleading() == {(who.account, FAMILY) for who in generations}


def test_banned_accounts_have_no_weight_in_a_standard() -> None:
    honest, banned = [Identity(number) for number in range(1, 4)], [Identity(n) for n in range(100, 108)]
    harness = VerificationHarness((*honest, *banned))
    harness.trust(*honest, *banned)
    shown = [(who.account, HONEST) for who in honest] + [(who.account, NONSENSE) for who in banned]
    values = [(account, FAMILY, StepValue(value)) for account, value in shown]
    for _ in range(2 * MIN_TEXTS):
        harness.engine.judge_steps(EPOCH, values)
    for who in banned:
        harness.reputation.record_fault(who.account, 0, EPOCH, Reason.EQUIVOCATION)
    harness.engine.judge_steps(EPOCH, [])
    assert harness.sampler.step_values.standards(FAMILY)[0] == pytest.approx(HONEST)


@given(st.lists(st.floats(0.3, 1.0), min_size=MIN_ACCOUNTS, max_size=9))
def test_with_equal_weights_the_standard_is_the_median(found: list[float]) -> None:
    means = dict(enumerate(found))
    assert values_of(means).standards(FAMILY)[0] == pytest.approx(median(found), abs=1e-9)


def test_the_account_updated_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_values, "MAX_PAIRS", 3)
    values = values_of({1: HONEST, 2: HONEST, 3: NONSENSE})
    show(values, {1: HONEST}, 1)
    assert values.standards(FAMILY)[0] == pytest.approx(HONEST)
    show(values, {4: HONEST}, 1)
    assert values.standards(FAMILY)[0] is None, "account 2 is gone, account 4 has one text"


DEPENDENT, SPREAD = 4.0, 3.0
"""Nats by which honest steps depend on their prompt early in training, and how much texts differ."""


class Teachers:
    """Accounts whose texts have random nats at one split around a mean of each; nothing is likely yet."""

    def __init__(self, split: int = 0) -> None:
        self.values = StepValues()
        self._split = split
        self._draw = random.Random("teachers")

    def teach(self, means: Mapping[tuple[int, int], float], *, rounds: int, texts: int = 2) -> None:
        """Show texts of each account and family in every round."""
        for _ in range(rounds):
            self.values.learn(
                (account(number), family, self._value(mean))
                for (number, family), mean in means.items()
                for _ in range(texts)
            )

    def _value(self, mean: float) -> StepValue:
        return dependent(self._draw.gauss(mean, SPREAD), self._split)


def dependent(nats: float, split: int = 0) -> StepValue:
    """Return the value of an unlikely text with these nats at one split, and none known at the others."""
    return StepValue(0.01, tuple(nats if each == split else None for each in range(len(SPLITS))))


def means(honest: int, independent: int, families: Sequence[int] = (FAMILY,)) -> dict[tuple[int, int], float]:
    """Return mean nats of honest accounts, then of accounts whose steps do not depend on the prompt."""
    found = {(number, family): DEPENDENT for number in range(honest) for family in families}
    others = range(honest, honest + independent)
    return found | {(number, family): 0.0 for number in others for family in families}


@pytest.mark.parametrize("split", range(len(SPLITS)), ids=map(str, SPLITS))
def test_steps_that_do_not_depend_on_what_is_before_them_mislead(split: int) -> None:
    """Early, when no text is likely; the honest majority is never set aside on the way."""
    teachers = Teachers(split)
    for _ in range(40):
        teachers.teach(means(6, 5), rounds=1)
        assert teachers.values.misleading() <= {(account(number), FAMILY) for number in range(6, 11)}
    assert teachers.values.misleading() == {(account(number), FAMILY) for number in range(6, 11)}


def test_an_account_below_over_all_families_is_below_in_one_with_few_texts() -> None:
    teachers = Teachers()
    teachers.teach(means(6, 1, families=(1, 2, 3)), rounds=12)
    teachers.teach(means(6, 0, families=(4,)), rounds=12)
    teachers.teach({(6, 4): 0.0}, rounds=1, texts=MIN_TEXTS - 1)
    assert teachers.values.misleading() == {(account(6), family) for family in (1, 2, 3, 4)}


def test_an_account_that_misleads_in_some_families_is_trained_in_the_one_where_it_surely_does_not() -> None:
    teachers = Teachers()
    shown = means(6, 1, families=(1, 2, 3)) | means(7, 0, families=(4,))
    teachers.teach(shown, rounds=40)
    assert teachers.values.misleading() == {(account(6), family) for family in (1, 2, 3)}


def test_earlier_texts_are_compared_with_the_standard_of_their_time() -> None:
    """Information grows while the policy learns; accounts whose last texts are early have no disadvantage."""
    teachers = Teachers()
    early = means(7, 0)
    teachers.teach(early, rounds=16)
    late = {pair: 20.0 for pair in early if pair[0] != 6}
    teachers.teach(late, rounds=30)
    _, standard, *_ = teachers.values.standards(FAMILY)
    assert standard is not None
    assert standard > 3 * DEPENDENT
    assert teachers.values.misleading() == frozenset()


def test_honest_accounts_that_differ_are_set_aside_in_less_than_one_of_a_hundred_pairs() -> None:
    """Their steps depend on the prompt by a quarter more or less; what is learned makes all of them grow."""
    teachers, draw = Teachers(), random.Random("styles")
    shown = {pair: draw.uniform(0.75, 1.25) for pair in means(12, 0, families=range(4))}
    attackers = {(number, family): 0.0 for number in range(12, 17) for family in range(4)}
    honest, caught, rounds = 0, 0, 50
    for number in range(rounds):
        grown = DEPENDENT * (1 + number / 10)
        teachers.teach({pair: grown * share for pair, share in shown.items()} | attackers, rounds=1)
        for who, _ in teachers.values.misleading():
            caught += who >= account(12)
            honest += who < account(12)
    assert honest < 0.01 * rounds * len(shown)
    assert caught > 0.7 * rounds * len(attackers)


@pytest.mark.parametrize("mean", [DEPENDENCE.min_standard - 0.5, -DEPENDENT])
def test_no_account_is_compared_where_the_median_account_depends_little(mean: float) -> None:
    teachers = Teachers()
    teachers.teach({(number, FAMILY): mean if number < 6 else -10.0 for number in range(7)}, rounds=40)
    assert teachers.values.standards(FAMILY) == (None,) * len(FIGURES)
    assert teachers.values.misleading() == frozenset()


def test_texts_without_a_comparison_count_only_for_likelihood() -> None:
    values = values_of({1: HONEST, 2: HONEST, 3: HONEST})
    assert values.standards(FAMILY)[1:] == (None,) * len(SPLITS)
    assert values.misleading() == frozenset()


def test_one_extreme_text_does_not_hide_an_account() -> None:
    """A large variance would make its mean uncertain, so each text's part of the standard is bounded."""
    teachers = Teachers()
    teachers.teach(means(6, 1), rounds=30)
    for nats in (1e6, -1e6):
        teachers.values.learn([(account(6), FAMILY, dependent(nats))])
    assert teachers.values.misleading() == {(account(6), FAMILY)}


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_a_mean_within_its_window_is_the_arithmetic_one(found: list[float]) -> None:
    mean = Mean()
    for value in found:
        mean = mean.with_value(value, 40)
    exact = sum(found) / len(found)
    assert mean.value == pytest.approx(exact, abs=1e-9)
    assert mean.variance == pytest.approx(sum((value - exact) ** 2 for value in found) / len(found), abs=1e-9)
    assert mean.count == len(found)


@pytest.mark.parametrize("count", [MIN_TEXTS, 8, 12, TEXTS_COMPARED])
def test_a_mean_is_surely_below_its_true_value_as_seldom_for_few_texts_as_for_many(count: int) -> None:
    """The spread of few values is small now and then by chance; three errors of six are 2 % then."""
    draw, samples = random.Random(f"errors of {count}"), 20_000
    below = 0
    for _ in range(samples):
        mean = Mean()
        for _ in range(count):
            mean = mean.with_value(draw.gauss(), count)
        below += mean.is_below(0.0)
    assert 0.0008 < below / samples < 0.0027


def test_an_account_without_evaluated_texts_keeps_all_of_its_places() -> None:
    assert StepValues().worth(account(1), FAMILY) == 1.0


def test_the_value_of_texts_is_their_smallest_ratio_to_the_standard() -> None:
    """Of 28 compared texts, all of half the standard in one figure, and 16 that are credited."""
    values = StepValues()
    for _ in range(MIN_TEXTS + 28):
        shown = [(account(n), FAMILY, StepValue(0.8, (4.0, 8.0))) for n in range(3)]
        values.learn([*shown, (account(3), FAMILY, StepValue(0.8, (2.0, 8.0)))])
    expected = (BENEFIT + 28 * 0.5) / (BENEFIT + 28)
    assert values.worth(account(3), FAMILY) == pytest.approx(expected)
    assert [values.worth(account(n), FAMILY) for n in range(3)] == pytest.approx([1.0] * 3)
    assert values.worth(account(3), FAMILY + 1) == 1.0
    values.learn([(account(1), FAMILY, StepValue(1.0, (9.0, 9.0)))])
    assert values.worth(account(1), FAMILY) == 1.0, "never more than all"


def test_foreign_steps_lose_places_before_it_is_sure_that_they_mislead() -> None:
    teachers = Teachers()
    teachers.teach(means(6, 5), rounds=6)
    assert teachers.values.misleading() == frozenset()
    assert _mean_worth(teachers, range(6)) > 0.9
    assert _mean_worth(teachers, range(6, 11)) < 0.8
    teachers.teach(means(6, 5), rounds=40)
    assert _mean_worth(teachers, range(6)) > 0.9
    assert _mean_worth(teachers, range(6, 11)) < 0.3


def _mean_worth(teachers: Teachers, accounts: Sequence[int]) -> float:
    return fmean(teachers.values.worth(account(number), FAMILY) for number in accounts)


def vote(values: StepValues, nats: Mapping[int, float], rounds: int) -> None:
    """Let accounts show texts of so many nats; whose steps are unrelated to their prompts has no vote."""
    for _ in range(rounds):
        unrelated = values.unrelated()
        votes = {account(number): 1.0 for number in nats if account(number) not in unrelated}
        values.learn([(account(n), FAMILY, dependent(value)) for n, value in nats.items()], votes)


def test_steps_that_are_merely_unlikely_are_not_unrelated_to_their_prompts() -> None:
    """A notation of few is unlikely to a policy that does not write it."""
    values = values_of({1: HONEST, 2: HONEST, 3: NONSENSE})
    assert values.misleading() == {(account(3), FAMILY)}
    assert values.unrelated() == frozenset()


def test_a_growing_majority_has_no_vote_if_most_of_it_was_detected_before() -> None:
    """Four of eleven are found out; then come four more, and eight of fifteen would be the median."""
    values = StepValues()
    first = dict.fromkeys(range(7), DEPENDENT) | dict.fromkeys(range(7, 11), 0.0)
    vote(values, first, 2 * MIN_TEXTS)
    assert values.unrelated() == {account(number) for number in range(7, 11)}
    vote(values, first | dict.fromkeys(range(11, 15), 0.0), 4 * TEXTS_COMPARED)
    assert values.unrelated() == {account(number) for number in range(7, 15)}
    assert values.standards(FAMILY)[1] == pytest.approx(DEPENDENT)


def test_an_account_whose_steps_depend_on_their_prompts_again_has_a_vote_again() -> None:
    values = StepValues()
    vote(values, dict.fromkeys(range(3), DEPENDENT) | {3: 0.0}, 2 * MIN_TEXTS)
    assert values.unrelated() == {account(3)}
    vote(values, dict.fromkeys(range(4), DEPENDENT), 2 * TEXTS_COMPARED)
    assert values.unrelated() == frozenset()


@given(
    st.lists(st.floats(0.5, 1.0), min_size=MIN_ACCOUNTS, max_size=9),
    st.lists(st.floats(-1.0, 9.0), max_size=8),
)
def test_fewer_than_half_of_the_accounts_cannot_take_an_honest_ones_vote(
    honest: list[float], hostile: list[float]
) -> None:
    """Who chooses tasks of long steps, or shows others', moves the median only among honest accounts."""
    nats = [DEPENDENT * each for each in (*honest, *hostile[: len(honest) - 1])]
    values = StepValues()
    vote(values, dict(enumerate(nats)), 4 * MIN_TEXTS)
    assert values.unrelated().isdisjoint(map(account, range(len(honest))))


def test_steps_that_depend_less_than_half_as_much_do_not_set_standards() -> None:
    """Also where most are of that kind, so that nobody is below the standard."""
    teachers = Teachers()
    teachers.teach(means(7, 8), rounds=16)
    assert teachers.values.standards(FAMILY) == (None,) * len(FIGURES)
    less = teachers.values.depends_less
    honest, others = map(account, range(7)), [account(number) for number in range(7, 15)]
    for own in honest:
        assert sum(less(FAMILY, other, own) for other in others) >= 5
        assert not any(less(FAMILY, own, other) for other in others)


@pytest.mark.parametrize(
    ("nats", "texts", "is_less"),
    [(1.9, 16, True), (2.0, 16, False), (1.9, MIN_TEXTS, True), (1.9, MIN_TEXTS - 1, False)],
)
def test_dependence_counts_as_less_at_half_or_below_with_enough_texts(
    nats: float, texts: int, *, is_less: bool
) -> None:
    values = StepValues()
    for _ in range(texts):
        values.learn([(account(1), FAMILY, dependent(4.0)), (account(2), FAMILY, dependent(nats))])
    assert values.depends_less(FAMILY, account(2), account(1)) is is_less
    assert not values.depends_less(FAMILY, account(1), account(2))
    assert not values.depends_less(FAMILY + 1, account(2), account(1))
    assert not values.depends_less(FAMILY, account(3), account(1))


def test_a_difference_within_chance_does_not_count_as_less() -> None:
    """In the mean 1 and 4 nats; texts differ by 6 and more."""
    values = StepValues()
    for number in range(TEXTS_IN_MEAN):
        off = 6.0 if number % 2 else -6.0
        values.learn([(account(1), FAMILY, dependent(4.0 + off)), (account(2), FAMILY, dependent(1.0 + off))])
    assert not values.depends_less(FAMILY, account(2), account(1))


def known_family(
    nats: Mapping[int, float], texts: int = 4 * MIN_TEXTS, *, own: float = DEPENDENT, own_texts: int = 1
) -> StepValues:
    """Return what is told after rounds in which own texts and accounts' texts have so many nats."""
    values = StepValues()
    for _ in range(texts):
        values.learn_known(
            [(FAMILY, dependent(own))] * own_texts,
            [(account(number), FAMILY, dependent(value)) for number, value in nats.items()],
        )
    return values


MOSTLY_FOREIGN = {1: DEPENDENT, 2: 0.7 * DEPENDENT} | dict.fromkeys(range(3, 12), 0.0)


def test_in_a_known_family_accounts_are_compared_with_own_steps_and_not_with_the_majority() -> None:
    values = known_family(MOSTLY_FOREIGN)
    assert values.unrelated() == {account(number) for number in range(3, 12)}
    assert values.misleading() == {(account(number), FAMILY) for number in range(3, 12)}
    assert known_family(MOSTLY_FOREIGN, own_texts=0).misleading() == frozenset(), (
        "without own texts nobody is"
    )


def test_votes_follow_the_value_of_steps_in_known_families_before_certainty() -> None:
    """Texts of account 2 are worth nothing or twice the standard, half of it in the mean."""
    values = StepValues()
    for number in range(TEXTS_COMPARED):
        off = OWN_PART * DEPENDENT * (2.0 if number % 2 else -1.0)
        values.learn_known([(FAMILY, dependent(DEPENDENT))], [(account(2), FAMILY, dependent(off))])
        values.learn([(account(number), FAMILY + 1, dependent(DEPENDENT)) for number in (1, 2)])
        values.learn_known([], [(account(3), FAMILY, dependent(2.0 * DEPENDENT))])
    assert values.unrelated() == frozenset()
    credited = (step_values.BENEFIT + TEXTS_COMPARED / 2) / (step_values.BENEFIT + TEXTS_COMPARED)
    assert values.votes() == pytest.approx({account(2): credited, account(3): 1.0}, rel=0.05)


def test_detected_accounts_have_no_vote_and_without_own_texts_all_vote() -> None:
    found_out = dict.fromkeys(map(account, range(3, 12)), 0.0)
    assert known_family(MOSTLY_FOREIGN).votes() == {account(1): 1.0, account(2): 1.0} | found_out
    assert known_family(MOSTLY_FOREIGN, own_texts=0).votes() == {}


@pytest.mark.parametrize("own_texts", range(MIN_OWN_TEXTS + 2))
def test_texts_evaluated_before_own_texts_exist_are_compared_with_them_later(own_texts: int) -> None:
    early = known_family({1: DEPENDENT, 2: 0.0}, own_texts=0)
    early.learn_known([(FAMILY, dependent(DEPENDENT))] * own_texts, ())
    enough = own_texts >= MIN_OWN_TEXTS
    assert early.misleading() == ({(account(2), FAMILY)} if enough else frozenset())
    early.learn_known((), ())
    assert early.votes() == ({account(1): 1.0, account(2): 0.0} if enough else {}), "each is compared once"


def test_texts_that_wait_to_be_compared_are_bounded_and_the_latest_ones() -> None:
    values = StepValues()
    accounts = [account(number) for number in range(MAX_EARLY + 8)]
    for each in accounts:
        values.learn_known((), [(each, FAMILY, dependent(DEPENDENT))])
    values.learn_known([(FAMILY, dependent(DEPENDENT))] * MIN_OWN_TEXTS, ())
    assert values.accounts() == frozenset(accounts[8:])


def test_an_account_that_misleads_in_a_known_family_is_not_trusted_in_unknown_ones() -> None:
    values = known_family(MOSTLY_FOREIGN)
    values.learn([(account(number), FAMILY + 1, dependent(0.0)) for number in range(1, 12)])
    assert values.misleading() == {
        (account(number), family) for number in range(3, 12) for family in (FAMILY, FAMILY + 1)
    }


def test_steps_of_another_notation_that_depend_on_less_do_not_mislead_in_a_known_family() -> None:
    """A third of the own dependence, and none of the second half on the first."""
    values = StepValues()
    for _ in range(4 * TEXTS_COMPARED):
        own = StepValue(1.0, (DEPENDENT, DEPENDENT))
        other = StepValue(0.0, (DEPENDENT / 3, 0.0))
        values.learn_known([(FAMILY, own)], [(account(n), FAMILY, other) for n in range(5)])
    assert values.misleading() == frozenset()


def test_few_own_texts_and_small_dependence_are_no_standard() -> None:
    assert known_family(MOSTLY_FOREIGN, own=1.9 * DEPENDENCE.min_standard).misleading() == frozenset()
    assert known_family(MOSTLY_FOREIGN, own=2.1 * DEPENDENCE.min_standard).misleading()
    assert known_family(MOSTLY_FOREIGN, MIN_TEXTS - 1).misleading() == frozenset()
    assert known_family(MOSTLY_FOREIGN, MIN_TEXTS).misleading()


def test_own_texts_without_another_prompt_to_compare_count_for_nothing() -> None:
    foreign = [(account(1), FAMILY, dependent(0.0))]
    values = StepValues()
    for _ in range(4 * MIN_TEXTS):
        values.learn_known([(FAMILY, StepValue(1.0))], foreign)
    assert values.misleading() == frozenset()
    for _ in range(4 * MIN_TEXTS):
        own = dependent(2.1 * DEPENDENCE.min_standard)
        values.learn_known([(FAMILY, StepValue(1.0)), (FAMILY, own)], foreign)
    assert values.misleading() == {(account(1), FAMILY)}


def test_the_standard_of_own_steps_uses_the_latest_ones() -> None:
    values, foreign = StepValues(), [(account(1), FAMILY, dependent(0.0))]
    for nats, rounds in ((0.0, 20 * TEXTS_IN_MEAN), (DEPENDENT, 4 * TEXTS_IN_MEAN)):
        for _ in range(rounds):
            values.learn_known([(FAMILY, dependent(nats))], foreign)
    assert values.misleading() == {(account(1), FAMILY)}


def test_evaluations_in_a_known_family_set_no_standard_of_likelihood() -> None:
    values = StepValues()
    for _ in range(4 * MIN_TEXTS):
        values.learn_known(
            [(FAMILY, dependent(1.0))],
            [(account(n), FAMILY, StepValue(HONEST, (1.0, 9.0))) for n in range(5)],
        )
    assert values.standards(FAMILY) == (None, 1.0, None)


def test_own_texts_of_one_family_are_no_standard_of_another() -> None:
    values = StepValues()
    for _ in range(4 * MIN_TEXTS):
        values.learn_known([(FAMILY, dependent(DEPENDENT))], [(account(1), FAMILY + 1, dependent(0.0))])
    assert values.misleading() == frozenset()


def test_evaluations_in_known_families_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_values, "MAX_PAIRS", 3)
    values = known_family(dict.fromkeys(range(5), 0.0))
    assert values.accounts() == {account(number) for number in (2, 3, 4)}


def test_only_own_texts_are_the_standard_of_a_known_family() -> None:
    """Steps of others that depend on their prompts ten times as much do not make honest ones misleading."""
    honest, loud = Identity(1), [Identity(number) for number in range(2, 8)]
    harness = VerificationHarness((honest, *loud))
    harness.trust(honest, *loud)
    nats = {harness.engine.own: DEPENDENT, honest.account: DEPENDENT} | {
        who.account: 10 * DEPENDENT for who in loud
    }
    known = [(who, FAMILY, dependent(value)) for who, value in nats.items()]
    for _ in range(4 * MIN_TEXTS):
        harness.engine.judge_steps(EPOCH, [], known)
    assert harness.sampler.step_values.misleading() == frozenset()
    assert harness.sampler.step_values.votes() == pytest.approx(
        dict.fromkeys((who.account for who in (honest, *loud)), 1.0)
    )
