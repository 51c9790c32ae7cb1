"""The two designs of audits: bounded cost, and claims that do not pay."""

from pathlib import Path

import numpy as np
import pytest

from sapo_client.lab.audits.claims import CLAIMS, SampledClaim, captured, daily_error, paid, table
from sapo_client.lab.audits.costs import AuditCosts, AuditWorld, committee, receiving_all, sampling
from sapo_client.lab.audits.island_changes import changes
from sapo_protocol.terms.islands import IslandTerms

WORLD, COSTS = AuditWorld(), AuditCosts()


def test_a_sample_is_within_the_bounds_up_to_a_hundred_thousand_accounts_and_nothing_else_is() -> None:
    accounts = (10_000, 100_000)
    assert all(sampling(n, m, WORLD, COSTS).is_met for n in accounts for m in (1, 2, 4, 8))
    assert not any(committee(n, 4, WORLD, COSTS).is_met for n in accounts)
    assert not any(receiving_all(n, WORLD, COSTS).is_met for n in accounts)


@pytest.mark.parametrize("claim", CLAIMS[2:5], ids=lambda claim: claim.name)
@pytest.mark.parametrize("samples", [2, 4, 8, 16])
def test_claiming_more_groups_than_made_earns_less(claim: SampledClaim, samples: int) -> None:
    points = paid(claim, samples, np.random.default_rng(1), draws=50_000)
    assert points.mean() < claim.good


def test_the_capture_rate_equals_the_chance_of_a_dishonest_majority_in_a_committee() -> None:
    assert captured(4, 3, 1) == 0.75
    assert captured(64, 21, 64) == 0.0
    assert captured(3, 2, 2) == pytest.approx(1 / 3)


def test_with_constant_points_only_the_draw_causes_an_error() -> None:
    points = np.full(10, 100.0)
    assert daily_error(points, 1) == 0.0
    assert daily_error(points, 5, epochs=100) == pytest.approx(0.2)


def test_the_tables_are_the_same_for_the_same_seed() -> None:
    assert list(table(3, draws=1_000)) == list(table(3, draws=1_000))


def test_without_a_penalty_claiming_more_costs_nothing() -> None:
    for claim in CLAIMS[2:4]:
        points = paid(claim, 4, np.random.default_rng(1), penalty=1)
        assert points.mean() == pytest.approx(claim.good, rel=0.01)


def test_the_decision_shows_the_tables() -> None:
    page = Path(__file__).parents[4] / "docs/adr/protocol-sampled-audits.md"
    shown = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in table() if line and line not in shown] == []


def test_the_number_of_islands_changes_only_where_few_accounts_are_drawn() -> None:
    terms = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=1024)
    rng = np.random.default_rng(0)
    assert changes(terms, 100, 1, rng, epochs=200) == changes(terms, 100_000, 32, rng, epochs=200) == 0.0
    assert 0.01 < changes(terms, 100, 16, rng, epochs=200) < 0.1
