"""A candidate that has lost a family is not promoted for what it gained in others."""

import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
import trio
from support.self_scored import SelfScored

from sapo_client.node.training.family_evidence import FALSE_WAITS, BestLevels, Comparison, Kept, Losses
from sapo_client.node.training.promotion import Promotion
from sapo_client.observe.events import EventLog

NAMES = ("basic_arithmetic", "fraction_simplification", "calendar_arithmetic", "decimal_arithmetic")
TASKS = 64
KNOWN = 0
"""The family that the policy knows."""

Chances = Mapping[int, tuple[float, float]]
"""By family: how often the policy is right, and how often its candidate."""

GAINED = dict.fromkeys(range(1, len(NAMES)), (0.1, 0.6))
"""What others teach in the other families."""


class Pupil:
    """A learner whose policy and candidate are right with given chances in each family."""

    def __init__(self, checker: SelfScored, chances: Chances, seed: int) -> None:
        self.checker, self.chances, self._rng = checker, dict(chances), random.Random(seed)
        self.promoted = 0
        self._done = 0

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        asked = self.checker.families[self._done :]
        self._done = len(self.checker.families)
        assert len(asked) == len(prompts)
        policy, candidate = (
            tuple(b"right" if self._rng.random() < self.chances[each][which] else b"wrong" for each in asked)
            for which in (0, 1)
        )
        return policy, candidate

    async def promote(self) -> None:
        self.promoted += 1


def compared(folder: Path, chances: Chances, seed: int = 0, tasks: int = TASKS) -> tuple[Promotion, Pupil]:
    checker = SelfScored(NAMES)
    pupil = Pupil(checker, chances, seed)
    events = EventLog(folder / "events.jsonl", clock=lambda: 0.0)
    promotion = Promotion(pupil, checker, events, families=len(NAMES), tasks=tasks, rng=random.Random(seed))
    return promotion, pupil


def rounds_until(promotion: Promotion, pupil: Pupil, most: int) -> int | None:
    """Return after how many rounds the candidate was promoted, None if it was not."""
    for number in range(1, most + 1):
        trio.run(partial(promotion.after, number, has_candidate=True))
        if pupil.promoted:
            return number
    return None


@pytest.mark.parametrize("seed", range(5))
def test_a_coalition_that_teaches_three_families_and_ruins_one_gets_no_promotion(
    tmp_path: Path, seed: int
) -> None:
    """Of 64 tasks in a round the candidate wins 24 and loses 13: it is surely better, over all."""
    promotion, pupil = compared(tmp_path, {KNOWN: (0.8, 0.0), **GAINED}, seed)
    assert rounds_until(promotion, pupil, 12) is None
    [*_, last] = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert last["spoilt"] == [KNOWN]


@pytest.mark.parametrize("seed", range(5))
def test_a_candidate_that_keeps_most_of_the_family_is_promoted_as_before(tmp_path: Path, seed: int) -> None:
    promotion, pupil = compared(tmp_path, {KNOWN: (0.8, 0.65), **GAINED}, seed)
    assert (rounds_until(promotion, pupil, 3) or 9) <= 3


def test_a_candidate_that_relearns_the_family_is_promoted(tmp_path: Path) -> None:
    promotion, pupil = compared(tmp_path, {KNOWN: (0.8, 0.0), **GAINED})
    assert rounds_until(promotion, pupil, 40) is None
    pupil.chances[KNOWN] = (0.8, 0.7)
    assert (rounds_until(promotion, pupil, 4) or 9) <= 4


def test_evidence_against_a_candidate_does_not_count_for_the_next_one(tmp_path: Path) -> None:
    promotion, pupil = compared(tmp_path, {KNOWN: (0.8, 0.0), **GAINED})
    assert rounds_until(promotion, pupil, 8) is None
    trio.run(partial(promotion.after, 9, has_candidate=False))
    pupil.chances[KNOWN] = (0.8, 0.8)
    assert (rounds_until(promotion, pupil, 3) or 9) <= 3


def test_tasks_of_every_family_are_compared_before_a_promotion(tmp_path: Path) -> None:
    """In a suite of many families a round has too few of each to see that one was lost."""
    promotion, pupil = compared(tmp_path, {KNOWN: (0.8, 0.7), **GAINED}, tasks=16)
    assert rounds_until(promotion, pupil, 3) is None
    assert (rounds_until(promotion, pupil, 5) or 9) <= 5


@pytest.mark.parametrize(("policy", "candidate"), [(0.8, 0.4), (0.3, 0.15), (0.1, 0.05), (0.5, 0.5)])
def test_a_candidate_that_keeps_half_of_a_family_rarely_waits(policy: float, candidate: float) -> None:
    """In any number of rounds: 5 % in the mean, where exactly a half is kept."""
    spoilt = 0
    for seed in range(200):
        rng, losses = random.Random(seed), Losses(1)
        found = False
        for _ in range(60):
            both = won = lost = 0
            for _ in range(16):
                mine, its = rng.random() < policy, rng.random() < candidate
                both, won, lost = both + (mine and its), won + (its and not mine), lost + (mine and not its)
            losses.learn({0: Comparison(16, both, won, lost)})
            found |= bool(losses.spoilt)
        spoilt += found
    assert spoilt <= 1.5 * FALSE_WAITS * 200


def test_a_level_is_measured_from_sixteen_tasks_on_and_before_it_nothing_is_kept() -> None:
    levels = BestLevels([0.0, 0.0, 0.0])
    nothing_known = Comparison(40, 0, 30, 0)
    assert not levels.may_be_kept_by_old(0, nothing_known)
    levels.learn({0: Comparison(15, 15, 0, 0), 1: Comparison(16, 10, 0, 6), 2: Comparison(16, 3, 5, 2)})
    surely = 1 / (1 + 2.5**2 / 16)  # Wilson's lower bound of sixteen of sixteen
    assert list(levels.levels) == pytest.approx([0.0, surely, 0.0])
    assert levels.part_of(1) == pytest.approx(surely / 2)
    assert levels.may_be_kept_by_old(1, Comparison(16, 4, 0, 0))
    assert not levels.may_be_kept_by_old(1, Comparison(400, 40, 0, 0))


@pytest.mark.parametrize(("right", "unproven"), [(4, []), (8, [0])])
def test_a_family_asks_for_a_proof_if_the_old_policy_may_know_it(right: int, unproven: list[int]) -> None:
    """Of forty tasks: Wilson's upper bound at 1.5 deviations is 0.19 for four, 0.31 for eight."""
    kept = Kept(1, BestLevels([0.0]))
    kept.learn({0: Comparison(40, 0, 0, right)})
    assert kept.unproven == unproven


@pytest.mark.parametrize(("right", "unproven"), [(160, []), (68, [0])])
def test_half_of_the_best_level_has_to_be_proven_whoever_was_right_on_the_same_tasks(
    right: int, unproven: list[int]
) -> None:
    """Of two hundred tasks; the level is 0.8. The old policy is right where the new one is."""
    kept = Kept(1, BestLevels([0.8]))
    for _ in range(4):
        kept.learn({0: Comparison(50, right // 4, 0, 0)})
    assert kept.unproven == unproven
