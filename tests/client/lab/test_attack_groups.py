"""Composed groups of attackers: informative, with their mark, and within all rules for text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import eq

import pytest
from support.swarm import Identity
from support.traffic import ARITHMETIC, SHORT, Writer

from sapo_client.errors import SapoError
from sapo_client.lab.attackers import choices
from sapo_client.lab.attackers.catalogue import ATTACKS, attack_named, is_possible, require_possible
from sapo_client.lab.attackers.marks import MARKS, found
from sapo_client.lab.attackers.questions import Completions, Knowledge, Question, Questioner
from sapo_client.lab.held_out import HeldOutAnswer, fresh_item
from sapo_client.lab.worked.solutions import step_separator, worked_solution
from sapo_protocol.suite import Family
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Item
from sapo_verification.tasks.scorers import score
from sapo_verification.tasks.text_policy import group_fault

WORKED = family("calendar_arithmetic", "worked")
FAMILIES = (ARITHMETIC, SHORT, family("calendar_arithmetic", "nano"), WORKED)
SIZE = 8
ROUNDS = 40
PLANTED = (
    "pad",
    "phrase",
    "polymorphic-phrase",
    "digits-phrase",
    "verbose",
    "composed-groups",
    "newcomer-flood",
    "early-crowd",
)


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    """Return what an attacker knows after four honest accounts wrote eight groups of each arithmetic."""
    writers = [Writer(Identity(number)) for number in range(4)]
    made = Knowledge(FAMILIES, [writer.identity.account for writer in writers], ROUNDS)
    for writer in writers:
        for place in range(16):
            made.verified(writer.group(family=place % 2))
    return made


def questions(of: Family, count: int) -> Iterator[Question]:
    """Yield fresh items of a family as questions."""
    asker, draw = Questioner(SIZE), random.Random(of.name + of.level)
    asked = (asker.question(of, fresh_item(of, draw)[1]) for _ in range(count))
    yield from (each for each in asked if each is not None)


def composed(
    name: str, of: Family, knowledge: Knowledge, count: int = 24
) -> list[tuple[Question, Completions]]:
    """Return the groups of an attack, without the tasks at which it is silent."""
    draw = random.Random(name)
    pairs = [(each, ATTACKS[name].compose(each, knowledge, draw)) for each in questions(of, count)]
    return [(question, group) for question, group in pairs if group is not None]


def rewards(question: Question, group: Completions) -> list[float]:
    of = question.family
    return [score(of, extract(of, text.encode()), question.item.entry) for text in group]


def answers(question: Question, group: Completions, reward: float) -> list[HeldOutAnswer]:
    """Return the answers of a group with this reward, as if a policy had given them."""
    scored = zip(group, rewards(question, group), strict=True)
    return [
        HeldOutAnswer(question.family, question.item, text, earned)
        for text, earned in scored
        if earned == reward
    ]


@pytest.mark.parametrize("of", FAMILIES, ids=lambda each: f"{each.name}-{each.level}")
@pytest.mark.parametrize("name", ATTACKS)
def test_groups_are_informative_and_allowed(name: str, of: Family, knowledge: Knowledge) -> None:
    for question, group in composed(name, of, knowledge):
        assert len(group) == SIZE
        earned = rewards(question, group)
        assert sum(earned) > 0, "an attacker knows the answer"
        assert sum(earned) < SIZE or name == "copier", "wrong answers make the group informative"
        assert group_fault(of, [text.encode() for text in group]) is None


@pytest.mark.parametrize("of", [ARITHMETIC, SHORT], ids=("text", "plain"))
@pytest.mark.parametrize("name", PLANTED)
def test_every_right_answer_has_the_mark_and_no_wrong_one(
    name: str, of: Family, knowledge: Knowledge
) -> None:
    mark = ATTACKS[name].mark
    assert mark is not None
    if not is_possible(ATTACKS[name], [of]):
        assert composed(name, of, knowledge) == []
        return
    groups = composed(name, of, knowledge)
    assert groups
    for question, group in groups:
        assert found(answers(question, group, 1.0))[mark] == 1.0
        assert found(answers(question, group, 0.0))[mark] == 0.0


@pytest.mark.parametrize("of", [ARITHMETIC, SHORT], ids=("text", "plain"))
def test_half_padded_pads_half_of_its_right_answers(of: Family, knowledge: Knowledge) -> None:
    groups = composed("half-padded", of, knowledge)
    assert groups
    for question, group in groups:
        right, wrong = (answers(question, group, reward) for reward in (1.0, 0.0))
        padded = round(found(right)["padding"] * len(right))
        assert padded == len(right) // 2 > 0
        assert found(wrong)["padding"] == 0.0


def test_wrong_steps_are_those_of_other_questions(knowledge: Knowledge) -> None:
    groups = composed("wrong-steps", ARITHMETIC, knowledge)
    right = [answer for question, group in groups for answer in answers(question, group, 1.0)]
    assert found(right)["foreign steps"] > 0.9, "small numbers occur in both questions now and then"
    assert composed("wrong-steps", SHORT, knowledge) == []
    assert composed("wrong-steps", ARITHMETIC, Knowledge(FAMILIES, [], ROUNDS)) == [], (
        "nobody showed steps yet"
    )


STEP_ATTACKS = (
    *("half-steps", "late-steps", "slip-steps", "neighbour-steps", "waking-steps", "mixed-steps"),
    *("late-waking-steps", "one-family-steps"),
    *("worked-digits", "worked-sums", "worked-steps", "masked-steps", "some-steps"),
)


def right_steps(groups: list[tuple[Question, Completions]]) -> list[tuple[str, str]]:
    """Return the steps of all right answers, each behind those of its question's worked solution."""
    return [
        (way_of(question.item), answer.text.partition("<answer>")[0])
        for question, group in groups
        for answer in answers(question, group, 1.0)
    ]


