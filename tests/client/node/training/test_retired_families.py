"""Families that the swarm's terms have retired: a policy may forget them, and nobody waits for them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.canary_pulses import Shown
from support.self_scored import SelfScored
from support.simulated_policies import SimulatedPolicies, simulated_canary
from support.swarm import EPOCH, Identity, make_chain_manifest, make_manifest, make_suite, moment
from support.verification_harness import VerificationHarness

from sapo_client.learner.backend import Generation
from sapo_client.node.training.assembly import assigned_families
from sapo_client.node.training.canary_state import MAX_COMPARISONS, CanaryFile, CanaryState
from sapo_client.node.training.family_evidence import NO_TASKS, Assigned, Comparison
from sapo_client.node.training.promotion import Promotion
from sapo_client.node.training.rehearsal import Rehearsal
from sapo_client.observe.events import EventLog
from sapo_protocol.tasks import Task
from sapo_protocol.terms.successor import Successor
from sapo_verification.types import SampledBatch

NAMES = ("basic_arithmetic", "fraction_simplification", "calendar_arithmetic", "decimal_arithmetic")
SUITE = make_suite("nano", NAMES)
OWN, OTHER = Identity(1), Identity(2)
RETIRED = 0
LEFT = (1, 2, 3)
LEVELS = (0.8, 0.5, 0.5, 0.5)
FORGOTTEN = (0.0, 0.5, 0.5, 0.5)


def taught() -> SampledBatch:
    """Return a batch with a text of another account."""
    return SampledBatch(groups=(), demonstrations=(Shown(Task(1, 0), "", b"", None, OTHER.account),))


def test_the_families_are_those_of_the_present_epochs_terms() -> None:
    manifest = make_chain_manifest(suite=SUITE)
    terms = Successor(
        manifest.swarm_id,
        make_suite("nano", (*NAMES, "binary_matrix")),
        slots_per_epoch=32,
        max_completions=8,
        retired=(RETIRED,),
    )
    later = manifest.succeeded_by(EPOCH, terms)
    now = moment(later, EPOCH - 1)
    assigned = assigned_families(later, lambda: now)
    assert tuple(assigned()) == (0, 1, 2, 3)
    now = moment(later, EPOCH)
    assert tuple(assigned()) == (1, 2, 3, 4)


@pytest.mark.parametrize("is_retired", [True, False])
async def test_that_a_policy_forgets_a_retired_family_is_no_harm(tmp_path: Path, is_retired: bool) -> None:
    """Nor is it the fault of those whose text was used; in a family that tasks may have it is."""
    assigned: Sequence[int] = range(len(NAMES))
    checker = SelfScored(NAMES)
    learner = SimulatedPolicies(checker, LEVELS, LEVELS, random.Random(3))
    desk = VerificationHarness((OWN, OTHER), manifest=make_manifest(suite=SUITE))
    canary = simulated_canary(tmp_path, desk, learner, assigned=lambda: assigned)
    await canary.open()
    for _ in range(3):
        await canary.after(taught())
    before = len(checker.families)
    learner.policy = list(FORGOTTEN)
    if is_retired:
        assigned = LEFT
    for _ in range(MAX_COMPARISONS):
        await canary.after(taught())
    state = CanaryFile(tmp_path / "canary.json", SUITE.families).read()
    assert state is not None
    blamed = set() if is_retired else {OTHER.account}
    found = {account for past in state.accounts.comparisons if past.has_harmed for account in past.accounts}
    assert (learner.returned > 0, found) == (bool(blamed), blamed)
    if is_retired:
        assert set(checker.families[before:]) == set(LEFT)
        assert all(check[RETIRED] == NO_TASKS for check in state.by_family)


def test_results_of_retired_families_are_dropped_and_their_best_levels_kept() -> None:
    one, two = Comparison(16, 1, 0, 9), Comparison(16, 9, 1, 1)
    state = CanaryState(comparisons=2, lost=20, won=2, by_family=((one, two),) * 2, best=(0.6, 0.5))
    found = state.limited_to((1,))
    assert found == CanaryState(
        comparisons=2, lost=20, won=2, by_family=((NO_TASKS, two),) * 2, best=(0.6, 0.5)
    )
    assert state.limited_to((0, 1)) == state


class Candidates:
    """A policy and a candidate that are right with given chances."""

    def __init__(self, checker: SelfScored, policy: Sequence[float], candidate: Sequence[float]) -> None:
        self._checker, self._chances, self._rng = checker, (policy, candidate), random.Random(4)
        self.promoted = 0

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        asked = self._checker.families[-len(prompts) :]
        policy, candidate = (
            tuple(b"right" if self._rng.random() < chances[each] else b"wrong" for each in asked)
            for chances in self._chances
        )
        return policy, candidate

    async def promote(self) -> None:
        self.promoted += 1


@pytest.mark.parametrize("is_retired", [True, False])
async def test_a_candidate_does_not_have_to_keep_a_retired_family(tmp_path: Path, is_retired: bool) -> None:
    """Also not one that was known to be lost before the terms retired it."""
    assigned: Sequence[int] = range(len(NAMES))
    checker = SelfScored(NAMES)
    learner = Candidates(checker, LEVELS, (0.0, 0.9, 0.9, 0.9))
    promotion = Promotion(
        learner,
        checker,
        EventLog(tmp_path / "events.jsonl", clock=lambda: 0.0),
        families=len(NAMES),
        tasks=64,
        rng=random.Random(4),
        assigned=lambda: assigned,
    )
    for step in range(5):
        await promotion.after(step, has_candidate=True)
    before = len(checker.families)
    assert learner.promoted == 0
    if is_retired:
        assigned = LEFT
    for step in range(5, 15):
        await promotion.after(step, has_candidate=not learner.promoted)
    assert (learner.promoted == 1) is is_retired
    if is_retired:
        assert set(checker.families[before:]) == set(LEFT)
    [*_, last] = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    assert (last["spoilt"], last["unproven"]) == (([], []) if is_retired else ([RETIRED], [RETIRED]))


class Asked:
    """A policy that notes what it is asked, and answers rightly."""

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        return tuple(Generation(place, (b"right",)) for place, _ in enumerate(prompts))


@pytest.mark.parametrize(
    ("assigned", "asked"), [(None, {0, 1}), (lambda: LEFT, {1}), (lambda: (0, 1), set())]
)
async def test_retired_families_are_not_rehearsed(
    tmp_path: Path, assigned: Assigned | None, asked: set[int]
) -> None:
    """Where every family that tasks may have is solved, nothing is forgotten."""
    checker = SelfScored(NAMES)
    rehearsal = Rehearsal(
        Asked(),
        checker,
        EventLog(tmp_path / "events.jsonl", clock=lambda: 0.0),
        families=len(NAMES),
        success=lambda family: LEVELS[family] if family < 2 else 0.0,
        rng=random.Random(1),
        assigned=assigned,
    )
    rehearsal.missing = 16
    assert {each.family for each in await rehearsal.answers()} == asked == set(checker.families)
