"""The time estimate of `sapo lab run`, with a fake clock."""

from __future__ import annotations

from sapo_client.cli.rounds_bar import rounds_bar
from sapo_client.lab.arms import ARMS
from sapo_client.lab.plan import ExperimentPlan, Run

PLAN = ExperimentPlan("bundled", "nano", ("calendar_arithmetic",), agents=2, rounds=40)
WHOLE, NEW = (Run(PLAN, ARMS["8/0"], seed) for seed in (0, 1))


def test_rounds_of_earlier_starts_do_not_shorten_the_estimate() -> None:
    now = [0.0]
    with rounds_bar({WHOLE: 40, NEW: 0}, is_hidden=True, get_time=lambda: now[0]) as (bar, show):
        [task] = bar.tasks
        assert (task.completed, task.total) == (40, 80)
        show(WHOLE, 40)
        for rounds in (1, 2, 3):
            now[0] += 90.0
            show(NEW, rounds)
        assert (task.completed, task.fields["run"]) == (43, NEW.name)
        assert task.time_remaining == 37 * 90.0


def test_a_finished_experiment_shows_no_remaining_time() -> None:
    with rounds_bar({WHOLE: 40}, is_hidden=True) as (bar, show):
        show(WHOLE, 40)
        assert bar.finished
