"""Every family beyond the paper's: solvable, deterministic, and not won by constants or padding."""

import json
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from support.exploits import offer_exploits
from support.registered import registered

from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Family, Suite
from sapo_verification.jail.launch import command, environment
from sapo_verification.suites.catalogue import FAMILIES, NAMES, REASONING_GYM, family, levels
from sapo_verification.suites.families import HASH_SEED_BOUND, KINDS
from sapo_verification.suites.families.excluded import EXCLUDED
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.generators import Item, derive, solution
from sapo_verification.tasks.own_generators import OWN_GENERATORS
from sapo_verification.tasks.scorers import SCORERS, score

NIGHTLY = settings().max_examples > 1000
ITEMS = 400 if NIGHTLY else 25
EVERY = [family(name, level) for name in KINDS for level in levels(name)]
every_family = pytest.mark.parametrize("each", EVERY, ids=[f"{each.name}-{each.level}" for each in EVERY])


def place(number: int) -> int:
    """Return a seed far from the others: neighbouring ones share items."""
    return (number * 1_000_003 + 17) % 2**31


@cache
def solved(each: Family) -> tuple[tuple[Item, str | None], ...]:
    items = [derive(each, place(number)) for number in range(ITEMS)]
    return tuple((item, solution(each, item)) for item in items)


def reward(each: Family, answer: str, item: Item) -> float:
    return score(
        each, extract(each, f"<answer>{answer}</answer>".encode("utf-8", "surrogatepass")), item.entry
    )


def test_every_registered_name_is_catalogued_or_excluded_with_its_reason() -> None:
    assert set(NAMES).isdisjoint(EXCLUDED)
    theirs = registered()
    assert set(OWN_GENERATORS).isdisjoint(theirs)
    assert set(NAMES) | set(EXCLUDED) == set(theirs) | set(OWN_GENERATORS)
    assert (*FAMILIES, *sorted(KINDS)) == NAMES
    assert all(len(reason) > 20 for reason in EXCLUDED.values())
    assert {kind.scorer for kind in KINDS.values()} <= set(SCORERS)


@every_family
def test_honest_answers_get_full_reward_and_fit_their_cap(each: Family) -> None:
    chosen = KINDS[each.name].levels[each.level]
    answers = [(item, answer) for item, answer in solved(each) if answer is not None]
    right = [answer for item, answer in answers if reward(each, answer, item) == 1.0]
    short = [answer for answer in right if len(answer.encode()) <= chosen.answer_bytes]
    assert len(answers) >= 0.9 * ITEMS
    assert len(right) >= 0.98 * len(answers)  # palindrome_partitioning: some lists are too long for an answer
    assert len(short) >= 0.98 * len(answers)
    assert 2 * chosen.answer_bytes <= each.max_completion_bytes


GUESSES = (
    *("-1", "0", "1", "2", "3", "4", "5", "7", "10", "0.5", "1/2", "[]", "[0]", "0.0", "none", "None", "No"),
    *(
        "True",
        "Yes",
        "on",
        "off",
        "undetermined",
        "Pass",
        "Peng",
        "infeasible",
        "A",
        "B → A",
        "right",
        "down",
    ),
    *("0i", "i", "C", "0 + C", "x", "F", "U", "UDLR", "red", "father", "A+1", "A+4", "00:00", "1 day", "0x0"),
    *("0 0 0 0 0 0", "0 0 0 0 0 1", "R U R' U'", '["fill A"]', "{}", "[[]]", '[["a"]]', "4*6*1*1", "1.00e+0"),
)


@every_family
def test_no_constant_answer_is_right_on_half_of_the_items(each: Family) -> None:
    drawn = solved(each)
    frequent = Counter(answer for _, answer in drawn if answer is not None)
    guesses = {*GUESSES, *(answer for answer, _ in frequent.most_common(10))}
    best = max(guesses, key=lambda guess: sum(reward(each, guess, item) for item, _ in drawn))
    assert sum(reward(each, best, item) for item, _ in drawn) < 0.5 * ITEMS, best


NON_SOLVING = (
    *(
        "",
        " ",
        ".",
        "I do not know",
        "The answer is 42.",
        "nan",
        "inf",
        "-inf",
        "nanj",
        "1e999999999",
        "answer",
    ),
    *(
        "?",
        "{question}",
        "Here is my answer:",
        "<answer>",
        "x" * 500,
        "ha" * 200,
        "\\boxed{7}",
        "9" * 65,
        "_",
    ),
    *("lorem ipsum dolor sit amet", "[1, 2", '{"a": 0}', "null", "()", "--", "٣", "\ud800", "\u202e1", "#"),
)


