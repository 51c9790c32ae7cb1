"""A swarm of table policies: pay and lessons to the end, and what some accounts and auditors can move."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean

import pytest

from sapo_client.lab.ladders.swarm import (
    Conduct,
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


def test_sixteen_epochs_of_three_honest_nodes_are_paid_to_the_end_and_climb() -> None:
    follow = played(PLAN)
    assert min(epoch.points for epoch in follow) >= follow[0].points * 2 / 3
    positions = [epoch.position for epoch in follow]
    assert positions[-1] > 2
    assert all(later > earlier - 0.3 for earlier, later in pairwise(positions))
    assert late(PLAN, "mixed") > 0.35


def test_todays_swarm_runs_out_of_lessons_and_pay() -> None:
    fixed = replace(PLAN, follows=False)
    assert late(fixed, "points") < played(fixed)[0].points / 3
    assert late(fixed, "mixed") < 0.2
    assert played(PLAN)[-1].hardest > played(fixed)[-1].hardest + 0.3
    assert played(PLAN)[-1].hardest > played(PLAN)[-5].hardest


@pytest.mark.parametrize("lie", list(CountLie))
def test_one_of_four_auditors_moves_nothing(lie: CountLie) -> None:
    assert played(replace(SMALL, liars=1, lie=lie)) == played(SMALL)


def test_two_of_four_auditors_hold_the_ladder_down() -> None:
    assert played(replace(SMALL, liars=2))[-1].position == 0.0


@pytest.mark.parametrize("conduct", [Conduct.WRONG, Conduct.HIDDEN, Conduct.RIGHT, Conduct.MIXED])
def test_three_of_ten_accounts_move_the_ladder_by_a_bounded_part(conduct: Conduct) -> None:
    moved = replace(SMALL, conduct=conduct)
    assert late(moved, "mixed") > 0.4
    assert abs(played(moved)[-1].position - played(SMALL)[-1].position) < 0.6
    assert late(moved, "points") > 0.9 * late(SMALL, "points")


def test_who_is_wrong_on_purpose_is_paid_nothing() -> None:
    assert all(epoch.dishonest_points == 0 for epoch in played(replace(SMALL, conduct=Conduct.WRONG)))
