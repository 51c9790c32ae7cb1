"""What auditors can do to a ledger: one of four moves nothing, and every row is that of the page."""

import re
from pathlib import Path

import pytest

from sapo_client.cli.lab import auditors_cells
from sapo_client.lab.quorum.conducts import QUORUM_STRATEGIES, QuorumStrategy, StrikeLate
from sapo_client.lab.quorum.stage import QuorumPlan, QuorumStage, play
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
def test_what_becomes_of_a_strategy_is_what_the_page_says(strategy: QuorumStrategy) -> None:
    outcome = strategy.play()
    assert tuple(map(str, auditors_cells(strategy, outcome))) in shown_rows()
    if strategy.plan.liars <= 1:  # what the settlement stands
        unpaid = outcome.counted - strategy.plan.treasury_points
        assert outcome.final == strategy.plan.epochs
        assert outcome.paid == outcome.counted - max(0, unpaid)
        assert (outcome.player_paid, outcome.bonds_lost) == (0, 0)


class StrikeAlone(StrikeLate):
    """Convict itself at the window's end, and leave the posting without its quorum."""

    def repeat(self, stage: QuorumStage, posted: Postable) -> None:
        """Do nothing more."""


def test_honest_auditors_complete_a_posting_that_lost_its_quorum() -> None:
    outcome = play(QuorumPlan(liars=1), StrikeAlone())
    assert (outcome.final, outcome.paid, outcome.player_bonds_lost) == (3, outcome.counted, 1)
