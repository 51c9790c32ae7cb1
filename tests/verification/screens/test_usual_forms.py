"""Forms of steps: only forms that most accounts use may be imitated, with any digits."""

import random
from collections.abc import Callable, Iterable

import pytest
from support.rollouts import rollout_of
from support.swarm import Identity

from sapo_client.lab.held_out import fresh_item
from sapo_client.lab.worked.solutions import worked_solution
from sapo_protocol.identifiers import Account
from sapo_verification.screens.pair_counts import MAX_COMPARED, MAX_PAIRS, MAX_RUNS, MIN_OTHERS
from sapo_verification.screens.usual_forms import FADE_GROUPS, UsualForms, form
from sapo_verification.suites.catalogue import family

HONEST = [Identity(number).account for number in range(1, 8)]
OTHERS = [Identity(number).account for number in range(8, 15)]
FAMILIES = ("basic_arithmetic", "propositional_logic", "fraction_simplification", "calendar_arithmetic")
Steps = Callable[[random.Random], str]


def solutions(name: str) -> Steps:
    """Return an author of worked solutions."""
    worked, draw = family(name, "worked"), random.Random(name)
    solutions = [
        text for _ in range(800) if (text := worked_solution(worked, fresh_item(worked, draw)[1])) is not None
    ]
    found = [text.partition("<answer>")[0] for text in solutions]
    return lambda draw: draw.choice(found)


SUMS = solutions("basic_arithmetic")


def false_sum(draw: random.Random) -> str:
    return f"{draw.randrange(10)}+{draw.randrange(10)}={draw.randrange(10)} "


def before(steps: Steps, share: float = 1.0) -> Steps:
    """Return an author of steps behind a false sum in a share of the texts."""
    return lambda draw: (false_sum(draw) if draw.random() < share else "") + steps(draw)


def answer(steps: str) -> bytes:
    return f"{steps}<answer>1</answer>".encode()


def heard(
    authors: dict[Account, Steps], groups: int, screen: UsualForms | None = None, seed: int = 0
) -> UsualForms:
    """Return the screen of a node that has verified so many groups of each author."""
    screen, draw = screen or UsualForms(b"key"), random.Random(seed)
    for number in range(groups):
        for account, steps in authors.items():
            texts = {answer(steps(draw)): 1.0, answer(steps(draw)): 1.0}
            screen.learn(rollout_of(account, number, texts))
    return screen


def passed(screen: UsualForms, steps: Steps) -> float:
    """Return the share of an author's further texts that may be imitated."""
    draw = random.Random(99)
    return sum(screen.is_usual(0, answer(steps(draw))) for _ in range(400)) / 400


def swarm(honest: Steps, others: Steps, attackers: int) -> dict[Account, Steps]:
    return dict.fromkeys(HONEST, honest) | dict.fromkeys(OTHERS[:attackers], others)


@pytest.mark.parametrize("share", [1.0, 0.24, 0.05])
@pytest.mark.parametrize("attackers", [1, 5, 6])
@pytest.mark.parametrize("name", FAMILIES)
def test_false_sums_are_not_imitated_however_rare_and_right_steps_are(
    name: str, attackers: int, share: float
) -> None:
    right = solutions(name)
    screen = heard(swarm(right, before(right, share), attackers), 32)
    assert passed(screen, before(right)) == 0.0
    assert passed(screen, right) > 0.98


@pytest.mark.parametrize("name", FAMILIES)
def test_withholding_honest_forms_only_delays_them(name: str) -> None:
    """Six of thirteen accounts write nothing but false sums, so that all seven others are needed."""
    right = solutions(name)
    screen = heard(swarm(right, false_sum, 6), 64)
    assert passed(screen, right) > 0.95
    assert passed(screen, before(right)) == 0.0


@pytest.mark.parametrize(
    "steps",
    [
        "2+2=5 4+4:8",
        "4+4:8 2+2=5",
        "x y z 4+4:8",
        "4+4:8,,5+5:10",
        ":4+4:8",
        "4+4:8,",
        "= 4+4:8",
        "(4)+4:8",
        "1 8",
    ],
)
def test_other_forms_of_the_same_signs_are_not_usual(steps: str) -> None:
    screen = heard(dict.fromkeys(HONEST, SUMS), 16)
    assert screen.is_usual(0, answer("4+4:8"))
    assert not screen.is_usual(0, answer(steps))


def test_forms_ignore_digits_letters_words_case_and_spaces_but_not_signs() -> None:
    assert form("Monday + 3,\n12x P|q") == "w+#,##aa|a"
    assert form("TUESDAY+4,34 Y z|P") == form("Monday + 3,\n12x P|q")
    assert form("4+4:8") != form("4+4=8")


def test_half_of_the_accounts_do_not_make_a_form_usual_and_more_do() -> None:
    for honest, expected in ((6, 0.0), (5, 1.0)):
        authors = dict.fromkeys(HONEST[:honest], SUMS) | dict.fromkeys(OTHERS[:6], before(SUMS))
        assert passed(heard(authors, 32), before(SUMS)) == pytest.approx(expected, abs=0.05)


