"""The bench: real measurements of real parts, whose figures hang together; no figure itself is asserted."""

from sapo_client.bench.admission import admission_memory, admission_rate
from sapo_client.bench.checking import HOSTILE, HOSTILE_AUTHORS, checking_rate, load_rate
from sapo_client.bench.swarm import Author, BenchSwarm
from sapo_client.cli.bench import _document, _rows
from sapo_verification.answers import holds_code


def test_admission_is_compared_with_verification_alone() -> None:
    rate = admission_rate(100)
    assert rate.bare_per_second > 0
    assert rate.share == rate.admitted_per_second / rate.bare_per_second


def test_refused_messages_cost_less_than_four_times_their_size() -> None:
    memory = admission_memory()
    assert "largest rollout, forged" in memory.peak_by_kind
    assert 3 < memory.worst < 4  # the payload, its completions, and what is verified


async def test_the_jail_and_the_load_are_measured() -> None:
    checking, load = await checking_rate(10), await load_rate(1.0)
    assert checking.rollouts == 10
    assert checking.cost == checking.jailed_seconds / checking.in_process_seconds
    assert load.calm_per_second > 0
    assert load.offered_answers_per_second > 0
    rate, memory = admission_rate(100), admission_memory()
    document = _document(rate, memory, checking, load)
    assert document["hostile_load"]["share_of_calm"] == load.share
    assert [len(row) for row in _rows(rate, memory, checking, load)] == [4] * 5


def test_hostile_rollouts_are_genuine_and_hostile() -> None:
    swarm, author = BenchSwarm(), Author(HOSTILE_AUTHORS)
    admitted = swarm.admission([author]).judge(swarm.message(author, 0, 0, HOSTILE), swarm.now_seconds)
    assert admitted.rollout.completions == HOSTILE
    assert any(map(holds_code, HOSTILE))
