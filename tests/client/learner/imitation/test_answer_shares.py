"""Shares of answers: an account that selects its right answers cannot shift an answer's share by much."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.lab.held_out import fresh_item
from sapo_client.learner.imitation.answer_shares import (
    MIN_ANSWERS,
    USUAL_ANSWERS,
    in_shares,
    usual_form,
)
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.generators import solution
from sapo_verification.tasks.scorers import score

Shown = list[tuple[bytes, bytes]]

DAYS = [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"]
SPELLINGS = (str.upper, str.lower, str.title, str.swapcase, "0{}".format, "{}.0".format, "+{}".format)


def shown_by(accounts: Iterable[str], answers: Sequence[bytes]) -> Shown:
    """Return each account's texts with such answers."""
    return [(account.encode(), answer) for account in accounts for answer in answers]


def quotas(shown: Shown) -> Counter[bytes]:
    """Return how many texts of each answer may teach."""
    return Counter(shown[place][1] for place in in_shares(shown, random.Random(0)))


def share(shown: Shown, answer: bytes) -> Fraction:
    left = quotas(shown)
    return Fraction(left[answer], left.total())


@pytest.mark.parametrize("liars", ["x", "xy"])
def test_a_minority_that_shows_one_answer_does_not_make_it_frequent(liars: str) -> None:
    shown = shown_by("abc", DAYS * 6) + shown_by(liars, [b"Sunday"] * 42)
    assert quotas(shown) == Counter(dict.fromkeys(DAYS[:-1], 18) | {b"Sunday": 21})


def test_half_of_the_other_accounts_are_not_a_majority() -> None:
    """Two attackers among four others are two of five."""
    shown = shown_by("ab", DAYS * 6) + shown_by("xy", [b"Sunday"] * 42)
    assert quotas(shown) == Counter(dict.fromkeys(DAYS[:-1], 12) | {b"Sunday": 14})


def test_a_minority_does_not_raise_an_answer_to_the_most_that_an_honest_account_shows() -> None:
    """By chance an account has three Sundays in fourteen texts, and another none."""
    shown = [
        *shown_by("a", DAYS[:-1] * 2 + [DAYS[0], DAYS[1]]),
        *shown_by("b", DAYS * 2),
        *shown_by("c", [*DAYS[:-1], *DAYS[:5], *[b"Sunday"] * 3]),
        *shown_by("xy", [b"Sunday"] * 14),
    ]
    assert share(shown, b"Sunday") <= Fraction(1, 6)


def test_a_majority_has_a_quarter_and_no_more() -> None:
    shown = shown_by("ab", DAYS * 6) + shown_by("xyz", [b"Sunday"] * 42)
    assert quotas(shown) == Counter(dict.fromkeys(DAYS[:-1], 12) | {b"Sunday": 24})


def test_answers_that_most_accounts_show_often_keep_their_share() -> None:
    shown = shown_by("abc", [b"no"] * 5 + [b"%d" % n for n in range(15)])
    assert quotas(shown) == Counter(answer for _, answer in shown)


def test_a_rare_answer_does_not_decide_how_often_the_others_are_shown() -> None:
    shown = [*shown_by("abc", DAYS[:-1] * 6), (b"a", b"Sunday")]
    assert quotas(shown) == Counter(dict.fromkeys(DAYS[:-1], 18) | {b"Sunday": 1})


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([*DAYS, b"1", b"2"]))))
def test_no_answer_has_more_than_a_quarter_and_the_largest_number_of_texts_is_kept(shown: Shown) -> None:
    counts, left = Counter(answer for _, answer in shown), quotas(shown)
    assert all(MIN_ANSWERS * count <= left.total() for count in left.values())
    assert all(left[answer] <= count for answer, count in counts.items())
    if all(USUAL_ANSWERS * count <= counts.total() for count in counts.values()):
        assert left == counts


@pytest.mark.parametrize("name", ["color_cube_rotation", "needle_haystack", "chain_sum", "number_format"])
def test_spellings_that_a_scorer_accepts_are_one_answer(name: str) -> None:
    of, source = family(name, "easy"), random.Random(0)
    accepted = 0
    for _ in range(20):
        item = fresh_item(of, source)[1]
        right = solution(of, item)
        assert right is not None
        spelt = {spell(right) for spell in SPELLINGS} - {right}
        taken = [text for text in spelt if score(of, text, item.entry) == 1.0]
        accepted += len(taken)
        assert {usual_form(text.encode()) for text in taken} <= {usual_form(right.encode())}
    assert accepted, "the scorer accepts one spelling, so nothing is tried here"