@every_family
def test_the_best_constant_string_is_rewarded_in_less_than_one_of_a_hundred_items(each: Family) -> None:
    drawn = [item for item, _ in solved(each)]
    for text in NON_SOLVING:
        assert sum(reward(each, text, item) for item in drawn) < 0.01 * ITEMS, text


@every_family
def test_a_solution_among_other_words_is_not_rewarded(each: Family) -> None:
    drawn = [(item, answer) for item, answer in solved(each)[:12] if answer is not None]
    for item, answer in drawn:
        for text in (
            *(f"The answer is {answer}", f"{answer} or so", f"{answer}\n\n{'x' * 10}", f"({answer},)"),
            *(f"{answer}\u200b", f"{answer}\x00", f"={answer}", f"{answer}#", f"{answer} {answer} {answer}"),
        ):
            assert reward(each, text, item) == 0.0, text


@every_family
def test_the_prompt_alone_is_no_solution(each: Family) -> None:
    drawn = [item for item, _ in solved(each)]
    lines = [item.prompt.strip().rpartition("\n")[2] for item in drawn]
    assert sum(reward(each, line, item) for line, item in zip(lines, drawn, strict=True)) < 0.5 * ITEMS


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN_GENERATORS])
def test_a_data_set_set_to_a_seed_equals_one_built_with_it(name: str) -> None:
    """In reverse order, and with others in between: no item may depend on the one before."""
    each = family(name, "full")
    config = json.loads(each.config)
    del config["render"]
    seeds = [place(number) for number in range(ITEMS // 13)]
    moved = {seed: derive(each, seed).entry for seed in reversed(seeds)}
    if name in HASH_SEED_BOUND or name in ("list_functions", "decimal_arithmetic"):
        return  # checked between processes below: these depend on what derive sets around them
    for seed in seeds:
        built = create_dataset(name, seed=seed, **config)[0]
        assert moved[seed]["question"] == built["question"]
        assert str(moved[seed]["answer"]) == str(built["answer"])


DUMP = """
import json, sys
from sapo_verification.suites.catalogue import family, levels
from sapo_verification.suites.families import KINDS
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.generators import derive, solution
families = [family(name, level) for name in KINDS for level in levels(name)]
keys = [(each, seed * 48271) for each in families for seed in range(1, int(sys.argv[2]))]
order = reversed(keys) if sys.argv[1] == "back" else keys
items = {f"{each.name} {each.level} {seed}": derive(each, seed).prompt for each, seed in order}
print(json.dumps(items, sort_keys=True))
"""


def dumping(hash_seed: str, order: str) -> subprocess.Popen[bytes]:
    last_seed = "40" if NIGHTLY else "5"
    settings = environment() | {"PYTHONHASHSEED": hash_seed}
    return subprocess.Popen(
        [command("")[0], "-c", DUMP, order, last_seed], env=settings, stdout=subprocess.PIPE
    )


def test_items_are_equal_across_processes_orders_and_hash_seeds() -> None:
    running = [dumping("0", "forth"), dumping("0", "back"), dumping("1", "forth")]
    forth, back, other = (json.loads(process.communicate()[0]) for process in running)
    assert [process.returncode for process in running] == [0, 0, 0]
    assert forth == back
    differing = {key.split()[0] for key, prompt in forth.items() if other[key] != prompt}
    assert differing == HASH_SEED_BOUND


SOLVE = """
import json, sys
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.generators import derive, solution
solved = []
for each in [family(name, level) for name, level in json.loads(sys.argv[1])]:
    found = ((seed, solution(each, derive(each, seed))) for seed in range(1, 2**31, 2**27))
    solved.append(next((seed, answer) for seed, answer in found if answer is not None))
print(json.dumps(solved))
"""


async def test_no_exploit_succeeds_in_any_family(tmp_path: Path) -> None:
    """One jail for all families; a time-out, a crash or an invalid reply would raise an error."""
    offered = [each for each in EVERY if NIGHTLY or each.level == "full"]
    suite = Suite(REASONING_GYM, tuple(offered), Digest(bytes(32)))
    names = json.dumps([(each.name, each.level) for each in offered])
    python = [command("")[0], "-c", SOLVE, names]
    done = subprocess.run(python, env=environment(), capture_output=True, check=True)
    honest = {number: (seed, answer) for number, (seed, answer) in enumerate(json.loads(done.stdout))}
    await offer_exploits(suite, honest, tmp_path)
