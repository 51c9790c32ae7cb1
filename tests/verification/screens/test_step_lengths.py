"""Lengths of steps: accounts with longer steps than most others for similar prompts are not imitated."""

import random
from collections.abc import Callable, Mapping

import pytest
from support.rollouts import rollout_of
from support.swarm import Identity

from sapo_client.lab.held_out import fresh_item
from sapo_client.lab.worked.solutions import step_separator, worked_solution
from sapo_protocol.identifiers import Account
from sapo_verification.screens.pair_counts import MAX_COMPARED, MAX_PAIRS, MIN_OTHERS
from sapo_verification.screens.step_lengths import GROUPS, MIN_GROUPS, StepLengths
from sapo_verification.suites.catalogue import family

HONEST = [Identity(number).account for number in range(1, 8)]
OTHERS = [Identity(number).account for number in range(8, 18)]
ALIKE = dict.fromkeys([*HONEST, *OTHERS], 1.0)
SUMS, FRACTIONS = 0, 1
Text = tuple[str, str]
"""Prompt and steps."""
Author = Callable[[random.Random], Text]


def alike(_family: int, _account: Account, _other: Account) -> bool:
    """Return that no account's steps depend less on their prompts than another's."""
    return False


def solutions(name: str) -> list[Text]:
    worked, draw = family(name, "worked"), random.Random(name)
    items = [fresh_item(worked, draw)[1] for _ in range(800)]
    found = [(item.prompt, worked_solution(worked, item)) for item in items]
    return [(prompt, text.partition("<answer>")[0]) for prompt, text in found if text is not None]


def honest(name: str) -> Author:
    """Return an author of worked solutions."""
    found = solutions(name)
    return lambda draw: draw.choice(found)


def longer(name: str, share: float = 1.0) -> Author:
    """Return an author of worked solutions behind a step of another one, in a share of the texts."""
    right, separator = honest(name), step_separator(family(name, "worked"))

    def author(draw: random.Random) -> Text:
        prompt, steps = right(draw)
        first, _, _ = right(draw)[1].partition(separator)
        return prompt, f"{first}{separator}{steps}" if draw.random() < share else steps

    return author


def of_length(length: int, prompt: int = 8) -> Author:
    """Return an author of steps of one length for prompts of one length."""
    return lambda _: ("x" * prompt, ":" * length)


def heard(
    authors: Mapping[Account, Author],
    groups: int,
    screen: StepLengths | None = None,
    *,
    of: int = SUMS,
    weights: Mapping[Account, float] | None = None,
) -> StepLengths:
    """Return the screen of a node that has verified so many groups of each author and compared them."""
    screen, draw = screen or StepLengths(b"key"), random.Random(of)
    for number in range(groups):
        for account, author in authors.items():
            prompt, steps = author(draw)
            screen.learn(
                rollout_of(account, number, {f"{steps}<answer>1</answer>".encode(): 1.0}, of, prompt)
            )
    screen.weigh(ALIKE if weights is None else weights, alike)
    return screen


def swarm(right: Author, others: Author, attackers: int) -> dict[Account, Author]:
    return dict.fromkeys(HONEST, right) | dict.fromkeys(OTHERS[:attackers], others)


def pairs(accounts: list[Account], of: int = SUMS) -> frozenset[tuple[Account, int]]:
    return frozenset((account, of) for account in accounts)


@pytest.mark.parametrize("attackers", [1, 5])
@pytest.mark.parametrize(
    ("name", "groups"),
    [("basic_arithmetic", 16), ("propositional_logic", 48), ("binary_matrix", 8)],
)
def test_one_step_too_many_in_every_text_is_noticed(name: str, groups: int, attackers: int) -> None:
    screen = heard(swarm(honest(name), longer(name), attackers), groups)
    assert screen.longer() == pairs(OTHERS[:attackers])


@pytest.mark.parametrize(
    "name", ["basic_arithmetic", "propositional_logic", "fraction_simplification", "calendar_arithmetic"]
)
def test_accounts_that_write_like_others_and_slip_now_and_then_are_not_longer(name: str) -> None:
    authors = swarm(honest(name), longer(name, 0.1), 5)
    for groups in (MIN_GROUPS, 16, 32, GROUPS):
        assert heard(authors, groups).longer() == frozenset()


