"""Own steps for given answers: sampled with the answer as a hint, kept if they are right."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.oracle import Oracle
from sapo_client.learner.backend import Generation
from sapo_client.learner.wire import Refusal, RefusalReason
from sapo_client.node.training.rationalise import Rationaliser, hinted
from sapo_client.observe.events import EventLog
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.suites.catalogue import family
from sapo_verification.types import Demonstration

FAMILIES = (family("basic_arithmetic", "worked"), family("calendar_arithmetic", "worked"))


class Credulous:
    """A policy that writes steps and the answer that its hint names, and every third time another one."""

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        assert completions_per_prompt == 1
        return tuple(Generation(place, (own_text(prompt, place),)) for place, prompt in enumerate(prompts))


def own_text(prompt: str, place: int) -> bytes:
    answer = prompt.rstrip("\n").rpartition("(the answer is ")[2].removesuffix(")")
    return f"1+1:2<answer>{answer if place % 3 else 'no'}</answer>".encode()


def rationaliser(folder: Path) -> Rationaliser:
    events = EventLog(folder / "events.jsonl", clock=lambda: 0.0)
    return Rationaliser(Credulous(), LocalChecker(FAMILIES), events)


def test_right_own_texts_replace_the_given_answers(tmp_path: Path) -> None:
    shown = Oracle(FAMILIES, 24, lambda _family: 1.0).demonstrate(0, random.Random(1))
    assert {each.family for each in shown} == {0, 1}
    found = trio.run(rationaliser(tmp_path).own_solutions, shown)
    prompts = [hinted(each.prompt, each.answer.decode()) for each in shown]
    assert found == tuple(
        Demonstration(each.task, each.prompt, own_text(prompts[place], place), None)
        for place, each in enumerate(shown)
        if place % 3
    )


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("7 + 2 =\n", "7 + 2 = (the answer is 9)\n"), ("7 + 2 =", "7 + 2 = (the answer is 9)")],
)
def test_the_hint_is_inserted_before_the_end_of_the_line(prompt: str, expected: str) -> None:
    assert hinted(prompt, "9") == expected


def test_an_answer_that_cannot_be_scored_is_left_out(tmp_path: Path) -> None:
    (shown, *_) = Oracle(FAMILIES, 24, lambda _family: 1.0).demonstrate(0, random.Random(1))
    unknown = Demonstration(type(shown.task)(shown.family, 2**40), shown.prompt, shown.completion, None)
    with pytest.raises(CheckFailed):
        trio.run(LocalChecker(FAMILIES).prompt, unknown.task)
    assert trio.run(rationaliser(tmp_path).own_solutions, [unknown]) == ()


TOO_LONG = Refusal(RefusalReason.WINDOW, "the prompt and an answer exceed the window")


class Narrow(Credulous):
    """A policy whose window holds the first two prompts alone."""

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        answers = await super().generate(prompts, completions_per_prompt=completions_per_prompt)
        return (*answers[:2], *(Generation(each.handle, (), TOO_LONG) for each in answers[2:]))


def test_hinted_prompts_beyond_the_window_are_left_out(tmp_path: Path) -> None:
    shown = Oracle(FAMILIES, 24, lambda _family: 1.0).demonstrate(0, random.Random(1))
    events = EventLog(tmp_path / "events.jsonl", clock=lambda: 0.0)
    found = trio.run(Rationaliser(Narrow(), LocalChecker(FAMILIES), events).own_solutions, shown)
    assert [each.task for each in found] == [shown[1].task]
