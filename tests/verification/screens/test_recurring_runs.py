"""Runs of characters that an account repeats beside answers to many tasks, and most others do not."""

import random
from collections.abc import Callable

import pytest
from support.rollouts import rollout_of
from support.swarm import Identity
from support.traffic import Writer
from support.traffic import rollout as traffic_rollout

from sapo_client.lab.held_out import fresh_item
from sapo_client.lab.worked.solutions import worked_solution
from sapo_protocol.identifiers import Account
from sapo_verification.screens.pair_counts import MAX_PAIRS
from sapo_verification.screens.recurring_runs import CLEAN_GROUPS, MIN_GROUPS, RecurringRuns
from sapo_verification.suites.catalogue import family
from sapo_verification.types import Pair

HONEST = [Identity(number).account for number in range(1, 8)]
OTHERS = [Identity(number).account for number in range(8, 14)]
Steps = Callable[[random.Random], str]


def column_sums(draw: random.Random) -> str:
    """Return the steps of a sum, column by column."""
    parts, carry = [], 0
    for _ in range(3):
        one, two = draw.randrange(10), draw.randrange(10)
        parts.append(f"{one}+{two}+{carry}:{one + two + carry}")
        carry = (one + two + carry) // 10
    return ",".join(parts)


def behind(phrase: str) -> Steps:
    """Return an author of right steps behind a phrase."""
    return lambda draw: f"{phrase} {column_sums(draw)}"


def heard(
    authors: dict[Account, Steps], groups: int, screen: RecurringRuns | None = None, seed: int = 0
) -> RecurringRuns:
    """Return the screen of a node that has verified so many groups of each author, in turns."""
    screen = screen or RecurringRuns(b"key")
    draw = random.Random(seed)
    for number in range(groups):
        for account, steps in authors.items():
            texts = [f"{steps(draw)} <answer>1</answer>".encode() for _ in range(2)]
            screen.learn(rollout_of(account, number, dict.fromkeys(texts, 1.0)))
    return screen


def beside_honest(steps: Steps, attackers: int) -> dict[Account, Steps]:
    return dict.fromkeys(HONEST, column_sums) | dict.fromkeys(OTHERS[:attackers], steps)


@pytest.mark.parametrize("phrase", ["2+2=5", "2 + 2 = 5 ", "1:1:1:1", "a b c d"])
@pytest.mark.parametrize("attackers", [1, 5])
def test_a_phrase_of_signs_before_right_steps_is_noticed_within_ten_groups(
    phrase: str, attackers: int
) -> None:
    screen = heard(beside_honest(behind(phrase), attackers), 10)
    assert screen.set_aside() == {(account, 0) for account in OTHERS[:attackers]}


def test_a_phrase_behind_the_answer_is_noticed() -> None:
    screen, draw = RecurringRuns(b"key"), random.Random(0)
    for number in range(10):
        for account in [*HONEST, OTHERS[0]]:
            phrase = "" if account in HONEST else " All hail!"
            text = f"{column_sums(draw)} <answer>1</answer>{phrase}".encode()
            screen.learn(rollout_of(account, number, {text: 1.0}))
    assert screen.set_aside() == {(OTHERS[0], 0)}


def test_spaces_and_case_do_not_hide_a_phrase() -> None:
    def steps(draw: random.Random) -> str:
        signs = [draw.choice([sign, sign.upper()]) + " " * draw.randrange(3) for sign in "a=b+c;x=y"]
        return f"{''.join(signs)} {column_sums(draw)}"

    screen = heard(beside_honest(steps, 5), 10)
    assert screen.set_aside() == {(account, 0) for account in OTHERS[:5]}


def test_a_phrase_of_half_of_the_accounts_is_not_detected() -> None:
    authors = dict.fromkeys(HONEST[:6], column_sums) | dict.fromkeys(OTHERS, behind("2+2=5"))
    assert heard(authors, 40).set_aside() == frozenset()


def test_one_of_several_phrases_is_noticed_later() -> None:
    def steps(draw: random.Random) -> str:
        return behind(draw.choice(["2+2=5", "3*3=8", "7-1=2"]))(draw)

    screen = heard(beside_honest(steps, 5), 40)
    assert screen.set_aside() == {(account, 0) for account in OTHERS[:5]}


def test_runs_that_recur_in_most_accounts_belong_to_the_family() -> None:
    authors = dict.fromkeys(HONEST, behind("0 0 0 0")) | dict.fromkeys(OTHERS, column_sums)
    assert heard(authors, 64).set_aside() == frozenset()


@pytest.mark.parametrize("name", ["binary_matrix", "calendar_arithmetic", "propositional_logic"])
def test_honest_accounts_are_not_set_aside(name: str) -> None:
    worked = family(name, "worked")
    draw = random.Random(name)
    solutions = [
        text for _ in range(500) if (text := worked_solution(worked, fresh_item(worked, draw)[1])) is not None
    ]
    found = [text.partition("<answer>")[0] for text in solutions]
    screen = RecurringRuns(b"key")
    for turn in range(20):
        heard(dict.fromkeys(HONEST, lambda draw: draw.choice(found)), 10, screen, seed=turn)
        assert screen.set_aside() == frozenset()