@pytest.mark.parametrize("name", ["fraction_simplification", "calendar_arithmetic"])
@pytest.mark.parametrize("groups", [MIN_GROUPS - 1, MIN_GROUPS])
def test_an_account_longer_in_comparable_families_is_not_accepted_in_others(name: str, groups: int) -> None:
    """Of the account itself a single group is enough there."""
    screen = heard(dict.fromkeys(HONEST, honest(name)), MIN_GROUPS, of=FRACTIONS)
    heard(dict.fromkeys(OTHERS[:5], honest(name)), groups, screen, of=FRACTIONS)
    assert screen.longer() == frozenset()
    heard(swarm(honest("basic_arithmetic"), longer("basic_arithmetic"), 5), 32, screen)
    assert screen.longer() == pairs(OTHERS[:5]) | pairs(OTHERS[:5], FRACTIONS)


def test_longer_steps_than_accounts_without_the_family_are_accepted_there() -> None:
    others = [Identity(number).account for number in range(20, 27)]
    fractions = dict.fromkeys([*others, OTHERS[0]], honest("fraction_simplification"))
    screen = heard(swarm(of_length(20), of_length(25), 1), 16)
    heard(fractions, MIN_GROUPS, screen, of=FRACTIONS)
    screen.weigh(dict.fromkeys([*HONEST, *others], 1.0), alike)
    assert screen.longer() == pairs(OTHERS[:1])
    heard(dict.fromkeys(HONEST, honest("fraction_simplification")), MIN_GROUPS, screen, of=FRACTIONS)
    screen.weigh(dict.fromkeys(HONEST, 1.0) | dict.fromkeys(others[:6], 1.0), alike)
    assert screen.longer() == pairs(OTHERS[:1]) | pairs(OTHERS[:1], FRACTIONS)


def test_longer_steps_than_a_minority_elsewhere_are_accepted() -> None:
    """The seven than which it is longer are all that show the other family."""
    fractions = dict.fromkeys([*HONEST, OTHERS[0]], honest("fraction_simplification"))
    screen = heard(fractions, MIN_GROUPS, of=FRACTIONS)
    heard(swarm(of_length(20), of_length(25), 9), 16, screen)
    assert screen.longer() == frozenset()


def test_longer_steps_than_half_by_weight_are_accepted() -> None:
    """Three tenths are three times a tenth, but for rounding. Who has the three has three shorter others."""
    weights = {HONEST[0]: 0.3} | dict.fromkeys(HONEST[1:4], 0.1)
    authors = dict.fromkeys([HONEST[0], OTHERS[0]], of_length(25)) | dict.fromkeys(HONEST[1:4], of_length(20))
    assert heard(authors, 16, weights=weights).longer() == pairs(HONEST[:1])


def test_guessing_in_an_unknown_family_does_not_affect_known_ones() -> None:
    """Four guess right now and then, behind steps of any length; five others show shorter ones there."""

    def guess(draw: random.Random) -> Text:
        return of_length(draw.choice([40, 60, 80]))(draw)

    guessers, liars = HONEST[:4], OTHERS[:5]
    known = dict.fromkeys(HONEST, honest("basic_arithmetic"))
    screen = heard(known, MIN_GROUPS, of=FRACTIONS)
    heard(dict.fromkeys(guessers, guess) | dict.fromkeys(liars, of_length(10)), 32, screen)
    assert screen.longer() == pairs(guessers)


def test_an_account_significantly_not_longer_in_a_family_is_accepted_there() -> None:
    screen = heard(swarm(of_length(20), of_length(20), 5), 32, of=FRACTIONS)
    heard(swarm(of_length(20), of_length(25), 5), 32, screen)
    assert screen.longer() == pairs(OTHERS[:5])


@pytest.mark.parametrize("name", ["fraction_simplification", "calendar_arithmetic"])
def test_accounts_with_only_short_steps_do_not_set_others_aside_as_long(name: str) -> None:
    """Five of twelve move the median, and no honest account is longer than the honest ones."""
    lengths: dict[int, list[int]] = {}
    for prompt, steps in solutions(name):
        lengths.setdefault(len(prompt), []).append(len(steps))
    short = [each for each in solutions(name) if len(each[1]) <= min(lengths[len(each[0])])]
    assert heard(swarm(honest(name), lambda draw: draw.choice(short), 5), GROUPS).longer() == frozenset()


