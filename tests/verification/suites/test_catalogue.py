"""The catalogue: short, solvable, deterministic items for which constants and padding are not rewarded."""

import dataclasses
import json
import subprocess
from collections import Counter
from collections.abc import Iterable

import pytest

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Family
from sapo_verification.jail.launch import SAMPLE_SEEDS, command, environment
from sapo_verification.suites.catalogue import (
    FAMILIES,
    LEVELS,
    REASONING_GYM,
    WORKED,
    SuiteMismatch,
    check_suite,
    family,
    ladder_levels,
    ladder_suite,
    ladders_of,
    levels,
    suite,
)
from sapo_verification.suites.families.paper import PAPER_STEPS
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Item, Underivable, derive, solution
from sapo_verification.tasks.scorers import score

EVERY_FAMILY = [family(name, level) for level in LEVELS for name in FAMILIES]
EVERY_FAMILY += [family(name, "worked") for name in WORKED]
EVERY_FAMILY += [family(name, level) for name in PAPER_STEPS for level in PAPER_STEPS[name]]
IDS = [f"{each.level}-{each.name}" for each in EVERY_FAMILY]
ITEMS = 150
every_family = pytest.mark.parametrize("each", EVERY_FAMILY, ids=IDS)


def items(each: Family, count: int = ITEMS) -> Iterable[Item]:
    for place in range(count):
        try:
            yield derive(each, place * 1_000_003 % 2**31)
        except Underivable:
            continue


def reward(each: Family, answer: str, item: Item) -> float:
    text = answer if each.answer == "plain" else f"Let me see.\n<answer>{answer}</answer>"
    return score(each, extract(each, text.encode("utf-8", "surrogatepass")), item.entry)


@every_family
def test_almost_every_item_has_a_solution_with_full_reward(each: Family) -> None:
    found = [(item, solution(each, item)) for item in items(each)]
    solvable = [(item, answer) for item, answer in found if answer is not None]
    assert len(solvable) >= 0.9 * ITEMS
    assert {reward(each, answer, item) for item, answer in solvable} == {1.0}


@every_family
def test_no_constant_answer_is_right_on_half_of_the_items(each: Family) -> None:
    drawn = list(items(each))
    frequent = Counter(answer for item in drawn if (answer := solution(each, item)) is not None)
    guesses = [answer for answer, _ in frequent.most_common(20)]
    guesses += [
        "0",
        "1",
        "2",
        "0.5",
        "1/2",
        "Monday",
        "5",
        "P",
        "P|Q",
        "P&Q",
        "P ∨ Q",
        "P ∨ ¬P",
        "~P>Q",
        "10/01",
    ]
    best = max(sum(reward(each, guess, item) for item in drawn) for guess in guesses)
    assert best < 0.5 * len(drawn)


@every_family
def test_a_solution_among_other_words_is_not_rewarded(each: Family) -> None:
    drawn = [(item, answer) for item in items(each, 40) if (answer := solution(each, item)) is not None]
    wide = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}
    for item, answer in drawn:
        other = drawn[0][1] if drawn[0][1] != answer else drawn[-1][1] + "7"
        for text in (
            *(f"The answer is {answer}", f"{answer} or {other}", f"{answer} {other}", f"[{answer}, {other}]"),
            *(
                f"{answer}\n\n{'x' * 10}",
                f"{answer}\u200b",
                f"{answer}\x00",
                f"\u202e{answer}",
                f"({answer},)",
            ),
            *(f'"{answer}"', f"{answer}.", f"={answer}", f"{answer}#", "", " ", "nan", "inf", "None", "{}"),
            *(answer[:-1], "9" * 65, "1e999999999", "P ∨ ¬P", "True", "\ud800"),
        ):
            assert reward(each, text, item) == 0.0 or is_a_solution_too(each, text, answer), text
        if (widened := answer.translate(wide)) != answer:
            assert reward(each, widened, item) == 0.0


def is_a_solution_too(each: Family, text: str, answer: str) -> bool:
    """Whether a near miss is right: within the tolerance, another conclusion, a missing dollar sign."""
    if each.name == "fraction_simplification":
        return f"{text}$" == answer
    if each.name == "decimal_arithmetic":
        return abs(float(text) - float(answer)) <= 0.1001
    return each.name == "propositional_logic" and text in (answer[:-1], f"({answer})")


@every_family
def test_repeating_the_question_is_right_on_less_than_half_of_the_items(each: Family) -> None:
    """Some matrices are their own solution: every 1 next to a 0."""
    drawn = list(items(each))
    assert sum(reward(each, data_of(item.prompt), item) for item in drawn) < 0.5 * len(drawn)


def data_of(prompt: str) -> str:
    return prompt.strip().rpartition("below:\n")[2]


@pytest.mark.parametrize("name", FAMILIES)
def test_nano_prompts_are_short(name: str) -> None:
    assert max(len(item.prompt) for item in items(family(name, "nano"))) <= 64


@every_family
def test_completions_of_a_solution_fit_their_cap(each: Family) -> None:
    for item in items(each):
        answer = solution(each, item)
        assert answer is None or len(answer.encode()) <= each.max_completion_bytes // 2


LEVELLED = ("bf", "arc_1d", "basic_arithmetic", "decimal_arithmetic", "spell_backward")