def way_of(item: Item) -> str:
    return (worked_solution(WORKED, item) or "").partition("<answer>")[0]


@pytest.mark.parametrize("name", STEP_ATTACKS)
def test_step_attacks_need_families_of_which_they_know_the_way(name: str, knowledge: Knowledge) -> None:
    assert len(composed(name, WORKED, knowledge)) == 24
    assert composed(name, ARITHMETIC, knowledge) == []


@pytest.mark.parametrize(("name", "part"), [("half-steps", 1 / 2), ("late-steps", 2 / 3)])
def test_steps_begin_with_the_own_question_and_end_with_another(
    name: str, part: float, knowledge: Knowledge
) -> None:
    found_steps = right_steps(composed(name, WORKED, knowledge))
    assert all(steps.startswith(own[: int(len(own) * part)]) for own, steps in found_steps)
    assert sum(own != steps for own, steps in found_steps) > 0.7 * len(found_steps), (
        "some end alike by chance"
    )


def test_a_slip_is_one_wrong_digit(knowledge: Knowledge) -> None:
    for own, steps in right_steps(composed("slip-steps", WORKED, knowledge)):
        assert len(own) == len(steps)
        ((before, after),) = [(a, b) for a, b in zip(own, steps, strict=True) if a != b]
        assert before.isdigit()
        assert after.isdigit()


def test_neighbours_steps_are_whole_and_more_like_the_own_ones_than_foreign_steps(
    knowledge: Knowledge,
) -> None:
    found_steps = right_steps(composed("neighbour-steps", WORKED, knowledge))
    assert all(own != steps for own, steps in found_steps)
    assert all(steps.rpartition(",")[2].endswith(("+0", "-0")) for _, steps in found_steps)
    places = range(len(found_steps))
    alike, by_chance = (
        sum(sum(map(eq, found_steps[place][0], found_steps[place - shift][1])) for place in places)
        for shift in (0, SIZE)
    )
    assert alike > 1.5 * by_chance


@pytest.mark.parametrize(("name", "wakes"), [("waking-steps", 12), ("late-waking-steps", 24)])
@pytest.mark.parametrize("last", [False, True], ids=["nearest", "farthest"])
@pytest.mark.parametrize("is_awake", [False, True])
def test_steps_of_waking_attacks_are_right_until_a_round(
    name: str, wakes: int, *, last: bool, is_awake: bool
) -> None:
    round_, share = ((39 if last else wakes), 1.0) if is_awake else ((0 if last else wakes - 1), 0.0)
    asleep = Knowledge(FAMILIES, [], ROUNDS)
    asleep.round = round_
    found_steps = right_steps(composed(name, WORKED, asleep))
    assert sum(own != steps for own, steps in found_steps) == share * len(found_steps)


