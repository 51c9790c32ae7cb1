"""Small swarms on islands: received groups follow from the protocol's homes and visits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.weekday_policy import FAMILY, make_weekday_policy

from sapo_client.errors import SapoError
from sapo_client.lab.islands.campaign import ONE_TOPIC, UNVISITED, VISITED, IslandCampaign
from sapo_client.lab.islands.keys import authors_of, last_epoch
from sapo_client.lab.islands.report import IslandLearner, IslandResults, write_islands
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.lab.simulate import simulate
from sapo_protocol.epochs import beacon
from sapo_protocol.manifest import Manifest
from sapo_verification.islands import IslandMap

AGENTS = 4
TEACHER = 4
ROUNDS = 7
FIRST_ROUND_SECONDS = 4
ROUND_SECONDS = 2


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> IslandCampaign:
    """Return a finished campaign: four islands, an agent on each, one teacher on the first."""
    model = str(make_weekday_policy(tmp_path_factory.mktemp("policy") / "weekdays"))
    plan = ExperimentPlan(
        model=model,
        teacher_model=str(make_weekday_policy(tmp_path_factory.mktemp("teacher") / "weekdays", seed=1)),
        level="nano",
        families=(FAMILY,),
        agents=AGENTS,
        teachers=1,
        rounds=ROUNDS,
        completions=2,
        tasks=4,
        max_new_tokens=6,
        evaluate_every=3,
        held_out_per_family=12,
        rounds_per_epoch=2,
        demonstration_steps=1,
        islands=4,
        period_epochs=1,
    )
    made = IslandCampaign(tmp_path_factory.mktemp("islands"), plan, seeds=range(1), hidden=FAMILY)
    made.create()
    for store, runs in made.runs():
        for run in runs:
            store.finish(run, simulate(run, store.manifest(), store.work(run), lambda _round: None), 0.0)
    return made


def rows_of(campaign: IslandCampaign, name: str) -> tuple[CurvePoint, ...]:
    [curve] = campaign.store(name).curves()
    return curve.rows


def map_of(manifest: Manifest) -> IslandMap:
    """Return the protocol's islands, as a node of this swarm without a chain sees them."""
    return IslandMap(manifest, lambda epoch: beacon(manifest.swarm_id, epoch, b""))


def within_epochs(rows: tuple[CurvePoint, ...]) -> Iterator[tuple[CurvePoint, float]]:
    """Yield the rows of rounds that end in the middle of an epoch, with the time of their end."""
    for row in rows:
        if row.round % 2:
            yield row, FIRST_ROUND_SECONDS + ROUND_SECONDS * row.round


def numbers_on(campaign: IslandCampaign, row: CurvePoint, islands: set[int]) -> set[str]:
    """Return who lives on these islands, without the agent of the row itself."""
    return {
        str(number)
        for number in range(AGENTS + 1)
        if campaign.plan.home_of(number) in islands and number != row.agent
    }


def test_home_islands_are_those_of_the_plan_in_every_epoch(campaign: IslandCampaign) -> None:
    manifest = campaign.store(VISITED).manifest()
    islands = map_of(manifest)
    for number, keys in enumerate(authors_of(Run(campaign.plan, campaign.arm, 0), manifest)):
        homes = {islands.home(keys.account, epoch) for epoch in range(last_epoch(campaign.plan) + 1)}
        assert homes == {0 if number == TEACHER else number}


def test_received_authors_have_their_home_on_the_own_or_the_visited_island(campaign: IslandCampaign) -> None:
    manifest = campaign.store(VISITED).manifest()
    islands = map_of(manifest)
    authors = authors_of(Run(campaign.plan, campaign.arm, 0), manifest)
    visited = set()
    for row, end in within_epochs(rows_of(campaign, VISITED)):
        keys = authors[row.agent]
        now = manifest.genesis_seconds + end
        due = islands.due(keys.node, keys.account, now)
        around = due | islands.due(keys.node, keys.account, now - ROUND_SECONDS)  # until it has moved
        assert due <= set(row.carried or ()) <= around
        assert numbers_on(campaign, row, set(due)) <= set(row.heard or {})
        assert set(row.heard or {}) <= numbers_on(campaign, row, set(around))
        visited |= {(row.agent, island) for island in due}
    assert len(visited) > 2 * AGENTS, "visits change with the period"


