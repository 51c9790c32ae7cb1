"""A node that sends more than its budget has fewer neighbours, and gets them back."""

from __future__ import annotations

from sapo_client.swarm.upload_budget import UploadBudget

BYTES_PER_NEIGHBOUR = 50_000
"""Of a node with 0.4 Mbit/s for each neighbour: a budget of 2 Mbit/s fits four, with what comes on top."""


def run(budget: UploadBudget, heartbeats: int, size_bytes: int) -> list[int]:
    """Send so much to every neighbour, and return the bound at each heartbeat."""
    found = []
    for _ in range(heartbeats):
        budget.sent(budget.limit * size_bytes)
        found.append(budget.beat())
    return found


def test_the_bound_falls_to_the_budget_and_rises_again() -> None:
    budget = UploadBudget(3, 9, 1.0, bits_per_second=2e6)
    assert run(budget, 60, BYTES_PER_NEIGHBOUR)[-20:] == [4] * 20
    assert run(budget, 60, BYTES_PER_NEIGHBOUR // 10)[-1] == 9


def test_the_number_of_neighbours_stays_within_its_bounds() -> None:
    budget = UploadBudget(3, 9, 1.0, bits_per_second=2e6)
    assert min(run(budget, 100, 100 * BYTES_PER_NEIGHBOUR)) == 3
    assert max(run(budget, 100, 0)) == 9


def test_one_second_of_high_upload_changes_nothing() -> None:
    budget = UploadBudget(3, 9, 1.0, bits_per_second=2e6)
    budget.sent(500_000)
    assert budget.beat() == 9
    assert run(budget, 20, 0) == [9] * 20


def test_the_budget_is_overdrawn_only_at_the_minimum_of_neighbours() -> None:
    budget = UploadBudget(3, 9, 1.0, bits_per_second=2e6)
    run(budget, 60, BYTES_PER_NEIGHBOUR)
    assert not budget.is_overdrawn
    run(budget, 60, 2 * BYTES_PER_NEIGHBOUR)
    assert (budget.limit, budget.is_overdrawn) == (3, True)
    run(budget, 60, 75_000)  # 1.8 Mbit/s, of which a sixth of the budget is left for what comes on top
    assert (budget.limit, budget.is_overdrawn) == (3, True)
    run(budget, 60, 0)
    assert not budget.is_overdrawn


def test_neighbours_come_back_one_at_a_time_with_pauses() -> None:
    budget = UploadBudget(3, 9, 1.0, bits_per_second=2e6)
    run(budget, 100, 2 * BYTES_PER_NEIGHBOUR)
    rising = run(budget, 100, 0)
    assert sorted(set(rising)) == [3, 4, 5, 6, 7, 8, 9]
    assert [rising.count(limit) for limit in range(4, 9)] == [5] * 5