def test_half_of_the_weight_is_not_more_than_half_for_a_rounding_error() -> None:
    screen = heard({HONEST[0]: SUMS} | dict.fromkeys(OTHERS[:3], before(SUMS)), 32)
    screen.weigh(dict(zip([HONEST[0], *OTHERS[:3]], [0.6, 0.1, 0.2, 0.3], strict=True)))
    assert passed(screen, before(SUMS)) == 0.0
    screen.weigh(dict(zip([HONEST[0], *OTHERS[:3]], [0.59, 0.1, 0.2, 0.3], strict=True)))
    assert passed(screen, before(SUMS)) > 0.95


@pytest.mark.parametrize(("accounts", "share"), [(MIN_OTHERS, 1.0), (MIN_OTHERS + 1, 0.0)])
def test_among_few_accounts_any_form_is_usual(accounts: int, share: float) -> None:
    screen = heard(dict.fromkeys(HONEST[:accounts], SUMS), 16)
    assert passed(screen, before(SUMS)) == share


def test_accounts_without_weight_do_not_count_and_others_as_they_weigh() -> None:
    """Seven newcomers that share little do not make usual what they write."""
    authors = swarm(SUMS, before(SUMS), 7)
    screen = heard(dict.fromkeys(HONEST[:4], SUMS) | authors, 32)
    screen.weigh(dict.fromkeys(HONEST[:4], 0.1) | dict.fromkeys(OTHERS, 0.01))
    assert (passed(screen, before(SUMS)), passed(screen, SUMS)) == (0.0, 1.0)
    screen.weigh(dict.fromkeys(OTHERS, 0.01) | dict.fromkeys(HONEST[:4], 0.001))
    assert passed(screen, before(SUMS)) > 0.95


def test_answers_without_steps_and_wrong_answers_do_not_count_for_forms() -> None:
    screen = UsualForms(b"key")
    for account in HONEST:
        texts = {answer(""): 1.0, answer("4+4:9"): 0.0, b"4+4:8": 1.0}
        screen.learn(rollout_of(account, 1, texts))
    assert len(screen.counts) == 0
    screen = heard(dict.fromkeys(HONEST, SUMS), 16)
    assert screen.is_usual(0, answer(""))
    assert screen.is_usual(0, b"8")


def test_each_family_has_forms_of_its_own() -> None:
    screen = heard(dict.fromkeys(HONEST, SUMS), 16)
    for account in HONEST:
        screen.learn(rollout_of(account, 1, {answer("2+2=5"): 1.0}, family=1))
    usual = [
        (family, text)
        for family in (0, 1)
        for text in ("4+4:8", "4+4=8")
        if screen.is_usual(family, answer(text))
    ]
    assert usual == [(0, "4+4:8"), (1, "4+4=8")]


def test_false_positives_of_counted_runs_are_rare() -> None:
    screen = heard(dict.fromkeys(HONEST, solutions("propositional_logic")), 64)
    (counts, *_) = screen.counts.compared(0).values()
    others = [screen.counts.hash(f"not shown {number}".encode()) for number in range(10_000)]
    assert sum(counts.count(run) > 0 for run in others) < 10


def test_forms_that_are_not_written_any_more_are_forgotten() -> None:
    screen = heard(dict.fromkeys(HONEST, before(SUMS)), 2)
    assert passed(screen, before(SUMS)) > 0.3
    heard(dict.fromkeys(HONEST, SUMS), 2 * FADE_GROUPS, screen, seed=1)
    assert passed(screen, before(SUMS)) == 0.0


def test_memory_and_comparisons_are_bounded() -> None:
    accounts = [Identity(number).account for number in range(1, MAX_PAIRS + 9)]
    screen = UsualForms(b"key")
    for account in accounts:
        screen.learn(rollout_of(account, 1, {answer("4+4:8"): 1.0}))
    assert len(screen.counts) == MAX_PAIRS
    assert len(screen.counts.compared(0)) == MAX_COMPARED
    assert len(screen.counts.hashed(map(str, range(5000)))) == MAX_RUNS
    kept = [account for account in accounts if account in screen.counts.accounts()]
    assert len(kept) == MAX_PAIRS
    screen.weigh({account: float(place) for place, account in enumerate(accounts)})
    assert set(screen.counts.compared(0)) == set(kept[-MAX_COMPARED:]), "those that weigh most"


def noise(seeds: Iterable[int]) -> Iterable[str]:
    for seed in seeds:
        draw = random.Random(seed)
        yield "".join(draw.choice("0+-*/=:,;()<>[]{}|&x. ") for _ in range(4000))


def test_an_account_with_every_run_counts_only_for_itself() -> None:
    screen = heard(dict.fromkeys(HONEST, SUMS), 16)
    for text in noise(range(40)):
        screen.learn(rollout_of(OTHERS[0], 1, {answer(text): 1.0}))
    assert (passed(screen, before(SUMS)), passed(screen, SUMS)) == (0.0, 1.0)