def test_an_unknown_level_names_the_available_ones() -> None:
    assert {name: levels(name) for name in LEVELLED} == {
        "bf": ("nano", "worked", "full"),
        "arc_1d": ("nano", "full"),
        "basic_arithmetic": ("nano", "nano-2", "nano-3", "worked", "full"),
        "decimal_arithmetic": ("nano", "nano-2", "nano-3", "full"),
        "spell_backward": ("easy", "full"),
    }
    with pytest.raises(LocalProtocolError, match="nano, full"):
        family("arc_1d", "worked")


@pytest.mark.parametrize("name", PAPER_STEPS)
def test_steps_have_short_prompts_and_plain_answers_as_well(name: str) -> None:
    assert ladder_levels(name, "nano") == ("nano", *PAPER_STEPS[name]) == ("nano", "nano-2", "nano-3")
    for level in PAPER_STEPS[name]:
        assert max(len(item.prompt) for item in items(family(name, level))) <= 64


def test_a_suite_with_ladders_has_all_families_at_the_lowest_level_first() -> None:
    suite = ladder_suite("nano", ("basic_arithmetic", "bf", "binary_matrix"))
    assert [(each.name, each.level) for each in suite.families] == [
        ("basic_arithmetic", "nano"),
        ("bf", "nano"),
        ("binary_matrix", "nano"),
        ("basic_arithmetic", "nano-2"),
        ("basic_arithmetic", "nano-3"),
        ("binary_matrix", "nano-2"),
        ("binary_matrix", "nano-3"),
    ]
    assert ladders_of(suite) == ((0, 3, 4), (2, 5, 6))
    check_suite(suite)
    assert [each.level for each in ladder_suite("easy", ("chain_sum",)).families] == ["easy", "full"]


@pytest.mark.parametrize("name", WORKED)
def test_worked_prompts_are_nearly_as_short_and_answers_follow_free_text(name: str) -> None:
    chosen = family(name, "worked")
    assert (chosen.level, chosen.answer) == ("worked", "tag")
    assert max(len(item.prompt) for item in items(chosen)) <= 64
    item = next(item for item in items(chosen) if solution(chosen, item) is not None)
    answer = solution(chosen, item)
    assert [
        score(chosen, extract(chosen, text.encode()), item.entry)
        for text in (f"a step, <answer>{answer}</answer>", f"<answer>{answer}</answer>", f"a step, {answer}")
    ] == [1.0, 1.0, 0.0]


DUMP = """
import json, sys
from sapo_verification.suites.catalogue import FAMILIES, LEVELS, WORKED, family
from sapo_verification.suites.families.paper import PAPER_STEPS
from sapo_verification.tasks.generators import derive, solution
families = [family(name, level) for level in LEVELS for name in FAMILIES]
families += [family(name, "worked") for name in WORKED]
families += [family(name, level) for name in PAPER_STEPS for level in PAPER_STEPS[name]]
items = [(each, derive(each, seed * 48271)) for each in families for seed in range(1, 21)]
print(json.dumps([(item.prompt, solution(each, item)) for each, item in items]))
"""


def test_items_are_equal_across_processes_and_hash_seeds() -> None:
    dumps = []
    for hash_seed in ("0", "1"):
        python = command("")[0]
        settings = environment() | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run([python, "-c", DUMP], env=settings, capture_output=True, check=True)
        dumps.append(json.loads(done.stdout))
    here = [
        [item.prompt, solution(each, item)]
        for each in EVERY_FAMILY
        for item in (derive(each, seed * 48271) for seed in range(1, 21))
    ]
    assert dumps[0] == dumps[1] == here


def test_a_suite_pins_what_its_items_depend_on() -> None:
    nano = suite("nano")
    assert nano.reasoning_gym == REASONING_GYM
    assert [each.name for each in nano.families] == list(FAMILIES)
    assert nano == suite("nano", list(FAMILIES))
    assert len({nano.sample_digest, suite("full").sample_digest, suite("nano", ["bf"]).sample_digest}) == 3
    check_suite(nano)


def test_a_suite_of_other_items_is_refused_with_a_hint() -> None:
    good = suite("nano", ["base_conversion"])
    (only,) = good.families
    other_release = dataclasses.replace(good, reasoning_gym="0.1.19")
    other_items = dataclasses.replace(good, sample_digest=Digest(bytes(32)))
    banned = dataclasses.replace(good, families=(dataclasses.replace(only, name="knight_swap"),))
    strange_setting = dataclasses.replace(
        good, families=(dataclasses.replace(only, config='{"data_file":"key"}'),)
    )
    unknown_scorer = dataclasses.replace(good, families=(dataclasses.replace(only, scorer="eval/1"),))
    for wanted in (other_release, other_items, banned, unknown_scorer, strange_setting):
        with pytest.raises(SuiteMismatch) as caught:
            check_suite(wanted)
        assert caught.value.hint


def test_unknown_families_are_named() -> None:
    for name, level in (("n_queens", "nano"), ("bf", "huge"), ("syllogism", "full")):
        with pytest.raises(LocalProtocolError, match="choose from"):
            family(name, level)


def test_a_seed_out_of_range_has_no_item() -> None:
    assert len(set(SAMPLE_SEEDS)) == len(SAMPLE_SEEDS)
    for seed in (-1, 2**31):
        with pytest.raises(Underivable):
            derive(family("bf", "nano"), seed)