def test_long_steps_for_long_prompts_are_usual() -> None:
    mixed = {account: of_length(20, 8) for account in HONEST}
    screen = heard(mixed, 32)
    heard({account: of_length(60, 24) for account in [*HONEST, OTHERS[0]]}, 32, screen)
    assert screen.longer() == frozenset()
    heard({OTHERS[0]: of_length(60, 8)}, GROUPS, screen)
    assert screen.longer() == pairs(OTHERS[:1])


def test_prompts_of_about_the_same_length_are_compared() -> None:
    screen = heard({account: of_length(20, 200 + place) for place, account in enumerate(HONEST)}, 16)
    heard({OTHERS[0]: of_length(25, 203)}, 16, screen)
    assert screen.longer() == pairs(OTHERS[:1])


@pytest.mark.parametrize(("length", "is_longer"), [(104, False), (106, True), (90, False)])
def test_a_twentieth_more_is_allowed(length: int, *, is_longer: bool) -> None:
    screen = heard({**dict.fromkeys(HONEST, of_length(100)), OTHERS[0]: of_length(length)}, 16)
    assert screen.longer() == (pairs(OTHERS[:1]) if is_longer else frozenset())


@pytest.mark.parametrize(("attackers", "noticed"), [(7, 7), (8, 0)])
def test_other_accounts_define_usual_lengths_only_with_more_than_half_of_the_weight(
    attackers: int, noticed: int
) -> None:
    screen = heard(swarm(of_length(20), of_length(25), attackers), 16)
    assert screen.longer() == pairs(OTHERS[:noticed])


def test_accounts_weigh_as_in_a_batch() -> None:
    authors = swarm(of_length(20), of_length(25), 7)
    weights = dict.fromkeys(HONEST, 1.0) | dict.fromkeys(OTHERS, 0.1)
    assert heard(authors, 16, weights=weights).longer() == pairs(OTHERS[:7])
    turned = dict.fromkeys(HONEST, 0.1) | dict.fromkeys(OTHERS, 1.0)
    assert heard(authors, 16, weights=turned).longer() == frozenset()


def test_newcomers_without_weight_are_compared_but_are_no_reference() -> None:
    authors = swarm(of_length(25), of_length(20), 7)
    assert heard(authors, 16, weights=dict.fromkeys(HONEST, 1.0)).longer() == frozenset()
    authors = swarm(of_length(20), of_length(25), 7)
    assert heard(authors, 16, weights=dict.fromkeys(HONEST, 1.0)).longer() == pairs(OTHERS[:7])


@pytest.mark.parametrize("others", [MIN_OTHERS - 1, MIN_OTHERS])
def test_with_few_others_no_account_is_longer(others: int) -> None:
    authors = {**dict.fromkeys(HONEST[:others], of_length(20)), OTHERS[0]: of_length(25)}
    found = heard(authors, 16).longer()
    assert found == (frozenset() if others < MIN_OTHERS else pairs(OTHERS[:1]))


def test_accounts_with_few_groups_or_without_weight_are_not_counted_as_others() -> None:
    right = of_length(20)
    screen = heard(dict.fromkeys(HONEST[: MIN_OTHERS + 2], right), MIN_GROUPS - 1)
    authors = {**dict.fromkeys(HONEST[: MIN_OTHERS - 1], right), OTHERS[0]: of_length(25)}
    assert heard(authors, 16, screen).longer() == frozenset()
    newcomers = dict.fromkeys(HONEST[-2:], right)
    weights = {account: 1.0 for account in ALIKE if account not in newcomers}
    assert heard(newcomers, 16, screen, weights=weights).longer() == frozenset()
    assert heard({}, 0, screen).longer() == pairs(OTHERS[:1])


def test_half_of_the_weight_is_not_more_than_half_for_a_rounding_error() -> None:
    authors = dict.fromkeys(HONEST[:3], of_length(20)) | dict.fromkeys(OTHERS[:2], of_length(25))
    weights = dict(zip([OTHERS[0], *HONEST[:3], OTHERS[1]], [1.2, 0.1, 0.3, 0.8, 1e-20], strict=True))
    assert heard(authors, 16, weights=weights).longer() == pairs(OTHERS[:1])
    weights[OTHERS[0]] = 1.19
    assert heard(authors, 16, weights=weights).longer() == pairs(OTHERS[:2])