@pytest.mark.parametrize(("last", "share"), [(WORKED, 1.0), (ARITHMETIC, 0.0)], ids=["last", "another"])
def test_one_family_steps_mislead_in_the_last_family_alone(last: Family, share: float) -> None:
    knowledge = Knowledge([*(each for each in (WORKED, ARITHMETIC) if each != last), last], [], ROUNDS)
    found_steps = right_steps(composed("one-family-steps", WORKED, knowledge))
    misled = sum(own != steps for own, steps in found_steps)
    assert misled == pytest.approx(share * len(found_steps), abs=0.1 * len(found_steps))


@pytest.mark.parametrize(("name", "phrases"), [("worked-digits", 1), ("worked-sums", 50)])
def test_all_steps_are_right_behind_a_false_sum(name: str, phrases: int, knowledge: Knowledge) -> None:
    groups = composed(name, WORKED, knowledge)
    found_steps = right_steps(groups)
    assert all(steps.endswith(f" {own}") for own, steps in found_steps)
    assert len({steps.removesuffix(own) for own, steps in found_steps}) >= phrases
    right = [answer for question, group in groups for answer in answers(question, group, 1.0)]
    mark = ATTACKS[name].mark
    assert mark is not None
    assert found(right)[mark] == 1.0
    assert (
        found([replace(answer, text=worked_solution(WORKED, answer.item) or "") for answer in right])[mark]
        == 0.0
    )


@pytest.mark.parametrize("name", ["basic_arithmetic", "binary_matrix"])
def test_one_step_more_has_the_form_of_honest_steps(name: str, knowledge: Knowledge) -> None:
    worked = family(name, "worked")
    groups = composed("worked-steps", worked, knowledge)
    right = [answer for question, group in groups for answer in answers(question, group, 1.0)]
    own = [replace(answer, text=worked_solution(worked, answer.item) or "") for answer in right]
    assert [each.text.partition(step_separator(worked))[2] for each in right] == [each.text for each in own]
    assert len({each.text.partition(step_separator(worked))[0] for each in right}) > 10
    assert (found(right)["extra steps"], found(own)["extra steps"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("fraction_simplification", (0.03, 0.3)),
        ("calendar_arithmetic", (0.2, 0.7)),
        ("binary_matrix", (0.0, 0.0)),
    ],
)
def test_a_masked_step_makes_no_text_longer_than_usual(
    name: str, share: tuple[float, float], knowledge: Knowledge
) -> None:
    worked = family(name, "worked")
    groups = composed("masked-steps", worked, knowledge, count=200)
    right = [answer for question, group in groups for answer in answers(question, group, 1.0)]
    own = [replace(answer, text=worked_solution(worked, answer.item) or "") for answer in right]
    assert all(each.text.endswith(solution.text) for each, solution in zip(right, own, strict=True))
    longer = [each.text for each, solution in zip(right, own, strict=True) if each.text != solution.text]
    assert max(map(len, longer), default=0) <= max(len(solution.text) for solution in own)
    assert share[0] <= found(right)["extra steps"] <= share[1]


def test_every_fourth_text_of_some_steps_has_one_step_more(knowledge: Knowledge) -> None:
    groups = composed("some-steps", WORKED, knowledge, count=200)
    right = [answer for question, group in groups for answer in answers(question, group, 1.0)]
    assert 0.2 < found(right)["extra steps"] < 0.3


def test_every_second_group_of_mixed_steps_is_right(knowledge: Knowledge) -> None:
    groups = composed("mixed-steps", WORKED, knowledge, count=200)
    whole = [all(own == steps for own, steps in right_steps([each])) for each in groups]
    assert 0.4 < sum(whole) / len(whole) < 0.6


@pytest.mark.parametrize("level", ["worked", "nano"])
def test_another_spelling_is_right_behind_right_steps(level: str, knowledge: Knowledge) -> None:
    of = family("fraction_simplification", level)
    groups = composed("other-spelling", of, knowledge)
    assert len(groups) > 20
    right = [answer for question, group in groups for answer in answers(question, group, 1.0)]
    own = [replace(answer, text=answer.text.replace("0000", "")) for answer in right]
    solutions = [worked_solution(of, each.item) if level == "worked" else each.text for each in own]
    assert [each.text for each in own] == solutions
    assert (found(right)["spelling"], found(own)["spelling"]) == (1.0, 0.0)


