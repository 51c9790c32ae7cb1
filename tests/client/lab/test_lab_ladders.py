"""A swarm of table policies: pay and learning until the last epoch, and attempts to move the ladder."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean

import pytest

from sapo_client.lab.ladders.swarm import (
    AnswerBehaviour,
    CountLie,
    LadderEpoch,
    LadderPlan,
    simulate,
)

PLAN = LadderPlan(rollouts=32)
SMALL = LadderPlan(honest=7, dishonest=3, rollouts=16, epochs=10)


@cache
def played(plan: LadderPlan) -> tuple[LadderEpoch, ...]:
    return tuple(simulate(plan))


def late(plan: LadderPlan, name: str) -> float:
    """Return the mean of a figure over the last half of the epochs."""
    epochs = played(plan)
    return fmean(getattr(epoch, name) for epoch in epochs[len(epochs) // 2 :])


def test_three_honest_nodes_are_paid_in_all_sixteen_epochs_and_the_level_rises() -> None:
    follow = played(PLAN)
    assert min(epoch.points for epoch in follow) >= follow[0].points * 2 / 3
    positions = [epoch.position for epoch in follow]
    assert positions[-1] > 2
    assert all(later > earlier - 0.3 for earlier, later in pairwise(positions))
    assert late(PLAN, "mixed") > 0.35


def test_a_swarm_with_fixed_difficulty_learns_and_earns_less_and_less() -> None:
    fixed = replace(PLAN, follows=False)
    assert late(fixed, "points") < played(fixed)[0].points / 3
    assert late(fixed, "mixed") < 0.2
    assert played(PLAN)[-1].hardest > played(fixed)[-1].hardest + 0.3
    assert played(PLAN)[-1].hardest > played(PLAN)[-5].hardest


@pytest.mark.parametrize("lie", list(CountLie))
def test_one_of_four_auditors_cannot_move_the_ladder(lie: CountLie) -> None:
    assert played(replace(SMALL, liars=1, lie=lie)) == played(SMALL)


def test_two_of_four_auditors_can_keep_the_ladder_at_the_lowest_level() -> None:
    assert played(replace(SMALL, liars=2))[-1].position == 0.0


@pytest.mark.parametrize(
    "behaviour", [AnswerBehaviour.WRONG, AnswerBehaviour.HIDDEN, AnswerBehaviour.RIGHT, AnswerBehaviour.MIXED]
)
def test_three_of_ten_accounts_move_the_ladder_only_within_bounds(behaviour: AnswerBehaviour) -> None:
    attacked = replace(SMALL, behaviour=behaviour)
    assert late(attacked, "mixed") > 0.4
    assert abs(played(attacked)[-1].position - played(SMALL)[-1].position) < 0.6
    assert late(attacked, "points") > 0.9 * late(SMALL, "points")


def test_accounts_that_are_wrong_on_purpose_are_not_paid() -> None:
    assert all(
        epoch.dishonest_points == 0 for epoch in played(replace(SMALL, behaviour=AnswerBehaviour.WRONG))
    )