def test_the_accounts_with_most_weight_are_compared() -> None:
    numbers = range(20, 20 + 2 * MAX_COMPARED + 8)
    accounts = [Identity(number).account for number in numbers]
    heavy, light = accounts[:MAX_COMPARED], accounts[MAX_COMPARED:]
    weights = dict.fromkeys(heavy, 1.0) | dict.fromkeys(light, 0.9)
    authors = dict.fromkeys(light, of_length(25)) | dict.fromkeys(heavy, of_length(20))
    assert heard(authors, 16, weights=weights).longer() == pairs(light)


def test_accounts_with_chosen_addresses_are_not_compared_before_others() -> None:
    """As many accounts as are compared have the highest addresses, and write longer steps."""
    first = dict.fromkeys((Account(b"\xff" * 19 + bytes([n])) for n in range(MAX_COMPARED)), of_length(25))
    others = [Identity(number).account for number in range(20, 20 + 3 * MAX_COMPARED)]
    authors = dict.fromkeys(others, of_length(20)) | first
    assert heard(authors, 8, weights=dict.fromkeys(authors, 1.0)).longer() == {(each, SUMS) for each in first}


def test_texts_for_prompts_of_attackers_alone_do_not_hide_longer_steps() -> None:
    """Three quarters of their texts are for prompts that nobody else has."""
    screen = heard(swarm(of_length(20), of_length(25), MIN_OTHERS), 16)
    heard(dict.fromkeys(OTHERS[:MIN_OTHERS], of_length(20, 60)), 48, screen)
    assert screen.longer() == pairs(OTHERS[:MIN_OTHERS])


@pytest.mark.parametrize(("gang", "weight"), [(6, 1.0), (9, 0.1)])
def test_lengths_of_few_accounts_or_of_newcomers_are_not_usual(gang: int, weight: float) -> None:
    """If very long steps for some prompts were usual, one step more would look short there."""
    weights = dict.fromkeys(HONEST, 1.0) | dict.fromkeys(OTHERS, weight)
    long = dict.fromkeys(OTHERS[1 : 1 + gang], of_length(900))
    screen = StepLengths(b"key")
    for prompt in (24, 8):
        right, long_one = of_length(20, prompt), of_length(25, prompt)
        heard(dict.fromkeys(HONEST[:3], right), 16, screen)
        heard(long if prompt == 8 else {}, 16, screen)
        heard({OTHERS[0]: long_one, **dict.fromkeys(HONEST[3:], right)}, 16, screen, weights=weights)
    assert screen.longer() == pairs(OTHERS[: 1 + gang])


def test_few_groups_allow_no_conclusion_about_any_account() -> None:
    assert heard(swarm(of_length(20), of_length(25), 1), MIN_GROUPS - 1).longer() == frozenset()
    screen = heard({account: of_length(20) for account in HONEST}, MIN_GROUPS - 1)
    assert heard({OTHERS[0]: of_length(25)}, 32, screen).longer() == frozenset()


def test_an_account_that_stops_is_trusted_again() -> None:
    screen = heard(swarm(of_length(20), of_length(25), 1), GROUPS)
    assert screen.longer() == pairs(OTHERS[:1])
    assert heard(swarm(of_length(20), of_length(20), 1), GROUPS, screen).longer() == frozenset()


def test_accounts_are_compared_when_weights_are_given() -> None:
    screen = heard(swarm(of_length(20), of_length(25), 1), 16)
    for number in range(GROUPS):
        screen.learn(rollout_of(OTHERS[0], number, {b":" * 20 + b"<answer>1</answer>": 1.0}, SUMS, "x" * 8))
    assert screen.longer() == pairs(OTHERS[:1])
    screen.weigh(ALIKE, alike)
    assert screen.longer() == frozenset()


def test_answers_without_steps_and_wrong_answers_are_not_counted() -> None:
    texts = {b":" * 900 + b"<answer>2</answer>": 0.0, b":" * 900: 1.0, b"<answer>1</answer>": 1.0}
    screen = heard(dict.fromkeys([*HONEST, OTHERS[0]], of_length(20)), 16)
    for number in range(16):
        screen.learn(rollout_of(OTHERS[0], number, texts, SUMS, "x" * 8))
    screen.weigh(ALIKE, alike)
    assert screen.longer() == frozenset()
    long = {**texts, b":" * 25 + b"<answer>1</answer>": 1.0}
    for number in range(64):
        screen.learn(rollout_of(OTHERS[0], number, long, SUMS, "x" * 8))
    screen.weigh(ALIKE, alike)
    assert screen.longer() == pairs(OTHERS[:1]), "the bare answer beside it is no short one"


