"""A majority of accounts that mislead: detected by packaged policies in the families that they know."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from sapo_client.lab.held_out import fresh_item
from sapo_client.lab.worked.solutions import worked_solution
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer
from sapo_protocol.identifiers import Account
from sapo_verification.sampling.step_values import JudgedSteps, StepValue, StepValues
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.text_policy import OPEN_TAG

KNOWN = ("basic_arithmetic", "fraction_simplification")
OWN, ANOTHER_NOTATION, HONEST, HOSTILE = 0, 1, (2, 3), range(4, 11)
SIGNS = str.maketrans({":": "=", ",": ";", "+": "&", "/": "|"})


class Writers:
    """Accounts that show right answers; the hostile ones put the steps of other items before them."""

    def __init__(self) -> None:
        self._policy = load_policy("specialist-a", "cpu")
        settings = LearnerSettings("specialist-a", Path(), max_new_tokens=100, shows_steps=True)
        self._supervised = Trainer(self._policy, settings).supervised
        self._families = [family(name, "worked") for name in KNOWN]
        self._rng = random.Random("writers")

    def read(self, numbers: Iterable[int]) -> list[JudgedSteps]:
        """Return what a text of each account and family is worth to the policy."""
        texts = [self._text(number, index) for number in numbers for index in range(len(KNOWN))]
        values = self._supervised.values(texts)
        return [
            (Account(text.author), text.family, StepValue(*value))
            for text, value in zip(texts, values, strict=True)
            if value is not None
        ]

    def _text(self, number: int, index: int) -> DemonstrationText:
        prompt, steps, answer = self._solution(index)
        if number in HOSTILE:
            _, steps, _ = self._solution(index)
        if number == ANOTHER_NOTATION:
            steps = steps.translate(SIGNS)
        length = len(self._policy.encode_completion(steps + OPEN_TAG, 1000)) - 1
        completion = self._policy.encode_completion(steps + OPEN_TAG + answer, 1000)
        tokens = self._policy.encode_prompt(prompt)
        return DemonstrationText(tokens, completion, index, bytes(account(number)), steps=length)

    def _solution(self, index: int) -> tuple[str, str, str]:
        while True:
            _, item = fresh_item(self._families[index], self._rng)
            steps, _, answer = (worked_solution(self._families[index], item) or "").partition(OPEN_TAG)
            if steps:
                return item.prompt, steps, answer


def account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


@pytest.fixture(scope="module")
def writers() -> Writers:
    return Writers()


def test_compared_with_own_steps_only_accounts_with_steps_of_other_items_are_detected(
    writers: Writers,
) -> None:
    values = StepValues()
    for _ in range(32):
        read = writers.read([OWN, ANOTHER_NOTATION, *HONEST, *HOSTILE])
        own, others = read[: len(KNOWN)], read[len(KNOWN) :]
        values.learn_known([(index, value) for _, index, value in own], others)
    hostile = {account(number) for number in HOSTILE}
    assert values.unrelated() == hostile
    assert values.misleading() == {(each, index) for each in hostile for index in range(len(KNOWN))}


def test_compared_with_a_hostile_majority_no_account_is_detected(writers: Writers) -> None:
    values = StepValues()
    for _ in range(32):
        values.learn(writers.read([*HONEST, *HOSTILE]))
    assert values.unrelated() == frozenset()
