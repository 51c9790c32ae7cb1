"""The benchmarks: real measurements of real parts with consistent figures; no rate is asserted."""

import pytest

from sapo_client.bench.admission import admission_rate
from sapo_client.bench.checking import HOSTILE, HOSTILE_AUTHORS, checking_rate, load_rate
from sapo_client.bench.memory import admission_memory
from sapo_client.bench.spread import Spread
from sapo_client.bench.swarm import BenchAuthor, BenchSwarm
from sapo_client.cli.bench import _document, _rows
from sapo_verification.tasks.answers import holds_code


def test_a_spread_of_ratios_pairs_its_measurements() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0)
    assert Spread.of_ratios([2.0, 9.0, 3.0], [1.0, 3.0, 3.0]) == Spread(1.0, 2.0, 3.0)


@pytest.mark.long
def test_admission_is_compared_with_verification_alone() -> None:
    rate = admission_rate(100)
    assert 0 < rate.share.least <= rate.share.median <= rate.share.greatest
    assert rate.admitted_per_second.least < rate.bare_per_second.greatest


@pytest.mark.long
def test_a_message_of_any_kind_costs_less_than_four_times_its_size_accepted_or_refused() -> None:
    peaks = admission_memory()
    over = {name: peak for name, peak in peaks.items() if peak.times >= 4}
    assert over == {}
    assert peaks["largest rollout"].times > 3, "the payload, its completions, and what is verified"


@pytest.mark.long
async def test_checking_and_hostile_load_have_figures_and_rows() -> None:
    checking, load = await checking_rate(10), await load_rate(1.0)
    assert checking.rollouts == 10
    assert 0 < checking.cost.least <= checking.cost.median <= checking.cost.greatest
    assert load.calm_per_second.least > 0
    assert load.offered_answers_per_second > 0
    rate, memory = admission_rate(100), admission_memory()
    document = _document(rate, memory, checking, load)
    assert document["hostile_load"]["share"]["median"] == load.share.median
    assert document["memory"].keys() == memory.keys()
    assert [len(row) for row in _rows(rate, memory, checking, load)] == [4] * 5


def test_hostile_rollouts_are_admitted_and_contain_code() -> None:
    swarm, author = BenchSwarm(), BenchAuthor(HOSTILE_AUTHORS)
    admitted = swarm.admission([author]).admit(swarm.message(author, 0, 0, HOSTILE), swarm.now_seconds)
    assert admitted.rollout.completions == HOSTILE
    assert any(holds_code(swarm.manifest.suite.families[0], text) for text in HOSTILE)
