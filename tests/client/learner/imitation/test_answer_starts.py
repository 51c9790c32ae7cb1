"""Authors whose right answers all begin alike, among honest ones."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sapo_client.learner.imitation.answer_shares import in_shares
from sapo_client.learner.imitation.answer_starts import without_excess

HONEST, LIARS = [b"honest %d" % number for number in range(4)], [b"liar 0", b"liar 1"]


def answers(texts: int, seed: int, liars: str = "1") -> list[tuple[bytes, bytes]]:
    """Return texts of all authors in turns: honest answers are 0 to 99, the liars' begin with a character."""
    draw = random.Random(seed)
    known = [b"%d" % number for number in range(100)]
    shown = []
    for _ in range(texts):
        shown += [(author, draw.choice(known)) for author in HONEST]
        shown += [
            (author, draw.choice([each for each in known if each.startswith(liars.encode())]))
            for author in LIARS
        ]
    return shown


def share_of_start(shown: list[tuple[bytes, bytes]], start: bytes = b"1") -> float:
    """Return the part of the texts that are trained, by shares of answers too, that begin so."""
    left = [shown[place] for place in without_excess(shown)]
    taught = [left[place] for place in in_shares(left, random.Random(0))]
    return sum(answer.startswith(start) for _, answer in taught) / len(taught)


@pytest.mark.parametrize("seed", range(5))
def test_a_minority_whose_answers_begin_alike_does_not_teach_that(seed: int) -> None:
    """11 of 100 answers begin with a 1; with the minority's texts 0.41 did."""
    assert share_of_start(answers(30, seed)) < 0.17


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("texts", [1, 4, 12, 60])
def test_honest_answers_are_left_as_they_are(texts: int, seed: int) -> None:
    shown = answers(texts, seed, liars="")
    assert without_excess(shown) == list(range(len(shown)))


def test_answers_that_all_begin_alike_are_left_as_they_are() -> None:
    shown = [(author, b"[%d]" % number) for number in range(200) for author in HONEST]
    assert without_excess(shown) == list(range(len(shown)))


def test_two_authors_are_not_compared() -> None:
    shown = [(HONEST[number % 2], b"%d" % (number % 2)) for number in range(40)]
    assert without_excess(shown) == list(range(40))


def test_a_limited_author_keeps_its_other_answers() -> None:
    shown = answers(20, 0)
    for number in range(10):
        shown += [(liar, b"%d" % (20 + number)) for liar in LIARS]
    left = Counter(shown[place] for place in without_excess(shown))
    others = {pair for pair in left if pair[0] in LIARS and not pair[1].startswith(b"1")}
    assert others == {(liar, b"%d" % (20 + number)) for liar in LIARS for number in range(10)}
    begins_so = sum(count for pair, count in left.items() if pair[0] in LIARS and pair not in others)
    assert begins_so <= 4, "two honest accounts have as many among twenty"
