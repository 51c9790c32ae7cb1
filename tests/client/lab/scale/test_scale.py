"""A simulation of many nodes, small: what arrives, who is blamed, that it repeats, and what a sample is."""

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
from sapo_client.lab.scale.deliveries import Deliveries, Judgement
from sapo_client.lab.scale.plan import ScalePlan, islands_that_follow
from sapo_client.lab.scale.report import ScaleReport, simulate_scale
from sapo_client.lab.scale.traces import LATE_SECONDS
from sapo_client.lab.scale.world import ScaleWorld, sybil_share

SMALL = ScalePlan(nodes=24, islands=2, epochs=2, epoch_seconds=20, groups_per_second=0.2)


def quiet(_seconds: float) -> None:
    """Show no progress."""


def raise_bug(error: Exception) -> None:
    """Let a bug in a callback end the test."""
    raise error


@pytest.fixture(scope="module")
def report() -> ScaleReport:
    """Return the report of a small swarm with churn, Sybils, NAT and losses."""
    return simulate_scale(SMALL, quiet)


def test_honest_groups_arrive_in_time_and_nobody_honest_is_blamed(report: ScaleReport) -> None:
    assert report.nodes_simulated == SMALL.nodes
    assert report.groups > 30
    assert report.reached > 0.98
    assert report.late_delay < 2.0
    assert (report.worst_score, report.faults) == (0.0, 0)


def test_sybils_have_no_more_of_a_batch_than_of_the_accounts_around(report: ScaleReport) -> None:
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


def test_every_node_carries_two_islands_at_most_beside_a_move(report: ScaleReport) -> None:
    assert 2 < report.copies < 9
    assert 0 < report.mean_download <= report.worst_download


def test_one_seed_is_one_simulation() -> None:
    short = replace(SMALL, nodes=12)
    one, same, other = (_course(short, seed) for seed in (1, 1, 2))
    assert one == same != other


def _course(plan: ScalePlan, seed: int) -> tuple[float, ...]:
    world = ScaleWorld(replace(plan, seed=seed), raise_bug)
    world.run(quiet)
    return tuple(world.deliveries.delays)


def test_without_losses_and_churn_everything_arrives() -> None:
    plan = replace(SMALL, nodes=16, churn=0.0, sybils=0.0, nat=0.0, loss=0.0)
    world = ScaleWorld(plan, raise_bug)
    world.run(quiet)
    assert world.deliveries.groups > 10
    assert world.deliveries.reached == world.deliveries.places > 0


def test_where_most_packets_are_lost_the_count_and_the_causes_say_so() -> None:
    plan = replace(SMALL, nodes=16, loss=0.85)
    world = ScaleWorld(plan, raise_bug)
    world.run(quiet)
    deliveries = world.deliveries
    assert deliveries.reached < 0.9 * deliveries.places
    missed = world.traces.missed_causes()
    assert sum(one.count for one in missed) == deliveries.places - deliveries.reached
    assert any("on the way when the time was over" in one.text for one in missed)
    assert sum(one.count for one in world.traces.late_causes()) == sum(
        delay > LATE_SECONDS for delay in deliveries.delays
    )


def test_a_sample_has_the_worst_islands_and_their_members_alone() -> None:
    plan = replace(SMALL, nodes=160, islands=16, simulated=4, epochs=1)
    world = ScaleWorld(plan, raise_bug)
    census = world.census()
    assert max(map(sybil_share, census.values())) in {sybil_share(census[one]) for one in world.simulated}
    sizes = [len(census[one]) for one in world.simulated]
    assert (min(sizes), max(sizes)) == (min(map(len, census.values())), max(map(len, census.values())))
    world.run(quiet)
    at_home = {who.number for one in world.simulated for who in census[one]}
    next_ones = world.census(plan.first_epoch + 1), world.census(plan.first_epoch - 1)
    moving = {who.number for one in world.simulated for table in next_ones for who in table[one]}
    assert at_home <= {one.who.number for one in world.residents.values()} <= at_home | moving
    for resident in world.residents.values():
        assert resident.joined.keys() <= set(world.simulated)


def test_fewer_move_where_homes_last_longer() -> None:
    def moving(period_epochs: int) -> int:
        plan = replace(SMALL, nodes=160, islands=16, period_epochs=period_epochs)
        homes, first = plan.island_map(), plan.first_epoch
        accounts = [who.account for who in ScaleWorld(plan, raise_bug).people]
        return sum(homes.home(one, first) != homes.home(one, first + 1) for one in accounts)

    assert [moving(8), moving(80)] == [23, 1]


def test_a_delivery_counts_where_it_was_expected_and_nobody_left() -> None:
    deliveries = Deliveries()
    deliveries.sent(b"one", 7, {"1", "2", "3"}, 10.0)
    for node, at in (("1", 10.25), ("1", 10.5), ("4", 10.25), ("2", 10.5)):
        deliveries.admitted(b"one", node, at)
    first = deliveries.close(b"one", still_there={"1", "2"})
    assert first == Judgement(frozenset(), {"1": 0.25, "2": 0.5})
    deliveries.sent(b"two", 8, {"1", "2"}, 20.0)
    assert deliveries.close(b"two", still_there={"1", "2"}) == Judgement(frozenset({"1", "2"}), {})
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


def test_a_number_of_islands_that_is_no_power_of_two_is_refused() -> None:
    for islands in ("3", "0", "many"):
        result = CliRunner().invoke(app, ["lab", "simulate", "--islands", islands])
        assert isinstance(result.exception, SapoError)
        assert "power of two" in result.exception.text


def test_islands_that_follow_have_as_many_accounts_as_the_rule_of_a_new_swarm_allows() -> None:
    counts = {accounts: islands_that_follow(accounts) for accounts in (64, 65, 100, 1_000, 10_000)}
    assert counts == {64: 1, 65: 2, 100: 2, 1_000: 16, 10_000: 256}


def test_a_census_counts_every_account_once() -> None:
    smallest, median, largest, worst = census(4_000, 16, random.Random(0))
    assert 180 < smallest <= median <= largest < 320
    assert 0.3 < worst < 0.45
    assert len(list(table([(100, 4)]))) == 3