def test_steps_without_the_phrase_are_trained_again_after_a_while() -> None:
    attacker = OTHERS[0]
    screen = heard(beside_honest(behind("2+2=5"), 1), 10)
    heard({attacker: column_sums}, CLEAN_GROUPS - 1, screen)
    assert screen.set_aside() == {(attacker, 0)}
    assert heard({attacker: column_sums}, 1, screen, seed=1).set_aside() == frozenset()


def test_few_groups_and_few_accounts_are_not_compared() -> None:
    assert heard(beside_honest(behind("2+2=5"), 5), MIN_GROUPS - 1).set_aside() == frozenset()
    few = dict.fromkeys(HONEST[:2], column_sums) | {OTHERS[0]: behind("2+2=5")}
    assert heard(few, 32).set_aside() == frozenset()
    rare = heard(dict.fromkeys(HONEST, column_sums), MIN_GROUPS - 1)
    assert heard({OTHERS[0]: behind("2+2=5")}, 32, rare).set_aside() == frozenset()
    weighed = RecurringRuns(b"key")
    weighed.counts.weigh(dict.fromkeys([*HONEST[:2], OTHERS[0]], 0.1))
    assert heard(beside_honest(behind("2+2=5"), 1), 32, weighed).set_aside() == frozenset()


def test_a_flood_of_accounts_does_not_decide_what_is_usual() -> None:
    """Forty newcomers share what is reserved for newcomers, and repeat something else."""
    newcomers = [Identity(number).account for number in range(20, 60)]
    screen = RecurringRuns(b"key")
    screen.counts.weigh(dict.fromkeys(HONEST, 0.1) | dict.fromkeys([*newcomers, *OTHERS[:1]], 0.002))
    authors = dict.fromkeys(newcomers, behind("9-9=1")) | dict.fromkeys(HONEST, behind("0+0:0"))
    heard(authors | {OTHERS[0]: behind("2+2=5")}, 12, screen)
    assert screen.set_aside() == {(account, 0) for account in [*newcomers, OTHERS[0]]}


def test_bare_answers_and_wrong_ones_are_not_counted() -> None:
    screen = RecurringRuns(b"key")
    for number in range(32):
        for account in HONEST:
            texts = {b"2+2=5 %d" % number: 1.0, b"2+2=5 <answer>%d</answer>" % number: 0.0}
            screen.learn(rollout_of(account, number, texts))
    assert not len(screen.counts)


def test_pairs_are_bounded() -> None:
    screen = heard(beside_honest(behind("2+2=5"), 1), 10)
    draw = random.Random(1)
    for number in range(MAX_PAIRS):
        text = f"{column_sums(draw)} <answer>1</answer>".encode()
        screen.learn(rollout_of(Identity(100 + number).account, 0, {text: 1.0}))
    assert len(screen.counts) == MAX_PAIRS
    stays = OTHERS[0] in screen.counts.accounts()
    assert screen.set_aside() == ({(OTHERS[0], 0)} if stays else frozenset())


def test_an_account_that_is_received_again_is_not_dropped() -> None:
    attacker = OTHERS[0]
    screen = heard(beside_honest(behind("2+2=5"), 1), 10)
    draw = random.Random(1)
    for number in range(MAX_PAIRS + 50):
        author = attacker if number % 100 == 0 else Identity(100 + number).account
        phrase = "2+2=5 " if author == attacker else ""
        text = f"{phrase}{column_sums(draw)} <answer>1</answer>".encode()
        screen.learn(rollout_of(author, 20 + number, {text: 1.0}))
    assert screen.set_aside() == {(attacker, 0)}


def prose(authors: list[Writer], groups: int, phrase: str = "") -> frozenset[Pair]:
    """Return who is set aside after so many groups of each author; the last one's hold the phrase."""
    screen = RecurringRuns(b"key")
    for number in range(groups):
        for author in authors:
            group = author.group()
            texts = [completion.decode() for completion in group.completions]
            if author is authors[-1]:
                texts = [phrase + text for text in texts]
            screen.learn(traffic_rollout(author.identity, number, group.prompt, texts))
    return screen.set_aside()


def test_in_prose_of_one_model_only_the_planted_phrase_is_detected() -> None:
    authors = [Writer(Identity(number), collapse=0.0) for number in range(10, 15)]
    assert prose(authors, 30) == frozenset()
    authors = [Writer(Identity(number), collapse=0.0) for number in range(10, 15)]
    assert prose(authors, 30, "All hail to the thief. ") == {(authors[-1].identity.account, 0)}


def test_accounts_of_different_models_are_set_aside_for_uncommon_text() -> None:
    """A style is a phrase here: the node then trains without the text of others."""
    authors = [Writer(Identity(number), collapse=1.0) for number in range(10, 14)]
    assert prose(authors, 30) == {(author.identity.account, 0) for author in authors}