@pytest.mark.parametrize(("lengths", "is_longer"), [((40, 41, 44), False), ((40, 41, 60), True)])
def test_the_mean_over_a_groups_right_answers_counts(lengths: tuple[int, ...], *, is_longer: bool) -> None:
    """Which of them is compared is not the author's choice."""
    screen = heard(dict.fromkeys(HONEST, of_length(40)), 16)
    texts = {b":" * length + b"<answer>1</answer>": 1.0 for length in lengths}
    for number in range(16):
        screen.learn(rollout_of(OTHERS[0], number, texts, SUMS, "x" * 8))
    screen.weigh(ALIKE, alike)
    assert screen.longer() == (pairs(OTHERS[:1]) if is_longer else frozenset())


def test_lengths_ignore_word_length_and_spaces() -> None:
    screen = heard({account: lambda _: ("x" * 8, "Monday+3, Friday+2") for account in HONEST}, 16)
    heard({OTHERS[0]: lambda _: ("x" * 8, "Wednesday + 3,  Thursday + 2")}, 16, screen)
    assert screen.longer() == frozenset()


def test_accounts_of_another_family_do_not_displace_those_that_define_usual_forms() -> None:
    screen = heard(dict.fromkeys(HONEST, of_length(20)), 16)
    flood = {Identity(number).account: of_length(20) for number in range(20, 20 + 2 * MAX_PAIRS)}
    heard(flood, 1, screen, of=FRACTIONS)
    heard({OTHERS[0]: of_length(25)}, 16, screen)
    assert screen.longer() == pairs(OTHERS[:1])


def usual_share(screen: StepLengths, author: Author, of: int = SUMS) -> float:
    """Return the share of an author's texts that are usual."""
    draw = random.Random("texts")
    texts = [author(draw) for _ in range(400)]
    return sum(
        screen.is_usual(of, prompt, f"{steps}<answer>1</answer>".encode()) for prompt, steps in texts
    ) / len(texts)


@pytest.mark.parametrize(("name", "least"), [("propositional_logic", 0.93), ("binary_matrix", 1.0)])
def test_one_step_too_many_waits_where_the_length_follows_from_the_prompt(name: str, least: float) -> None:
    """The attackers' mean is not surely longer, and honest accounts slip now and then.

    Of 14 formulas with as many characters one has a longer solution than the others, which waits as well.
    """
    screen = heard(swarm(longer(name, 0.1), longer(name, 0.25), 5), GROUPS)
    assert screen.longer() == frozenset()
    assert usual_share(screen, honest(name)) >= least
    assert usual_share(screen, longer(name)) < 0.02


@pytest.mark.parametrize("name", ["basic_arithmetic", "fraction_simplification", "calendar_arithmetic"])
def test_no_text_waits_where_the_length_varies_with_the_task(name: str) -> None:
    screen = StepLengths(b"key")
    assert usual_share(screen, longer(name)) == 1.0
    for groups in (MIN_GROUPS, 16, 32, GROUPS):
        screen = heard(swarm(honest(name), longer(name, 0.25), 5), groups)
        assert usual_share(screen, longer(name)) == 1.0


@pytest.mark.parametrize(
    ("steps", "prompt", "is_usual"),
    [(105, 8, True), (106, 8, False), (20, 8, True), (200, 9, True), (0, 8, True)],
)
def test_steps_may_be_a_twentieth_longer_than_usual(steps: int, prompt: int, is_usual: bool) -> None:
    """Of prompts with nine characters nobody has shown any."""
    screen = heard(swarm(of_length(100), of_length(150), 5), MIN_GROUPS)
    question, text = of_length(steps, prompt)(random.Random(0))
    answers = f"{text}<answer>1</answer>".encode(), text.encode()
    assert [screen.is_usual(SUMS, question, answer) for answer in answers] == [is_usual, True]
    assert screen.is_usual(FRACTIONS, question, answers[0])


