"""Documents for the packaged policies' pretraining: items with answers of three kinds of author.

A pretrained language model often samples wrong answers to tasks that it can solve: its corpus contains right
answers, guesses, and right answers in a form that a checker cannot read. This corpus has the same three kinds
of author, so that reinforcement learning can find the right answers:

* the *careful* author writes the answer and stops;
* the *chatty* author writes the answer inside a phrase, which scores 0;
* the *guesser* writes the answer of another item of the family.

At the level ``worked`` an answer is the worked solution of ``worked/solutions.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_protocol.suite import Family
from sapo_verification.tasks.generators import Item, Underivable, derive, solution

SEED_BITS: Final = 31

PHRASES: Final = ("= {}", "{}.", "it is {}", "{} {}", "answer {}", "I say {}!")


Author = Callable[[Family, Item], str | None]
"""Writes the right completion of an item; None where the item has no solution."""


@dataclass(frozen=True, slots=True)
class Document:
    """An item's prompt with its solution."""

    family: str
    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Authors:
    """Shares of the authors in the corpus; the careful author writes the rest.

    Raises:
        SapoError: the sum of the shares is above 1.
    """

    chatty: float
    guesser: float

    def __post_init__(self) -> None:
        if self.chatty + self.guesser > 1:
            raise SapoError(
                f"shares of {self.chatty} and {self.guesser} are more than the whole corpus",
                hint="--chatty and --guesser must add up to at most 1; the careful author writes the rest",
                exit_code=ExitCode.USAGE,
            )


def documents(
    families: Sequence[Family], per_family: int, seed: int, author: Author = solution
) -> dict[str, list[Document]]:
    """Return ``per_family`` items of every family, solved by an author, at seeds drawn from one root seed."""
    return {family.name: _of_family(family, per_family, seed, author) for family in families}


def _of_family(family: Family, count: int, seed: int, author: Author) -> list[Document]:
    draw = random.Random(f"{seed}/{family.name}")
    found: list[Document] = []
    while len(found) < count:
        try:
            item = derive(family, draw.getrandbits(SEED_BITS))
        except Underivable:
            continue
        answer = author(family, item)
        if answer is not None:
            found.append(Document(family.name, item.prompt, answer))
    return found


def completion(
    document: Document, siblings: Sequence[Document], authors: Authors, draw: random.Random
) -> str:
    """Return the answer of a randomly chosen author to a document's prompt."""
    place = draw.random()
    if place < authors.chatty:
        return draw.choice(PHRASES).replace("{}", document.answer)
    if place < authors.chatty + authors.guesser:
        return draw.choice(siblings).answer
    return document.answer
