"""Conditions under which weights trained on demonstrations become the policy."""

import json
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import trio

from sapo_client.lab.checker import LocalChecker
from sapo_client.learner.backend import LearnerCrashed
from sapo_client.node.training.family_evidence import Comparison
from sapo_client.node.training.promotion import FALSE_PROMOTIONS, Betterness, Promotion
from sapo_client.observe.events import EventLog
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.jail.messages import Checked, Failure
from sapo_verification.suites.catalogue import family

NAMES = ("basic_arithmetic", "fraction_simplification")
TASKS = 32
ROUNDS = 96

Answerer = Callable[[int, str], bytes]
"""Returns the answer to the prompt at a place."""


def right(prompt: str) -> bytes:
    """Return the right answer to an item of either family."""
    asked = prompt.strip()
    return str(eval(asked.rstrip("=")) if asked.endswith("=") else Fraction(asked)).encode()  # own items


def knows(share: int) -> Answerer:
    """Return an answerer that is right in every so-manieth place."""
    return lambda place, prompt: right(prompt) if share and place % share == 0 else b"?"


class TwoPolicies:
    """A learner with a policy and a candidate, of which one call may fail."""

    def __init__(self, policy: Answerer, candidate: Answerer) -> None:
        self.answerers = [policy, candidate]
        self.asked: list[list[str]] = []
        self.promoted = 0
        self.crashes = 0

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        if self.crashes:
            self.crashes -= 1
            raise LearnerCrashed("it died")
        self.asked.append(list(prompts))
        policy, candidate = (
            tuple(each(place, prompt) for place, prompt in enumerate(prompts)) for each in self.answerers
        )
        return policy, candidate

    async def promote(self) -> None:
        self.promoted += 1


class Drawn(LocalChecker):
    """Notes the tasks whose prompts are derived."""

    def __init__(self) -> None:
        super().__init__(tuple(family(name, "nano") for name in NAMES))
        self.tasks: list[Task] = []

    async def prompt(self, task: Task) -> str:
        self.tasks.append(task)
        return await super().prompt(task)


def promotion_of(
    learner: TwoPolicies, folder: Path, checker: Drawn | None = None, tasks: int = TASKS
) -> Promotion:
    return Promotion(
        learner,
        checker or Drawn(),
        EventLog(folder / "events.jsonl", clock=lambda: 0.0),
        families=len(NAMES),
        tasks=tasks,
        rng=random.Random(5),
    )


def events(folder: Path) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [{key: value for key, value in each.items() if key not in ("time", "seq")} for each in found]


def after(promotion: Promotion, rounds: int, *, has_candidate: bool = True) -> None:
    for _ in range(rounds):
        trio.run(partial(promotion.after, 7, has_candidate=has_candidate))


def test_a_candidate_that_is_better_becomes_the_policy(tmp_path: Path) -> None:
    learner = TwoPolicies(knows(4), knows(2))
    promotion = promotion_of(learner, tmp_path)
    after(promotion, 1)
    assert learner.promoted == 0
    after(promotion, 1)
    assert learner.promoted == 1
    compared = {"event": "candidate_compared", "step": 7, "tasks": TASKS, "both": 8, "won": 8, "lost": 0}
    assert events(tmp_path) == [
        compared | {"promoted": last, "spoilt": [], "unproven": []} for last in (False, True)
    ]
    assert [len(prompts) for prompts in learner.asked] == [TASKS] * 2


@pytest.mark.parametrize("candidate", [knows(4), knows(8), knows(0)], ids=["as good", "worse", "ruined"])
def test_a_candidate_that_is_not_better_is_never_promoted(tmp_path: Path, candidate: Answerer) -> None:
    learner = TwoPolicies(knows(4), candidate)
    after(promotion_of(learner, tmp_path), ROUNDS)
    assert learner.promoted == 0


def sometimes(seed: int) -> Answerer:
    """Return an answerer that is right on half of the items, in places of its own."""
    drawn = random.Random(seed)
    return lambda _, prompt: right(prompt) if drawn.random() < 0.5 else b"?"


def test_few_equal_candidates_with_other_errors_are_promoted_by_chance(tmp_path: Path) -> None:
    """An attacker may wait for chance: from the promotion on its texts change the policy itself."""
    learners = [TwoPolicies(sometimes(seed), sometimes(100 + seed)) for seed in range(8)]
    for learner in learners:
        after(promotion_of(learner, tmp_path), ROUNDS)
    assert sum(bool(learner.promoted) for learner in learners) <= 1


def test_a_small_gain_takes_more_comparisons(tmp_path: Path) -> None:
    """One task of 32 more in each: seven wins prove little, eight are sure."""

    def one_more(place: int, prompt: str) -> bytes:
        return right(prompt) if place % 4 == 0 or place == 1 else b"?"

    learner = TwoPolicies(knows(4), one_more)
    promotion = promotion_of(learner, tmp_path)
    after(promotion, 7)
    assert learner.promoted == 0
    after(promotion, 1)
    assert learner.promoted == 1


def test_evidence_from_before_a_candidate_improved_is_dropped(tmp_path: Path) -> None:
    learner = TwoPolicies(knows(2), knows(0))
    promotion = promotion_of(learner, tmp_path)
    after(promotion, ROUNDS)
    learner.answerers[1] = knows(1)
    after(promotion, 1)
    assert learner.promoted == 0
    after(promotion, 2)
    assert learner.promoted == 1


