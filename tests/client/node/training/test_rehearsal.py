"""Own right answers to own tasks, of the families that a node has solved."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from support.policies import make_policy_folder

from sapo_client.lab.checker import LocalChecker
from sapo_client.learner.backend import Generation
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import own_answer_message
from sapo_client.node.training.rehearsal import MAX_TASKS, SOLVED, Rehearsal
from sapo_client.observe.events import EventLog
from sapo_verification.suites.catalogue import family
from sapo_verification.types import OwnAnswer

NAMES = ("calendar_arithmetic", "basic_arithmetic", "fraction_simplification")
ARITHMETIC = 1


class Calculator:
    """A policy that computes every second expression rightly."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        assert completions_per_prompt == 1
        self.asked += prompts
        return tuple(Generation(place, (answer(prompt, place),)) for place, prompt in enumerate(prompts))


def answer(prompt: str, place: int) -> bytes:
    return str(eval(prompt.strip().rstrip("="))).encode() if place % 2 else b"?"  # own items


def rehearsal_of(policy: Calculator, folder: Path, solved: Sequence[int]) -> Rehearsal:
    return Rehearsal(
        policy,
        LocalChecker(tuple(family(name, "nano") for name in NAMES)),
        EventLog(folder / "events.jsonl", clock=lambda: 0.0),
        families=len(NAMES),
        success=lambda index: SOLVED if index in solved else SOLVED - 0.01,
        rng=random.Random(5),
    )


def test_right_answers_of_solved_families_are_returned(tmp_path: Path) -> None:
    policy = Calculator()
    rehearsal = rehearsal_of(policy, tmp_path, [ARITHMETIC])
    rehearsal.missing = 40
    found = trio.run(rehearsal.answers)
    assert len(policy.asked) == rehearsal.missing
    assert found == tuple(
        OwnAnswer(prompt, answer(prompt, place), ARITHMETIC)
        for place, prompt in enumerate(policy.asked)
        if place % 2
    )


def test_the_samples_of_a_round_are_bounded(tmp_path: Path) -> None:
    policy = Calculator()
    rehearsal = rehearsal_of(policy, tmp_path, [ARITHMETIC])
    rehearsal.missing = 10 * MAX_TASKS
    assert len(trio.run(rehearsal.answers)) == MAX_TASKS // 2
    assert len(policy.asked) == MAX_TASKS


@pytest.mark.parametrize(("solved", "missing"), [([], 40), ([0, 1, 2], 40), ([ARITHMETIC], 0)])
def test_no_answers_are_sampled_without_families_to_keep_or_to_learn(
    tmp_path: Path, solved: list[int], missing: int
) -> None:
    policy = Calculator()
    rehearsal = rehearsal_of(policy, tmp_path, solved)
    rehearsal.missing = missing
    assert trio.run(rehearsal.answers) == ()
    assert policy.asked == []


def test_all_answers_that_a_learner_was_handed_are_rehearsed(tmp_path: Path) -> None:
    service = Service(LearnerSettings(str(make_policy_folder(tmp_path / "model")), tmp_path / "run"))
    answers = [OwnAnswer(f"{number} + 1 =\n", str(number + 1).encode(), ARITHMETIC) for number in range(8)]
    report = service.train(groups=[], rehearsed=[own_answer_message(each) for each in answers])
    assert (report["own_answers_held"], report["own_answers_missing"]) == (len(answers), 0)
    own = service._trainer.own_successes
    assert len(own.draw({ARITHMETIC: 1.0}, 100, random.Random(0))) == len(answers)