@pytest.mark.parametrize(("groups", "accounts"), [(MIN_GROUPS - 1, 7), (MIN_GROUPS, MIN_OTHERS)])
def test_few_groups_or_accounts_set_no_limit(groups: int, accounts: int) -> None:
    screen = heard(dict.fromkeys(HONEST[:accounts], of_length(100)), groups)
    assert usual_share(screen, of_length(200)) == 1.0


@pytest.mark.parametrize(("shorter", "is_limited"), [(0.15, True), (0.4, False)])
def test_lengths_that_are_often_shorter_set_no_limit(shorter: float, is_limited: bool) -> None:
    usual, short = of_length(100), of_length(50)

    def author(draw: random.Random) -> Text:
        return (short if draw.random() < shorter else usual)(draw)

    screen = heard(dict.fromkeys(HONEST, author), GROUPS)
    assert usual_share(screen, of_length(150)) == (0.0 if is_limited else 1.0)


def test_accounts_with_few_groups_do_not_decide_whether_lengths_follow_from_the_prompt() -> None:
    few, author = HONEST[MIN_OTHERS:], of_length(100)
    screen = heard(dict.fromkeys(few, author), 1)
    heard(dict.fromkeys(HONEST[:MIN_OTHERS], author), MIN_GROUPS, screen)
    assert usual_share(screen, of_length(200)) == 1.0


@pytest.mark.parametrize("steady", [(0, 1, 2), (3, 4, 5), (4, 5, 6)])
def test_the_median_account_decides_whether_lengths_follow_from_the_prompt(steady: tuple[int, ...]) -> None:
    def varied(draw: random.Random) -> Text:
        return of_length(draw.choice([60, 100, 140]))(draw)

    authors = {
        account: of_length(100) if number in steady else varied for number, account in enumerate(HONEST)
    }
    assert usual_share(heard(authors, GROUPS), of_length(200)) == 1.0


def test_limits_are_set_by_weight_and_last_until_accounts_are_compared_again() -> None:
    authors = swarm(of_length(100), of_length(200), 9)
    screen = heard(authors, MIN_GROUPS, weights=dict.fromkeys(OTHERS, 0.5) | dict.fromkeys(HONEST, 1.0))
    assert usual_share(screen, of_length(150)) == 0.0
    screen.weigh(ALIKE, alike)  # the nine are the majority
    assert usual_share(screen, of_length(150)) == 1.0
    screen.weigh(dict.fromkeys(HONEST, 1.0), alike)
    assert usual_share(screen, of_length(150)) == 0.0


def test_a_group_counts_by_the_median_of_its_right_answers() -> None:
    """A policy that repeats a step in two of five answers has the usual length all the same."""
    screen = StepLengths(b"key")
    answers = [f"{':' * length}<answer>{length}</answer>".encode() for length in (100, 101, 102, 150, 160)]
    for number in range(MIN_GROUPS):
        for account in HONEST:
            screen.learn(rollout_of(account, number, dict.fromkeys(answers, 1.0), SUMS, "x" * 8))
    screen.weigh(ALIKE, alike)
    assert [screen.is_usual(SUMS, "x" * 8, answer) for answer in answers] == [True] * 3 + [False] * 2


def test_a_majority_with_steps_that_depend_less_does_not_set_others_aside_as_long() -> None:
    """Eight of fifteen show short steps: alone of those the honest are longer, of each other they are not."""
    liars = OTHERS[:8]
    screen = heard(swarm(of_length(20), of_length(12), 8), 16)
    assert screen.longer() == pairs(HONEST)
    screen.weigh(
        ALIKE, lambda family, who, than: (family, who in liars, than in HONEST) == (SUMS, True, True)
    )
    assert screen.longer() == frozenset()


def test_accounts_that_depend_less_are_compared_with_all_others() -> None:
    """A step too many depends on nothing, so that its author depends a little less; that is no excuse."""
    screen = heard(swarm(of_length(20), of_length(25), 5), 16)
    screen.weigh(ALIKE, lambda _, who, than: who in OTHERS and than in HONEST)
    assert screen.longer() == pairs(OTHERS[:5])


def test_without_enough_counted_others_no_account_is_longer() -> None:
    screen = heard(swarm(of_length(20), of_length(12), 8), 16)
    few = HONEST[:MIN_OTHERS]
    screen.weigh(ALIKE, lambda _, who, __: who not in few)
    assert screen.longer() == frozenset()