@pytest.mark.parametrize("dropped", [False, True])
def test_the_evidence_of_the_next_candidate_starts_again(tmp_path: Path, *, dropped: bool) -> None:
    """After the promotion of the one before, or after it was dropped."""
    learner = TwoPolicies(knows(4), knows(2))
    promotion = promotion_of(learner, tmp_path)
    after(promotion, 2 - dropped)
    after(promotion, 1, has_candidate=False)
    assert (learner.promoted, len(learner.asked)) == (1 - dropped, 2 - dropped)
    after(promotion, 1)
    assert learner.promoted == 1 - dropped
    after(promotion, 1)
    assert learner.promoted == 2 - dropped


def test_tasks_are_fresh_and_of_all_families_in_turn(tmp_path: Path) -> None:
    checker = Drawn()
    after(promotion_of(TwoPolicies(knows(4), knows(4)), tmp_path, checker), 3)
    assert [task.family for task in checker.tasks] == [0, 1] * (3 * TASKS // 2)
    assert len({task.seed for task in checker.tasks}) == 3 * TASKS


def test_fewer_tasks_than_families_leave_none_out(tmp_path: Path) -> None:
    """Each comparison goes on with the family at which the one before ended."""
    checker = Drawn()
    after(promotion_of(TwoPolicies(knows(4), knows(4)), tmp_path, checker, tasks=1), 4)
    assert [task.family for task in checker.tasks] == [0, 1, 0, 1]


def test_a_learner_that_dies_meanwhile_is_asked_again_after_the_next_round(tmp_path: Path) -> None:
    learner = TwoPolicies(knows(4), knows(2))
    promotion = promotion_of(learner, tmp_path)
    after(promotion, 1)
    learner.crashes = 1
    with pytest.raises(LearnerCrashed):
        after(promotion, 1)
    after(promotion, 1)
    assert learner.promoted == 1
    assert [each["promoted"] for each in events(tmp_path)] == [False, True]


class Breaking(Drawn):
    """Has no prompt for every third task, and cannot check a certain answer."""

    async def prompt(self, task: Task) -> str:
        prompt = await super().prompt(task)
        if len(self.tasks) % 3 == 0:
            raise CheckFailed(Failure.UNDERIVABLE)
        return prompt

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        for failure in (Failure.CRASH, Failure.NODE_BUSY):
            if failure.value.encode() in completions:
                raise CheckFailed(failure)
        return await super().check(task, completions)


def test_tasks_without_a_prompt_are_left_out_and_answers_that_break_a_checker_are_wrong(
    tmp_path: Path,
) -> None:
    learner = TwoPolicies(knows(1), lambda place, prompt: right(prompt) if place else b"crash")
    promotion = promotion_of(learner, tmp_path, Breaking())
    after(promotion, 1)
    tasks = TASKS - TASKS // 3
    assert events(tmp_path) == [
        {"event": "comparison_failed", "family": 0, "detail": str(CheckFailed(Failure.CRASH))},
        {"event": "candidate_compared", "step": 7, "promoted": False, "spoilt": [], "unproven": [0, 1]}
        | {"tasks": tasks, "both": tasks - 1, "won": 0, "lost": 1},
    ]


def test_an_undecided_task_counts_for_neither_policy(tmp_path: Path) -> None:
    learner = TwoPolicies(lambda place, prompt: right(prompt) if place else b"node_busy", knows(1))
    promotion = promotion_of(learner, tmp_path, Breaking())
    after(promotion, 1)
    compared = {"tasks": (tasks := TASKS - TASKS // 3 - 1), "both": tasks, "won": 0, "lost": 0}
    assert events(tmp_path) == [
        {"event": "comparison_failed", "family": 0, "detail": str(CheckFailed(Failure.NODE_BUSY))},
        {"event": "candidate_compared", "step": 7, "promoted": False, "spoilt": [], "unproven": [0, 1]}
        | compared,
    ]


Chances = Sequence[tuple[float, float]]
"""For each of the tasks in turn: that the candidate alone solves it, and that the policy alone does."""


def promoted_after(chances: Chances, seed: int, rounds: int) -> int | None:
    """Return the round in which a candidate is promoted, None if it is not."""
    rng, betterness = random.Random(seed), Betterness()
    for number in range(rounds):
        drawn = [(rng.random(), *chances[place % len(chances)]) for place in range(2 * TASKS)]
        won = sum(chance < wins for chance, wins, _ in drawn)
        lost = sum(wins <= chance < wins + losses for chance, wins, losses in drawn)
        if betterness.shows(Comparison(2 * TASKS, 0, won, lost)):
            return number + 1
    return None


@pytest.mark.parametrize(
    "chances",
    [[(0.25, 0.25)], [(0.02, 0.02)], [(0.3, 0.0), (0.0, 0.3)]],
    ids=["often different", "rarely different", "better and worse in families"],
)
def test_few_equal_candidates_are_ever_promoted(chances: Chances) -> None:
    """A test of 1 % in each of a hundred rounds would promote a half of them."""
    candidates = 200
    promoted = sum(promoted_after(chances, seed, 200) is not None for seed in range(candidates))
    assert promoted <= FALSE_PROMOTIONS * candidates


@pytest.mark.parametrize(
    ("chances", "rounds"),
    [([(0.2, 0.05)], 3), ([(0.15, 0.1)], 25), ([(0.12, 0.09)], 61)],
    ids=["much better", "by five points of a hundred", "by three"],
)
def test_most_better_candidates_are_promoted_within_the_stated_rounds(chances: Chances, rounds: int) -> None:
    candidates = 100
    promoted = sum(promoted_after(chances, seed, rounds) is not None for seed in range(candidates))
    assert promoted >= 0.85 * candidates
