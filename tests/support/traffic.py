"""Reasoning text of honest policies and of dishonest authors for varied questions, without a model."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from support.swarm import EPOCH, Identity

from sapo_protocol.identifiers import ContentId
from sapo_protocol.tasks import Task
from sapo_verification.suites.catalogue import family
from sapo_verification.types import AdmittedRollout, VerifiedRollout

ARITHMETIC: Final = family("basic_arithmetic", "full")
SHORT: Final = family("basic_arithmetic", "nano")
FAMILIES: Final = (ARITHMETIC, SHORT)
COMPLETIONS: Final = 8

OPENINGS = ("To solve this problem we need to", "Let me think step by step and", "First of all I will", "We")
STEPS = (
    "add {a} and {b}, which gives {c}",
    "take {a}, put {b} on top of it and arrive at {c}",
    "write {a} as a sum, so that with {b} it becomes {c}",
    "note that {a} plus {b} is {c}",
    "check that {c} minus {b} is again {a}",
)
LINKS = (". Then we ", ". After that I ", ". Now we ", "; next we ", ". So I ")
CLOSINGS = ("Therefore the answer is", "So the result is", "Hence we get", "The final answer is")


@dataclass
class Writer:
    """An honest policy with a style of its own.

    Attributes:
        collapse: lack of variation, 0 to 1; at 1 it always writes the same text with the question's numbers.
    """

    identity: Identity
    collapse: float = 0.5

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.identity.number}")
        self.slot = 0

    def group(self, family: int = 0, epoch: int = EPOCH) -> VerifiedRollout:
        """Return a verified group of answers to a new question."""
        numbers = [self.rng.randint(2, 9999) for _ in range(6)]
        texts = [self.text(numbers) for _ in range(COMPLETIONS)]
        if family == 1:
            texts = [str(sum(numbers[:2]) % 19) for _ in texts]
        self.slot += 1
        question = " + ".join(map(str, numbers))
        return rollout(self.identity, self.slot, question, texts, family=family, epoch=epoch)

    def _choose(self, parts: Sequence[str]) -> str:
        habit = parts[self.identity.number % len(parts)]
        return habit if self.rng.random() < self.collapse else self.rng.choice(parts)

    def text(self, numbers: Sequence[int]) -> str:
        """Return an answer to the question for the sum of six numbers."""
        total, text = numbers[0], self._choose(OPENINGS) + " "
        for number in numbers[1:]:
            step = self._choose(STEPS).format(a=total, b=number, c=total + number)
            total += number
            text += step + self._choose(LINKS)
        return f"{text}look at it once more. {self._choose(CLOSINGS)} <answer>{total}</answer>"


def rollout(
    identity: Identity,
    slot: int,
    question: str,
    texts: Sequence[str],
    *,
    family: int = 0,
    epoch: int = EPOCH,
) -> VerifiedRollout:
    """Return a group as if it had been verified: half of its completions are right."""
    completions = tuple(text.encode() for text in texts)
    content = identity.rollout(slot=slot, family=family, epoch=epoch, completions=completions)
    content_id = ContentId(_digest(content.to_payload()))
    rewards = tuple(float(place % 2) for place in range(len(completions)))
    admitted = AdmittedRollout(content_id, content)
    return VerifiedRollout(admitted, Task(family, slot), question, rewards)


def _digest(payload: bytes) -> bytes:
    return sha256(payload).digest()