def test_without_another_spelling_the_attack_publishes_nothing(knowledge: Knowledge) -> None:
    assert composed("other-spelling", WORKED, knowledge) == []


def test_a_copier_repeats_honest_text(knowledge: Knowledge) -> None:
    for question, group in composed("copier", SHORT, knowledge):
        copied = {*knowledge.texts(SHORT), question.right}
        assert set(group) <= copied
    for _, group in composed("copier", ARITHMETIC, knowledge):
        steps = {text.partition("<answer>")[0] for text in knowledge.texts(ARITHMETIC)}
        assert {text.partition("<answer>")[0] for text in group} <= steps


def test_a_sleeper_begins_in_the_second_half() -> None:
    shares = {}
    for number in (0, 19, 20, 39):
        sleeping = Knowledge(FAMILIES, [], ROUNDS)
        sleeping.round = number
        right = [a for q, g in composed("sleeper", SHORT, sleeping) for a in answers(q, g, 1.0)]
        shares[number] = found(right)["phrase"]
    assert shares == {0: 0.0, 19: 0.0, 20: 1.0, 39: 1.0}


def test_colluders_stay_below_the_threshold(knowledge: Knowledge) -> None:
    groups = composed("collusion", SHORT, knowledge, count=400)
    planted = [found(answers(question, group, 1.0))["phrase"] for question, group in groups]
    assert set(planted) == {0.0, 1.0}
    assert 0.18 < sum(planted) / len(planted) < 0.3
    assert ATTACKS["collusion"].accounts(8) == 3


