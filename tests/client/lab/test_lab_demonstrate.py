"""Demonstrations with steps and without, with few examples."""

import json
from dataclasses import replace

import pytest

from sapo_client.lab.demonstrate import AUTHORS, DemonstrationPlan, demonstrate, main

PLAN = DemonstrationPlan(
    start="specialist-a",
    families=("calendar_arithmetic", "binary_matrix"),
    known=("fraction_simplification",),
    distinct=16,
    own_answers=8,
    steps=2,
    every=1,
    texts=8,
    held_out_per_family=3,
    max_new_tokens=30,
)


def test_a_start_is_evaluated_before_the_first_step_and_after_every_part() -> None:
    for author in AUTHORS:
        shown = list(demonstrate(PLAN, author))
        assert [(each.author, each.steps) for each in shown] == [(author, 0), (author, 1), (author, 2)]
        assert 0 == shown[0].seconds <= shown[1].seconds <= shown[2].seconds
        assert shown[0].policy == shown[0].student, "there is no student yet"
        for each in shown:
            assert each.policy.keys() == each.student.keys() == {*PLAN.families, *PLAN.known}
            valued = set() if each.honest is None else set(each.honest)
            assert valued == (set(PLAN.families) if author == "way" else set())


@pytest.mark.long
def test_the_same_plan_gives_the_same_curves() -> None:
    first, second = ([replace(each, seconds=0) for each in demonstrate(PLAN, "way")] for _ in range(2))
    assert first == second


def test_a_few_answers_are_memorised_and_known_families_are_rehearsed() -> None:
    """The loss reaches student and policy, and the evaluation reads the answers of both."""
    plan = replace(PLAN, families=("calendar_arithmetic",), steps=120, every=120, averaging=0.9)
    before, after = demonstrate(replace(plan, held_out_per_family=40, texts=16, own_answers=64), "bare")
    assert before.policy["calendar_arithmetic"] == 0
    assert after.policy["calendar_arithmetic"] > 0
    assert after.student != after.policy
    assert after.policy["fraction_simplification"] > 0.1, "nothing is left without rehearsal"


def test_steps_that_can_be_predicted_have_more_value() -> None:
    """Of the own families, whose steps the start understands."""
    plan = replace(PLAN, families=("fraction_simplification",), known=(), steps=0, max_new_tokens=60)
    (start,) = demonstrate(plan, "way")
    assert start.honest is not None
    assert start.misleading is not None
    worth, worthless = (values["fraction_simplification"] for values in (start.honest, start.misleading))
    assert worth.likelihood > 0.5
    assert worthless.likelihood < 0.2


def test_foreign_steps_depend_less_on_the_prompt_and_spliced_steps_less_on_each_other() -> None:
    plan = replace(PLAN, families=("fraction_simplification",), known=(), steps=0, max_new_tokens=60)
    (start,) = demonstrate(plan, "way")
    assert start.honest is not None
    assert start.misleading is not None
    assert start.halves is not None
    each = (start.honest, start.misleading, start.halves)
    honest, foreign, spliced = (values["fraction_simplification"] for values in each)
    nats = [[value or 0.0 for value in each.dependence] for each in (honest, foreign, spliced)]
    assert min(nats[0]) > 2.0
    assert nats[1][0] < 0.25 * nats[0][0], "the prompt says nothing about foreign steps"
    assert nats[2][1] < 0.5 * nats[0][1], "the second half does not follow from the first one"


def test_the_command_writes_a_line_per_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            *("--start", "specialist-b", "--families", "bf", "--known", "", "--distinct", "2"),
            *("--steps", "1", "--every", "1", "--texts", "4", "--held-out-per-family", "2"),
            *("--max-new-tokens", "3", "--authors", "bare,way"),
        ]
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["author"], line["steps"]) for line in lines] == [
        ("bare", 0),
        ("bare", 1),
        ("way", 0),
        ("way", 1),
    ]