def test_on_one_topic_all_groups_are_received(campaign: IslandCampaign) -> None:
    for row in rows_of(campaign, ONE_TOPIC):
        assert row.carried == [0]
        assert set(row.heard or {}) == {str(number) for number in range(AGENTS + 1)} - {str(row.agent)}


def test_without_visits_no_group_of_another_island_is_received(campaign: IslandCampaign) -> None:
    for row in rows_of(campaign, UNVISITED):
        assert set(row.heard or {}) == numbers_on(campaign, row, {row.agent})


def test_demonstrations_are_by_authors_received_earlier(campaign: IslandCampaign) -> None:
    for name in (VISITED, ONE_TOPIC):
        heard: dict[int, set[str]] = {agent: set() for agent in range(AGENTS)}
        shown = 0
        for row in rows_of(campaign, name):
            heard[row.agent] |= set(row.heard or {})
            assert set((row.shown or {}).get(FAMILY, {})) <= heard[row.agent]
            assert sum(sum(each.values()) for each in (row.shown or {}).values()) == row.demonstrations
            shown += row.demonstrations
        assert shown


def test_the_report_states_the_origin_of_texts(campaign: IslandCampaign) -> None:
    page = write_islands(campaign).read_text(encoding="utf-8")
    assert page.startswith("# What one island learns\n")
    assert {path.name for path in campaign.root.glob("islands.*")} == {
        "islands.md",
        "islands.csv",
        "islands.png",
    }
    results = IslandResults(campaign)
    assert [each.heard for each in results.others(ONE_TOPIC)] == [1] * (AGENTS - 1)
    for alone in results.others(UNVISITED):
        assert (alone.heard, alone.direct, alone.relayed, alone.groups) == (None, 0, 0, 0.0)
    for each in results.learners:
        rows = [row for row in rows_of(campaign, each.experiment) if row.agent == each.island]
        until = [row for row in rows if each.reached is None or row.round <= each.reached]
        assert each.direct + each.relayed == sum(row.demonstrations for row in until)


@pytest.mark.parametrize(
    ("reached", "direct", "relayed", "way"),
    [
        (None, 0, 9, "not learnt"),
        (8, 0, 9, "second hand"),
        (8, 9, 0, "first hand"),
        (8, 9, 9, "both"),
    ],
)
def test_a_learner_reports_how_a_family_reached_its_island(
    reached: int | None, direct: int, relayed: int, way: str
) -> None:
    learner = IslandLearner(
        experiment=VISITED,
        seed=0,
        island=1,
        heard=None,
        reached=reached,
        direct=direct,
        relayed=relayed,
        last=0.0,
        groups=0.0,
        seconds=0.0,
    )
    assert learner.way == way


def test_a_running_run_is_reported_up_to_its_last_common_round(
    tmp_path: Path, campaign: IslandCampaign
) -> None:
    begun = replace(campaign, root=tmp_path)
    begun.create()
    store, [run] = next(begun.runs())

    def stop(done: int) -> None:
        if done == 2:
            raise SapoError("stopped", hint="start it again")

    with pytest.raises(SapoError, match="stopped"):
        simulate(run, store.manifest(), store.work(run), stop)
    curve = store.so_far(run)
    assert curve is not None
    assert timeless(curve.rows) == [row for row in timeless(rows_of(campaign, VISITED)) if row.round <= 2]
    assert [(name, curves[0].rows[-1].round) for name, curves in IslandResults(begun).curves.items()] == [
        (VISITED, 2)
    ]


def timeless(rows: tuple[CurvePoint, ...]) -> list[CurvePoint]:
    """Return the rows without their timings."""
    return [replace(row, seconds=0.0) for row in rows]


def test_nothing_is_reported_before_a_first_round(tmp_path: Path, campaign: IslandCampaign) -> None:
    with pytest.raises(SapoError, match="has finished its first round"):
        write_islands(replace(campaign, root=tmp_path))


@pytest.mark.parametrize(("islands", "period"), [(3, 1), (8, 1), (4, 0), (-2, 1)])
def test_a_number_of_islands_that_does_not_fit_the_agents_is_refused(
    campaign: IslandCampaign, islands: int, period: int
) -> None:
    with pytest.raises(SapoError, match="islands for 4 agents"):
        replace(campaign.plan, islands=islands, period_epochs=period)