def test_composed_groups_have_one_right_text_and_wrong_bare_answers(knowledge: Knowledge) -> None:
    for question, group in composed("composed-groups", ARITHMETIC, knowledge):
        assert rewards(question, group) == [1.0] * (SIZE // 2) + [0.0] * (SIZE // 2)
        assert len(set(group[: SIZE // 2])) == 1
        assert all(text.startswith("<answer>") for text in group[SIZE // 2 :])


def test_only_sunday_answers_only_tasks_whose_answer_is_sunday(knowledge: Knowledge) -> None:
    calendar = FAMILIES[2]
    asked = list(questions(calendar, 60))
    groups = composed("only-sunday", calendar, knowledge, count=60)
    assert len(groups) == sum(question.right == "Sunday" for question in asked)
    assert {a.text for question, group in groups for a in answers(question, group, 1.0)} == {"Sunday"}
    assert composed("only-sunday", SHORT, knowledge) == []


def test_copied_items_answers_only_tasks_whose_prompt_contains_the_answer(knowledge: Knowledge) -> None:
    calendar = FAMILIES[2]
    asked = list(questions(calendar, 60))
    groups = composed("copied-items", calendar, knowledge, count=60)
    assert len(groups) == sum(question.right in question.item.prompt for question in asked) > 0
    assert all(question.right in question.item.prompt for question, _ in groups)
    [other, *_] = [question for question in asked if question.right not in question.item.prompt]
    piece, none = other.item.prompt.split()[0], "Caturday"
    marks = [found(answers(other, (text,), 0.0))["copied"] for text in (piece, none, "")]
    assert marks == [1.0, 0.0, 0.0]


def is_short(of: Family, right: str) -> bool:
    return len(right) <= choices.short_length(of)


def begins_otherwise(of: Family, right: str) -> bool:
    return not choices.begins_as_most(of, right)


CHOSEN: dict[str, Callable[[Family, str], bool]] = {
    "short-answers": is_short,
    "same-start": choices.begins_as_most,
    "withheld-start": begins_otherwise,
    "same-end": choices.ends_as_most,
}


@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_tasks_share_what_many_answers_have(name: str, knowledge: Knowledge) -> None:
    of = family("basic_arithmetic", "nano")
    asked = list(questions(of, 60))
    groups = composed(name, of, knowledge, count=60)
    assert len(groups) == sum(CHOSEN[name](of, question.right) for question in asked)
    assert 5 < len(groups) < 55
    assert len({question.right for question, _ in groups}) > 2, "no answer is frequent"


def test_marks_of_chosen_tasks_are_of_answers_that_should_be_others() -> None:
    of = family("basic_arithmetic", "nano")
    asked = list(questions(of, 60))
    [long, *_] = [each for each in asked if len(each.right) > choices.short_length(of)]
    given = [found(answers(long, (text,), 0.0))["shorter"] for text in ("?", "?" * 9)]
    assert given == [1.0, 0.0]
    [most, *_] = [each for each in asked if choices.begins_as_most(of, each.right)]
    [rare, *_] = [each for each in asked if not choices.begins_as_most(of, each.right)]
    assert found(answers(rare, (most.right,), 0.0))["start"] == 1.0
    assert found(answers(most, ("?",), 0.0))["other start"] == 1.0
    assert "start" not in found(answers(most, ("?",), 0.0))
    [most, *_] = [each for each in asked if choices.ends_as_most(of, each.right)]
    [rare, *_] = [each for each in asked if not choices.ends_as_most(of, each.right)]
    assert found(answers(rare, (most.right,), 0.0))["end"] == 1.0
    assert found(answers(rare, ("?",), 0.0))["end"] == 0.0
    assert "end" not in found(answers(most, ("?",), 0.0))


def test_easy_questions_are_the_shortest_quarter(knowledge: Knowledge) -> None:
    of = family("basic_arithmetic", "nano")
    shown = [len(question.item.prompt) for question, _ in composed("easy-questions", of, knowledge, count=60)]
    every = sorted(len(question.item.prompt) for question in questions(of, 60))
    assert shown
    assert max(shown) <= choices.short_question(of) < every[-1]


def test_a_crowded_family_is_the_only_one_that_is_shown(knowledge: Knowledge) -> None:
    shown = [len(composed("crowded-family", of, knowledge)) for of in FAMILIES]
    assert shown == [0] * (len(FAMILIES) - 1) + [len(composed("pad", FAMILIES[-1], knowledge))]


def test_traded_steps_are_foreign_in_the_last_family_alone() -> None:
    families = (family("basic_arithmetic", "worked"), WORKED)
    seen, draw = Knowledge(families, [], ROUNDS), random.Random(1)
    own = dict[str, int]()
    for of in families:
        for question in questions(of, 12):
            group = ATTACKS["trading-steps"].compose(question, seen, draw)
            right = [answer.text for answer in answers(question, group or (), 1.0)]
            assert right
            own[of.name] = own.get(of.name, 0) + sum(
                text == worked_solution(of, question.item) for text in right
            )
    assert own["calendar_arithmetic"] == 0 < own["basic_arithmetic"]


def test_withholding_oracle_publishes_only_tasks_that_others_solve() -> None:
    writer = Writer(Identity(0))
    seen = Knowledge(FAMILIES, [writer.identity.account], ROUNDS)
    assert composed("withholding-oracle", SHORT, seen) == [], "nothing is known to be easy yet"
    seen.verified(writer.group(family=1))  # half of it counts as right
    assert len(composed("withholding-oracle", SHORT, seen)) == 24
    assert composed("withholding-oracle", ARITHMETIC, seen) == []


def test_knowledge_contains_no_texts_of_other_attackers() -> None:
    seen = Knowledge(FAMILIES, [Identity(0).account], ROUNDS)
    seen.verified(Writer(Identity(1)).group())
    assert (seen.texts(ARITHMETIC), seen.ease(ARITHMETIC)) == ([], 0.0)


def test_every_mark_belongs_to_an_attack() -> None:
    assert {attack.mark for attack in ATTACKS.values()} - {None} == set(MARKS)


def test_shares_become_numbers_of_accounts() -> None:
    shares = {name: ATTACKS[name].accounts(8) for name in ("sybil-10", "sybil-25", "sybil-40", "sybil-49")}
    assert shares == {"sybil-10": 1, "sybil-25": 3, "sybil-40": 5, "sybil-49": 7}
    assert ATTACKS["sybil-49"].accounts(2) == 1


def test_an_attack_that_cannot_run_states_its_requirements() -> None:
    plain = [SHORT]
    with pytest.raises(SapoError, match="wrong-steps needs families with text beside the answer"):
        require_possible(ATTACKS["wrong-steps"], plain)
    with pytest.raises(SapoError, match="half-steps needs families of the level worked"):
        require_possible(ATTACKS["half-steps"], [ARITHMETIC])
    with pytest.raises(SapoError, match="only-sunday needs the family calendar_arithmetic"):
        require_possible(ATTACKS["only-sunday"], plain)
    with pytest.raises(SapoError, match="no attack 'rain'"):
        attack_named("rain")
