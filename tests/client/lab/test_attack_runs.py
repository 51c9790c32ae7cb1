"""Attackers in real swarms: honest agents' use of their rollouts, and parts of a run that do not change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sapo_client.lab.arms import ARMS
from sapo_client.lab.attackers.catalogue import ATTACKS
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.lab.simulate import manifest_of, simulate
from sapo_protocol.manifest import Manifest

ARM = ARMS["2/6"]
SILENT = {
    "other-spelling": "the name of a weekday has no number",
    "withholding-oracle": "no family is easy for a policy that guesses",
}
NEEDS_TEXT = {name for name, attack in ATTACKS.items() if attack.needs_text}
NEEDS_SOLUTIONS = {name for name, attack in ATTACKS.items() if attack.needs_solutions}
SYBILS = {name for name, attack in ATTACKS.items() if attack.has_own_share}
"""In so small a swarm all of them are `pad` by one account."""


@dataclass(frozen=True)
class Swarm:
    """A finished run with the events of its agents."""

    run: Run
    rows: list[CurvePoint]
    events: list[list[dict[str, Any]]]

    def of_attackers(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind about accounts that are no agent's."""
        honest = {bytes(account).hex() for account in self.run.honest()}
        return [
            event
            for events in self.events
            for event in events
            if event["event"] == kind and event["account"] not in honest
        ]

    def tasks(self) -> list[Mapping[tuple[int, int], str]]:
        """Return the family of each published slot, by agent, epoch and slot."""
        return [
            {(each["epoch"], each["slot"]): each["family"] for each in events if each["event"] == "published"}
            for events in self.events
        ]


@pytest.fixture(scope="module")
def small(plan: ExperimentPlan) -> ExperimentPlan:
    return replace(
        plan, rounds=4, families=("calendar_arithmetic", "basic_arithmetic"), held_out_per_family=6
    )


@pytest.fixture(scope="module")
def manifest(small: ExperimentPlan) -> Manifest:
    return manifest_of(small)


@pytest.fixture(scope="module")
def swarms(
    small: ExperimentPlan, manifest: Manifest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Swarm]:
    """Return a run without attackers and one under every attack that these families allow."""
    made = {"clean": played(small, manifest, tmp_path_factory.mktemp("clean"))}
    for name in ATTACKS.keys() - NEEDS_TEXT - SYBILS:
        made[name] = played(small.under(name, 1), manifest, tmp_path_factory.mktemp(name))
    return made


def played(plan: ExperimentPlan, manifest: Manifest, folder: Path) -> Swarm:
    run = Run(plan, ARM, 0)
    rows = simulate(run, manifest, folder, lambda _round: None)
    files = [folder / f"events/events-{run.author(n).node.hex()[:8]}.jsonl" for n in range(plan.agents)]
    return Swarm(run, rows, [[json.loads(line) for line in file.read_text().splitlines()] for file in files])


PUBLISHING = sorted(ATTACKS.keys() - NEEDS_TEXT - SYBILS - SILENT.keys())


@pytest.mark.parametrize("name", PUBLISHING)
def test_every_agent_admits_and_verifies_what_attackers_publish(swarms: dict[str, Swarm], name: str) -> None:
    swarm = swarms[name]
    admitted = [event["content_id"] for event in swarm.of_attackers("admitted")]
    verified = [event["content_id"] for event in swarm.of_attackers("verified")]
    assert len(admitted) >= 2 * 2 * 2, "two agents, two rollouts or more in at least two of the rounds"
    assert Counter(admitted) == Counter(verified)
    without_advantage = {"R10.5"} if name == "copier" else set()  # all of its copies may happen to be right
    assert {event["rule"] for event in swarm.of_attackers("refused")} <= without_advantage
    assert not [event for events in swarm.events for event in events if event.get("stage") in range(1, 8)]


def test_attackers_rollouts_are_trained_on(swarms: dict[str, Swarm]) -> None:
    used = {name: sum(row.attackers for row in swarms[name].rows) for name in PUBLISHING}
    assert min(used.values()) > 0, used
    assert all(row.attackers <= row.external for name in PUBLISHING for row in swarms[name].rows)
    assert {row.attackers for row in swarms["clean"].rows} == {0}


