"""Worked solutions: right under the real scorer, true in every step, and short enough for a small policy."""

import random
import re
from itertools import pairwise

import pytest

from sapo_client.lab.held_out import fresh_item, reward
from sapo_client.lab.pretrain import KIND_A, KIND_B
from sapo_client.lab.worked.solutions import DAYS, WORKED_SOLUTIONS, bare, worked_solution
from sapo_verification.suites.catalogue import WORKED, family
from sapo_verification.tasks.generators import Item, derive, solution

ITEMS = 200


def items(name: str, count: int = ITEMS) -> list[Item]:
    chosen, draw = family(name, "worked"), random.Random(name)
    return [fresh_item(chosen, draw)[1] for _ in range(count)]


def test_every_family_of_the_level_has_a_worked_solution_and_one_kind_of_specialist() -> None:
    assert sorted(WORKED_SOLUTIONS) == sorted(WORKED) == sorted([*KIND_A, *KIND_B])


@pytest.mark.parametrize("name", WORKED)
def test_worked_solutions_and_bare_answers_get_reward_one(name: str) -> None:
    chosen = family(name, "worked")
    solved = [item for item in items(name) if solution(chosen, item) is not None]
    assert len(solved) > 0.9 * ITEMS
    for item in solved:
        for text in (worked_solution(chosen, item), bare(chosen, item)):
            assert text is not None
            assert reward(chosen, item, text) == 1.0
            assert len(text.encode()) <= chosen.max_completion_bytes // 2


@pytest.mark.parametrize("name", WORKED)
def test_equal_items_have_equal_worked_solutions(name: str) -> None:
    chosen = family(name, "worked")
    assert worked_solution(chosen, derive(chosen, 7)) == worked_solution(chosen, derive(chosen, 7))


def test_an_item_without_solution_has_no_worked_solution() -> None:
    chosen = family("propositional_logic", "worked")
    unsolved = [item for item in items("propositional_logic", 600) if solution(chosen, item) is None]
    assert unsolved
    assert {worked_solution(chosen, item) for item in unsolved} == {bare(chosen, unsolved[0])} == {None}


def steps(name: str) -> list[tuple[Item, list[str], str]]:
    """Return items with the steps of their ways and their answers."""
    chosen, found = family(name, "worked"), []
    for item in items(name):
        if (text := worked_solution(chosen, item)) is not None:
            before, _, answer = text.removesuffix("</answer>").partition("<answer>")
            found.append((item, before.split(","), answer))
    return found


def test_steps_of_sums_add_columns_and_give_the_digits_of_the_sum() -> None:
    for _, columns, answer in steps("basic_arithmetic"):
        totals = [column.partition(":") for column in columns]
        assert all(sum(map(int, left.split("+"))) == int(total) for left, _, total in totals)
        digits = "".join(total[-1] for _, _, total in reversed(totals))
        carried = "1" if len(totals[-1][2]) == 2 else ""
        assert int(carried + digits) == int(answer)


def test_a_fraction_keeps_its_value_and_ends_as_the_answer() -> None:
    for item, divided, answer in steps("fraction_simplification"):
        above, below = map(int, item.prompt.split("/"))
        for prime, _, fraction in (step.partition(":") for step in divided):
            left, right = map(int, fraction.split("/"))
            assert (left * int(prime), right * int(prime)) == (above, below)
            above, below = left, right
        assert answer == f"{above}/{below}"


def test_remainders_by_seven_are_right_and_days_follow_each_other() -> None:
    for item, parts, answer in steps("calendar_arithmetic"):
        day, sign, offset = re.split(r" ?([-+])", item.prompt.strip())
        digits = max(1, len(offset) - 1)
        remainders, moves = parts[:digits], parts[digits:]
        assert all(int(value) % 7 == int(left) for value, left in (part.split(":") for part in remainders))
        assert [moves[0], moves[-1]] == [f"{day}{sign}{int(offset) % 7}", f"{answer}{sign}0"]
        walk = [DAYS.index(move[:-2]) for move in moves]
        assert all((two - one) % 7 == (1 if sign == "+" else 6) for one, two in pairwise(walk))


def test_the_last_truth_table_is_the_answers() -> None:
    """Tables are over P, Q = 11, 10, 01, 00."""
    values = [{"P": p, "Q": q} for p in (True, False) for q in (True, False)]
    for _, tables, answer in steps("propositional_logic"):
        spelled = answer.replace("~", " not ").replace(">", "<=").replace("=", "==").replace("<==", "<=")
        spelled = re.sub(r"not ([PQ])", r"(not \1)", spelled).replace("&", " and ").replace("|", " or ")
        expected = "".join(str(int(eval(spelled, {}, row))) for row in values)
        assert tables[-1][-4:] == expected


def test_rows_of_a_matrix_are_measured_by_themselves() -> None:
    found = {item.prompt.strip(): parts for item, parts, _ in steps("binary_matrix")}
    assert all(len(parts) == 1 for parts in found.values())
    rows = {
        pair
        for prompt, (part,) in found.items()
        for pair in zip(prompt.split("/"), part.split("/"), strict=True)
    }
    assert {("1111", "9999"), ("0111", "0123"), ("1101", "2101")} <= rows
    assert len({row for row, _ in rows}) == len(rows)  # a function of the row alone


def test_codes_of_characters_are_right() -> None:
    for _, characters, answer in steps("bf"):
        assert "".join(chr(int(character[:-1])) for character in characters) == answer
        assert all(chr(int(character[:-1])) == character[-1] for character in characters)
