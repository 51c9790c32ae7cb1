"""A learner that is taught by honest accounts and by attackers, with few steps."""

import json
from dataclasses import replace

import pytest

from sapo_client.errors import SapoError
from sapo_client.lab.attackers.taught import TeachingPlan, main, teach

PLAN = TeachingPlan(
    attack="wrong-steps",
    honest=4,
    attackers=3,
    families=("binary_matrix", "calendar_arithmetic"),
    texts=4,
    rounds=3,
    steps=1,
    every=2,
    held_out_per_family=3,
    max_new_tokens=20,
)


def test_all_accounts_teach_and_the_policy_is_evaluated_every_so_many_rounds() -> None:
    taught = list(teach(PLAN))
    assert [(each.round, each.steps) for each in taught] == [(2, 2), (3, 3)]
    assert [(each.honest_used, each.attackers_used) for each in taught] == [(32, 24), (48, 36)]
    assert all(each.policy.keys() == set(PLAN.families) for each in taught)
    assert taught == [replace(each, seconds=taught[n].seconds) for n, each in enumerate(teach(PLAN))]


def test_without_an_attack_there_are_no_attackers() -> None:
    (last,) = teach(replace(PLAN, attack="", rounds=1))
    assert (last.honest_used, last.attackers_used, last.attackers_set_aside) == (16, 0, 0)


def test_accounts_are_set_aside_by_a_policy_that_knows_the_families_and_not_if_it_does_not_judge() -> None:
    """The start's own families: whose steps do not lead to the answer is plain from the first round on."""
    plan = replace(
        PLAN,
        attack="neighbour-steps",
        families=("basic_arithmetic", "fraction_simplification"),
        texts=24,
        rounds=4,
        every=4,
    )
    (judged,) = teach(plan)
    assert (judged.honest_set_aside, judged.attackers_set_aside) == (0, 6)
    assert judged.attackers_used < 0.8 * 3 / 4 * judged.honest_used
    (believed,) = teach(replace(plan, judged=0))
    assert (believed.honest_set_aside, believed.attackers_set_aside) == (0, 0)
    assert believed.attackers_used == 3 / 4 * believed.honest_used


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(SapoError, match="no attack 'rain'"):
        teach(replace(PLAN, attack="rain"))


def test_the_command_writes_a_line_per_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            *("--attack", "slip-steps", "--honest", "1", "--attackers", "1", "--families", "binary_matrix"),
            *("--texts", "2", "--rounds", "1", "--steps", "1", "--held-out-per-family", "2"),
            *("--max-new-tokens", "3"),
        ]
    )
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["round"] == 1
