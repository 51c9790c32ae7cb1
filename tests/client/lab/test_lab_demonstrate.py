"""Demonstrations with steps and without, with few examples."""

import json
from dataclasses import asdict, replace

import pytest

from sapo_client.lab.demonstrate import AUTHORS, DemonstrationPlan, demonstrate, main
from sapo_client.lab.held_out import HeldOut
from sapo_client.lab.ways import way
from sapo_client.lab.wide import WIDE
from sapo_verification.suites.catalogue import WORKED, family

PLAN = DemonstrationPlan(
    start="specialist-a",
    families=("calendar_arithmetic", "bf"),
    distinct=4,
    examples=(8, 16),
    batch=8,
    held_out_per_family=3,
    max_new_tokens=4,
)


def test_a_start_is_evaluated_after_every_number_of_examples() -> None:
    for author in AUTHORS:
        one, two = demonstrate(PLAN, author)
        assert [(each.author, each.examples) for each in (one, two)] == [(author, 8), (author, 16)]
        assert 0 < one.seconds < two.seconds
        for each in (one, two):
            assert each.in_range.keys() == {"calendar_arithmetic", "bf"}
            assert each.beyond.keys() == {"calendar_arithmetic"}


def test_the_same_plan_gives_the_same_curves() -> None:
    first, second = ([replace(each, seconds=0) for each in demonstrate(PLAN, "way")] for _ in range(2))
    assert first == second


def test_a_few_answers_are_learnt_by_heart() -> None:
    """The loss reaches the policy, and the evaluation reads its answers."""
    plan = replace(PLAN, families=("calendar_arithmetic",), examples=(8, 800), max_new_tokens=6)
    before, after = demonstrate(replace(plan, held_out_per_family=40, distinct=40), "bare")
    assert before.in_range["calendar_arithmetic"] == 0
    assert after.in_range["calendar_arithmetic"] > 0


def test_the_command_writes_a_line_per_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            "--start",
            "bundled",
            "--families",
            "bf",
            "--distinct",
            "2",
            "--examples",
            "4",
            "--batch",
            "4",
            "--held-out-per-family",
            "2",
            "--max-new-tokens",
            "3",
            "--authors",
            "bare,way",
        ]
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["author"], line["examples"], line["beyond"]) for line in lines] == [
        ("bare", 4, {}),
        ("way", 4, {}),
    ]


def test_items_beyond_the_range_are_solvable_and_not_in_it() -> None:
    families = [family(name, "worked") for name in WORKED]
    beyond, inside = HeldOut.beyond(families, 40), HeldOut.of(families, 300)
    assert {each.name for each, _ in beyond.items} == set(WIDE) == set(WORKED) - {"bf"}
    shared = {each.name for each, item in beyond.items if item.prompt in set(inside.prompts)}
    assert shared <= {"binary_matrix"}  # of which the range has such items too, one in six
    assert beyond == HeldOut.beyond(families, 40)
    ways = [way(each, item) for each, item in beyond.items]
    assert {each.reward for each in beyond.scored([(text or "").encode() for text in ways])} == {1.0}
    assert all(each.level == "wide" for each, _ in beyond.items)
    assert asdict(beyond.items[0][0]).keys() == asdict(families[0]).keys()