def test_newcomer_flood_publishes_from_many_accounts_and_other_attacks_from_one(
    swarms: dict[str, Swarm],
) -> None:
    authors = {name: {e["account"] for e in swarms[name].of_attackers("admitted")} for name in PUBLISHING}
    turns = len(swarms["newcomer-flood"].rows) // 2
    assert len(authors.pop("newcomer-flood")) >= turns * ATTACKS["newcomer-flood"].fresh_accounts
    assert {len(each) for each in authors.values()} == {1}


@pytest.mark.parametrize("name", SILENT)
def test_an_attacker_that_publishes_nothing_changes_no_row(swarms: dict[str, Swarm], name: str) -> None:
    assert swarms[name].of_attackers("admitted") == []
    timeless = [[replace(row, seconds=0.0) for row in swarms[each].rows] for each in (name, "clean")]
    assert timeless[0] == timeless[1]


def test_honest_tasks_are_those_of_the_swarm_without_attackers(swarms: dict[str, Swarm]) -> None:
    clean = swarms["clean"].tasks()
    for name in PUBLISHING:
        for ours, theirs in zip(swarms[name].tasks(), clean, strict=True):
            both = ours.keys() & theirs.keys()
            assert len(both) > 0.5 * len(theirs)
            assert {place: ours[place] for place in both} == {place: theirs[place] for place in both}


def test_rows_list_received_groups_and_weights(swarms: dict[str, Swarm]) -> None:
    last = {name: swarms[name].rows[-1] for name in ("clean", "pad")}
    weights = [(row.honest_weight, row.attackers_weight) for row in last.values()]
    assert weights == [(None, None)] * 2, "in four rounds nobody has twenty groups that passed"
    clean, attacked = (sum(row.received_bytes for row in swarms[name].rows) for name in ("clean", "pad"))
    assert 0 < clean < attacked
    assert last["pad"].marks is not None
    assert set(last["pad"].marks) == {
        "padding",
        "phrase",
        "wordings",
        "spelling",
        "length",
        "sunday",
        "copied",
        "end",
        "shorter",
        "start",
        "other start",
    }
    assert swarms["pad"].rows[2].marks is None, "marks are looked for where the policy is evaluated"


class Stopped(Exception):
    """The end of a run that is killed."""


@pytest.mark.parametrize("name", ["sleeper", "copier"])
def test_a_resumed_run_under_attack_is_the_unbroken_one(
    swarms: dict[str, Swarm], small: ExperimentPlan, manifest: Manifest, name: str, tmp_path: Path
) -> None:
    run = Run(replace(small, checkpoint_every=2).under(name, 1), ARM, 0)

    def stop(finished: int) -> None:
        if finished == 3:
            raise Stopped

    with pytest.raises(BaseExceptionGroup):
        simulate(run, manifest, tmp_path, stop)
    resumed = simulate(run, manifest, tmp_path, lambda _round: None)
    assert [replace(row, seconds=0.0) for row in resumed] == [
        replace(row, seconds=0.0) for row in swarms[name].rows
    ]


@pytest.mark.parametrize("name", sorted(NEEDS_TEXT - NEEDS_SOLUTIONS - {"wrong-steps"}))
def test_groups_with_text_beside_answers_are_verified_and_trained_on(
    plan: ExperimentPlan, tmp_path: Path, name: str
) -> None:
    """The policy itself answers nothing in this format, so only attackers' groups are informative."""
    text = replace(plan, model=str(wide(plan, tmp_path)), level="full", rounds=3, held_out_per_family=2)
    swarm = played(text.under(name, 1), manifest_of(text), tmp_path / "run")
    admitted = {event["content_id"] for event in swarm.of_attackers("admitted")}
    assert admitted == {event["content_id"] for event in swarm.of_attackers("verified")}
    assert swarm.of_attackers("refused") == []
    assert sum(row.attackers for row in swarm.rows) > 0


def wide(plan: ExperimentPlan, folder: Path) -> Path:
    """Return the policy with a window for whole sentences."""
    copy = folder / "policy"
    copy.mkdir()
    for file in Path(plan.model).iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2048}))
    return copy
