"""Dishonest auditors: one of four changes nothing, and every outcome is as docs/incentives.md shows it."""

import re
from pathlib import Path

import pytest

from sapo_client.cli.lab import auditors_cells
from sapo_client.lab.quorum.simulation import QuorumPlan, QuorumSimulation, play
from sapo_client.lab.quorum.strategies import QUORUM_STRATEGIES, QuorumStrategy, StrikeLate
from sapo_client.node.auditing.agreement import Postable

PAGE = Path(__file__).parents[3] / "docs" / "incentives.md"


def shown_rows() -> list[tuple[str, ...]]:
    """Return the cells of the page's table."""
    _, _, after = PAGE.read_text(encoding="utf-8").partition("<!-- sapo lab economy --auditors -->\n```\n")
    table, _, _ = after.partition("```\n")
    return [tuple(re.split(r" {2,}", line.strip())) for line in table.splitlines()[1:]]


def test_the_page_shows_every_strategy() -> None:
    assert [row[0] for row in shown_rows()] == [strategy.name for strategy in QUORUM_STRATEGIES]


@pytest.mark.parametrize("strategy", QUORUM_STRATEGIES, ids=lambda strategy: strategy.name)
def test_the_outcome_of_a_strategy_is_as_on_the_page(strategy: QuorumStrategy) -> None:
    outcome = strategy.play()
    assert tuple(map(str, auditors_cells(strategy, outcome))) in shown_rows()
    if strategy.plan.liars <= 1:  # what the settlement tolerates
        unpaid = outcome.counted - strategy.plan.treasury_points
        assert outcome.final == strategy.plan.epochs
        assert outcome.paid == outcome.counted - max(0, unpaid)
        assert (outcome.player_paid, outcome.bonds_lost) == (0, 0)


class StrikeAlone(StrikeLate):
    """Prove its own equivocation at the window's end, so that the posting lacks a quorum."""

    def repeat(self, simulation: QuorumSimulation, posted: Postable) -> None:
        """Do not bond or post again."""


def test_honest_auditors_complete_a_posting_that_lost_its_quorum() -> None:
    outcome = play(QuorumPlan(liars=1), StrikeAlone())
    assert (outcome.final, outcome.paid, outcome.player_bonds_lost) == (3, outcome.counted, 1)
