"""A small simulation of many nodes: deliveries, honest scores, determinism, and samples of islands."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapo_client.cli.app import app
from sapo_client.errors import SapoError
from sapo_client.lab.scale.batches import POLICY, SybilStanding
from sapo_client.lab.scale.census import census, table
from sapo_client.lab.scale.deliveries import Deliveries, DeliveryResult
from sapo_client.lab.scale.plan import ScalePlan, islands_that_follow
from sapo_client.lab.scale.report import ScaleReport, simulate_scale
from sapo_client.lab.scale.simulation import ScaleSimulation, sybil_share
from sapo_client.lab.scale.traces import LATE_SECONDS

SMALL = ScalePlan(nodes=24, islands=2, epochs=2, epoch_seconds=20, groups_per_second=0.2)


def quiet(_seconds: float) -> None:
    """Show no progress."""


def raise_bug(error: Exception) -> None:
    """Fail the test on an error in a callback."""
    raise error


@pytest.fixture(scope="module")
def report() -> ScaleReport:
    """Return the report of a small swarm with churn, Sybils, NAT and losses."""
    return simulate_scale(SMALL, quiet)


def test_honest_groups_arrive_in_time_and_no_honest_node_is_penalised(report: ScaleReport) -> None:
    assert report.nodes_simulated == SMALL.nodes
    assert report.groups > 30
    assert report.reached > 0.98
    assert report.late_delay < 2.0
    assert (report.worst_score, report.faults) == (0.0, 0)


def test_sybils_share_of_a_batch_is_at_most_their_share_of_the_accounts(report: ScaleReport) -> None:
    assert {one.accounts for one in report.islands} != {0}
    assert sum(one.accounts for one in report.islands) == SMALL.nodes
    shares = [one.of_others for one in report.islands if one.of_others is not None]
    assert shares
    assert report.worst_share < 0.5


def test_no_share_of_a_draw_is_above_a_cap(report: ScaleReport) -> None:
    assert [one.standing for one in report.batches] == [one.value for one in SybilStanding]
    assert {one.violations for one in report.batches} == {0}
    assert min(one.draws for one in report.batches) > 0
    (newcomers,) = (one for one in report.batches if one.standing == SybilStanding.NEWCOMERS.value)
    assert 0 < newcomers.share <= POLICY.newcomer_cap + 1e-9


def test_except_around_a_move_every_node_carries_at_most_two_islands(report: ScaleReport) -> None:
    assert 2 < report.copies < 9
    assert 0 < report.mean_download <= report.worst_download


def test_equal_seeds_give_equal_simulations() -> None:
    short = replace(SMALL, nodes=12)
    one, same, other = (_course(short, seed) for seed in (1, 1, 2))
    assert one == same != other


def _course(plan: ScalePlan, seed: int) -> tuple[float, ...]:
    simulation = ScaleSimulation(replace(plan, seed=seed), raise_bug)
    simulation.run(quiet)
    return tuple(simulation.deliveries.delays)


def test_without_losses_and_churn_all_groups_are_delivered() -> None:
    plan = replace(SMALL, nodes=16, churn=0.0, sybils=0.0, nat=0.0, loss=0.0)
    simulation = ScaleSimulation(plan, raise_bug)
    simulation.run(quiet)
    assert simulation.deliveries.groups > 10
    assert simulation.deliveries.reached == simulation.deliveries.places > 0


def test_packet_loss_shows_in_the_count_and_the_causes() -> None:
    plan = replace(SMALL, nodes=16, loss=0.85)
    simulation = ScaleSimulation(plan, raise_bug)
    simulation.run(quiet)
    deliveries = simulation.deliveries
    assert deliveries.reached < 0.9 * deliveries.places
    missed = simulation.traces.missed_causes()
    assert sum(one.count for one in missed) == deliveries.places - deliveries.reached
    assert any("in transit at the deadline" in one.text for one in missed)
    assert sum(one.count for one in simulation.traces.late_causes()) == sum(
        delay > LATE_SECONDS for delay in deliveries.delays
    )


def test_a_sample_has_the_worst_islands_with_only_their_members() -> None:
    plan = replace(SMALL, nodes=160, islands=16, simulated=4, epochs=1)
    simulation = ScaleSimulation(plan, raise_bug)
    census = simulation.census()
    assert max(map(sybil_share, census.values())) in {
        sybil_share(census[one]) for one in simulation.simulated
    }
    sizes = [len(census[one]) for one in simulation.simulated]
    assert (min(sizes), max(sizes)) == (min(map(len, census.values())), max(map(len, census.values())))
    simulation.run(quiet)
    at_home = {participant.number for one in simulation.simulated for participant in census[one]}
    next_ones = simulation.census(plan.first_epoch + 1), simulation.census(plan.first_epoch - 1)
    moving = {
        participant.number
        for one in simulation.simulated
        for table in next_ones
        for participant in table[one]
    }
    assert at_home <= {one.participant.number for one in simulation.nodes.values()} <= at_home | moving
    for node in simulation.nodes.values():
        assert node.joined.keys() <= set(simulation.simulated)


def test_fewer_accounts_move_with_a_longer_period() -> None:
    def moving(period_epochs: int) -> int:
        plan = replace(SMALL, nodes=160, islands=16, period_epochs=period_epochs)
        homes, first = plan.island_map(), plan.first_epoch
        accounts = [participant.account for participant in ScaleSimulation(plan, raise_bug).participants]
        return sum(homes.home(one, first) != homes.home(one, first + 1) for one in accounts)

    assert [moving(8), moving(80)] == [23, 1]


def test_deliveries_count_at_expected_nodes_that_did_not_leave() -> None:
    deliveries = Deliveries()
    deliveries.sent(b"one", 7, {"1", "2", "3"}, 10.0)
    for node, at in (("1", 10.25), ("1", 10.5), ("4", 10.25), ("2", 10.5)):
        deliveries.admitted(b"one", node, at)
    first = deliveries.close(b"one", still_there={"1", "2"})
    assert first == DeliveryResult(frozenset(), {"1": 0.25, "2": 0.5})
    deliveries.sent(b"two", 8, {"1", "2"}, 20.0)
    assert deliveries.close(b"two", still_there={"1", "2"}) == DeliveryResult(frozenset({"1", "2"}), {})
    assert (deliveries.groups, deliveries.delivered) == (2, 1)
    assert (deliveries.reached, deliveries.places) == (2, 4)
    assert deliveries.by_island == {7: (2, 2), 8: (2, 0)}
    assert list(deliveries.delays) == [0.25, 0.5]


def test_the_command_writes_figures_and_a_picture(tmp_path: Path) -> None:
    options = ["--nodes", "12", "--islands", "1", "--epochs", "1", "--epoch-seconds", "20", "--no-progress"]
    result = CliRunner().invoke(app, ["lab", "simulate", *options, "--json", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["format"] == "sapo/lab/simulate/1"
    assert document["plan"]["nodes"] == document["nodes_simulated"] == 12
    assert {goal["target"] for goal in document["goals"]} >= {"at most 3 Mbit/s", "at least 99.9%", "none"}
    assert json.loads((tmp_path / "out/report.json").read_text(encoding="utf-8")) == document
    assert (tmp_path / "out/picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_number_of_islands_that_is_not_a_power_of_two_is_refused() -> None:
    for islands in ("3", "0", "many"):
        result = CliRunner().invoke(app, ["lab", "simulate", "--islands", islands])
        assert isinstance(result.exception, SapoError)
        assert "power of two" in result.exception.text


def test_islands_follow_gives_as_many_accounts_per_island_as_a_new_swarm_allows() -> None:
    counts = {accounts: islands_that_follow(accounts) for accounts in (64, 65, 100, 1_000, 10_000)}
    assert counts == {64: 1, 65: 2, 100: 2, 1_000: 16, 10_000: 256}


def test_a_census_counts_every_account_once() -> None:
    smallest, median, largest, worst = census(4_000, 16, random.Random(0))
    assert 180 < smallest <= median <= largest < 320
    assert 0.3 < worst < 0.45
    assert len(list(table([(100, 4)]))) == 3
