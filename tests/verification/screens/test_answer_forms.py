"""Spellings of right answers: only spellings that most accounts use are imitated."""

import random
import re
from collections.abc import Callable

import pytest
from support.rollouts import rollout_of
from support.swarm import Identity, make_manifest

from sapo_client.lab.held_out import fresh_item
from sapo_protocol.suite import Family
from sapo_verification.screens.answer_forms import MIN_GROUPS, answer_runs
from sapo_verification.screens.screens import Screens
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Item, solution
from sapo_verification.tasks.scorers import score

OWN = Identity(99).account
HONEST = [Identity(number).account for number in range(1, 8)]
ATTACKERS = [Identity(number).account for number in range(8, 14)]
TASKS = 160

Spell = Callable[[str], str]

NUMBERS = re.compile(r"(?<![0-9.])[0-9]+")


def zeros(answer: str) -> str:
    return NUMBERS.sub(lambda number: f"0000{number[0]}", answer)


SPELLINGS: dict[str, tuple[str, str, Spell]] = {
    "zeros before a fraction's numbers": ("fraction_simplification", "worked", zeros),
    "dollars around a fraction": ("fraction_simplification", "nano", lambda answer: f"$${answer}$$"),
    "zeros before a decimal number": ("decimal_arithmetic", "nano", zeros),
    "an exponent of nought": ("decimal_arithmetic", "nano", lambda answer: f"{answer}e0"),
    "a number with a sign in front": ("gsm_symbolic", "full", lambda answer: f"+{answer}"),
    "many decimal places of nought": ("gsm_symbolic", "full", lambda answer: f"{answer}.{'0' * 40}"),
    "other letters' case": ("color_cube_rotation", "easy", str.upper),
    "spaces between cells": ("binary_matrix", "worked", lambda answer: " ".join(answer)),
    "empty lines": ("rotate_matrix", "easy", lambda answer: answer.replace("\n", "\n\n\n")),
    "brackets in brackets": ("countdown", "easy", lambda answer: f"(((({answer}))))"),
    "signs that cancel": ("countdown", "easy", lambda answer: f"--{answer}"),
    "other quotes": ("number_sorting", "easy", lambda answer: answer.replace("'", '"')),
}
HONEST_ALONE = ("calendar_arithmetic", "propositional_logic", "bf", "basic_arithmetic")


def completion(of: Family, answer: str) -> bytes:
    return (answer if of.answer == "plain" else f"<answer>{answer}</answer>").encode()


def solved(of: Family) -> list[tuple[Item, str]]:
    draw = random.Random(of.name)
    items = (fresh_item(of, draw)[1] for _ in range(TASKS))
    return [(item, answer) for item in items if (answer := solution(of, item)) is not None]


def heard(of: Family, groups: int, spell: Spell, attackers: int = 6) -> Screens:
    """Return the screens of a node after so many groups of each honest account, and of attackers."""
    screens, draw, known = Screens(make_manifest(), b"key", OWN), random.Random(1), solved(of)
    for number in range(groups):
        for account in (*HONEST, *ATTACKERS[:attackers]):
            answer = draw.choice(known)[1]
            text = completion(of, spell(answer) if account in ATTACKERS else answer)
            screens.learn(rollout_of(account, number, {text: 1.0}))
    return screens


@pytest.mark.parametrize(("name", "level", "spell"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_spelling_of_a_minority_is_right_and_not_imitated(name: str, level: str, spell: Spell) -> None:
    of = family(name, level)
    screens, changed = heard(of, 32, spell), 0
    for item, answer in solved(of):
        text = completion(of, spell(answer))
        if spell(answer) == answer or score(of, extract(of, text), item.entry) < 1.0:
            continue
        changed += 1
        assert not screens.is_usual(0, item.prompt, text), text
    assert changed > TASKS / 4


@pytest.mark.parametrize(
    ("name", "level"),
    sorted(
        {(name, level) for name, level, _ in SPELLINGS.values()} | {(each, "worked") for each in HONEST_ALONE}
    ),
)
def test_honest_answers_are_imitated(name: str, level: str) -> None:
    of = family(name, level)
    screens, known = heard(of, 32, str, attackers=0), solved(of)
    passed = sum(screens.is_usual(0, item.prompt, completion(of, answer)) for item, answer in known)
    assert passed > 0.96 * len(known)


def test_with_few_groups_every_spelling_passes_that_is_not_odd() -> None:
    of = family("fraction_simplification", "worked")
    (item, answer), *_ = solved(of)
    signed, text = completion(of, f"+{answer}"), completion(of, answer)
    few, enough = (heard(of, groups, zeros, attackers=0) for groups in (MIN_GROUPS - 1, MIN_GROUPS))
    found = [[each.is_usual(0, item.prompt, one) for one in (text, signed)] for each in (few, enough)]
    assert found == [[True, True], [True, False]]


@pytest.mark.parametrize(
    "name", [name for name in SPELLINGS if name.startswith(("zeros", "dollars", "brackets"))]
)
@pytest.mark.parametrize("groups", [0, 1, MIN_GROUPS - 1])
def test_attackers_who_are_right_first_establish_no_odd_spelling(name: str, groups: int) -> None:
    """A swarm whose policies are right in few answers yet: nobody but they shows any."""
    of, spell = family(*SPELLINGS[name][:2]), SPELLINGS[name][2]
    screens, known = Screens(make_manifest(), b"key", OWN), solved(of)
    for number in range(groups):
        for account in ATTACKERS[:2]:
            item, answer = known[number]
            right = completion(of, spell(answer))
            screens.learn(rollout_of(account, number, {right: 1.0}, prompt=item.prompt))
    changed = [(item, spell(answer)) for item, answer in known if spell(answer) != answer]
    passed = sum(screens.is_usual(0, item.prompt, completion(of, answer)) for item, answer in changed)
    assert passed <= 0.02 * len(changed)


@pytest.mark.parametrize("level", ["nano", "full"])
@pytest.mark.parametrize(
    "name", ["binary_matrix", "base_conversion", "propositional_logic", "decimal_arithmetic"]
)
def test_spellings_shown_in_prompts_are_not_odd(name: str, level: str) -> None:
    """Cells of a matrix begin with noughts."""
    of = family(name, level)
    screens, known = Screens(make_manifest(), b"key", OWN), solved(of)
    for number, (item, answer) in enumerate(known[:3]):
        text = completion(of, answer)
        screens.learn(rollout_of(HONEST[0], number, {text: 1.0}, prompt=item.prompt))
    passed = sum(screens.is_usual(0, item.prompt, completion(of, answer)) for item, answer in known)
    assert passed == len(known)


def test_features_of_an_answer_that_are_compared() -> None:
    assert set(answer_runs(b"7/2<answer> -007.50 + Ab\n\ncd </answer>")) == {
        *("zeros", ".", "number", "' '", "+", "title", "spaces", "lower", "16 characters"),
    }
    assert list(answer_runs(b"no steps <answer> </answer>")) == []
    assert set(answer_runs(b"((0")) == {"(+", "number"}
    assert list(answer_runs(b"B\t")) == ["upper"]
    assert set(answer_runs(b"--" + b"aB" * 40)) == {"-+", "mixed", "16 characters", "64 characters"}
