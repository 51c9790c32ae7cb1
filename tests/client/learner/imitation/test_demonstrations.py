"""Demonstrations: the buffer and its shares, the need of a family, and what a step draws."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.learner.baseline import MIN_SAMPLES, Baselines, FamilyBaseline
from sapo_client.learner.imitation.answer_shares import MIN_ANSWERS
from sapo_client.learner.imitation.demonstrations import (
    DemonstrationBuffer,
    DemonstrationText,
    balanced,
    is_solved,
    need,
)

ANN, BOB, CAT = b"ann", b"bob", b"cat"


def text(author: bytes, number: int, family: int = 0, answer: int = 9) -> DemonstrationText:
    return DemonstrationText((1, number), (answer, 0), family, author, b"%d" % number)


def test_a_flood_of_one_account_displaces_only_its_own_texts() -> None:
    honest = [text(author, number) for number in range(4) for author in (ANN, BOB)]
    flood = [text(CAT, number) for number in range(100)]
    buffer = DemonstrationBuffer(12, [*honest[:4], *flood[:50], *honest[4:], *flood[50:]])
    expected = [text(author, number) for author in (ANN, BOB) for number in range(4)] + flood[-4:]
    assert list(buffer) == expected


def test_an_account_that_filled_the_buffer_is_evicted_down_to_an_equal_share() -> None:
    texts = [text(ANN, number) for number in range(12)] + [text(BOB, number) for number in range(30)]
    expected = [text(ANN, number) for number in range(6, 12)] + [
        text(BOB, number) for number in range(24, 30)
    ]
    assert list(DemonstrationBuffer(12, texts)) == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=200), st.integers(1, 40))
def test_accounts_within_an_equal_share_lose_nothing(arrivals: list[tuple[int, int]], capacity: int) -> None:
    texts = [text(bytes([author]), number) for author, number in arrivals]
    buffer = DemonstrationBuffer(capacity, texts)
    sent, held = (Counter(each.author for each in source) for source in (set(texts), buffer))
    assert len(buffer) == held.total() == min(capacity, sent.total())
    share = capacity // max(1, len(sent))
    assert all(held[author] >= min(count, share) for author, count in sent.items())


def test_an_author_has_each_text_once_as_its_newest() -> None:
    texts = [text(ANN, 1, answer=5), text(BOB, 1, answer=5), text(ANN, 2), text(ANN, 1, answer=5)]
    buffer = DemonstrationBuffer(9, texts)
    assert (len(buffer), list(buffer)) == (3, [text(ANN, 2), text(ANN, 1, answer=5), text(BOB, 1, answer=5)])


def test_a_buffer_restored_from_bytes_keeps_its_eviction_order() -> None:
    buffer = DemonstrationBuffer(5, [text(author, n, n % 3) for n in range(4) for author in (CAT, ANN)])
    again = DemonstrationBuffer.from_bytes(5, buffer.to_bytes())
    for each in (buffer, again):
        for number in range(3):
            each.add(text(BOB, number))
    assert list(again) == list(buffer)
    assert list(DemonstrationBuffer.from_bytes(2, buffer.to_bytes())) == list(DemonstrationBuffer(2, buffer))


def test_forgetting_a_family_keeps_the_order_of_the_others() -> None:
    texts = [text(author, number, number % 3) for author in (ANN, BOB) for number in range(6)]
    buffer = DemonstrationBuffer(20, texts)
    buffer.forget({0, 2})
    assert (list(buffer), len(buffer), buffer.families()) == (
        [one for one in texts if one.family == 1],
        4,
        {1},
    )


def test_accounts_take_turns_within_a_family() -> None:
    buffer = DemonstrationBuffer(99, [text(ANN, number) for number in range(40)])
    for number in range(3):
        buffer.add(text(BOB, number))
    for count, shares in ((6, {ANN: 3, BOB: 3}), (20, {ANN: 17, BOB: 3})):
        drawn = buffer.draw({0: 0.5}, count, random.Random(3))
        assert Counter(each.author for each in drawn) == shares
        assert len(set(drawn)) == count


def test_families_are_drawn_by_need() -> None:
    buffer = DemonstrationBuffer(4000, [text(ANN, number, number % 4) for number in range(4000)])
    drawn = buffer.draw({0: 0.9, 1: 0.3, 2: 0.0}, 800, random.Random(5))
    counts = Counter(each.family for each in drawn)
    assert counts.keys() == {0, 1}
    assert counts[0] / 800 == pytest.approx(0.75, abs=0.05)


def test_a_draw_takes_at_most_all_texts_and_is_repeatable() -> None:
    texts = [text(author, number, number % 2) for author in (ANN, BOB) for number in range(8)]
    buffer = DemonstrationBuffer(20, texts)
    drawn = buffer.draw({0: 0.2, 1: 0.8, 7: 1.0}, 64, random.Random(1))
    assert sorted(drawn, key=texts.index) == texts
    assert drawn == buffer.draw({0: 0.2, 1: 0.8, 7: 1.0}, 64, random.Random(1))
    assert drawn != buffer.draw({0: 0.2, 1: 0.8, 7: 1.0}, 64, random.Random(2))
    assert DemonstrationBuffer(20).draw({0: 1.0}, 64, random.Random(1)) == []


@pytest.mark.parametrize(
    ("mean", "samples", "expected"),
    [
        (0.0, 0, 0.0),  # nothing is known
        (0.0, 12, 0.0),  # if the other 20 were right, 62 % would be
        (0.0, 13, 13 / 32),
        (0.5, 16, 0.0),
        (0.25, MIN_SAMPLES, 0.75),
        (0.59, 500, 0.41),
        (0.6, 500, 0.0),
    ],
)
def test_need_follows_the_own_failure_rate_and_sample_count(
    mean: float, samples: int, expected: float
) -> None:
    assert need(Baselines({3: FamilyBaseline(mean, samples)}), 3, 0.6) == pytest.approx(expected)


def test_an_unmeasured_family_is_not_solved() -> None:
    lucky, able = FamilyBaseline(1.0, MIN_SAMPLES - 1), FamilyBaseline(0.6, MIN_SAMPLES)
    baselines = Baselines({0: lucky, 1: able, 2: FamilyBaseline(0.59, 900)})
    assert [is_solved(baselines, family, 0.6) for family in range(4)] == [False, True, False, False]
    assert need(baselines, 9, 0.6) == 0.0, "a family without own completions"


def of_answers(answers: str) -> list[DemonstrationText]:
    """Return a text for each letter, which is its answer."""
    return [
        DemonstrationText((number,), (9, 0), 0, ANN, letter.encode()) for number, letter in enumerate(answers)
    ]


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("abcd", "abcd"),
        ("aaaa", ""),
        ("aabbcc", ""),
        ("aaaaaaaaaabcd", "abcd"),
        ("aabbccdd", "aabbccdd"),
        ("abacadaeaf", "abcdef"),
        ("", ""),
    ],
)
def test_no_answer_exceeds_its_share_of_the_trained_texts(shown: str, kept: str) -> None:
    taught = balanced(of_answers(shown), random.Random(0))
    assert "".join(sorted(each.answer.decode() for each in taught)) == "".join(sorted(kept))


@pytest.mark.parametrize("texts", [2, 10, 60])
def test_the_share_of_an_answer_does_not_depend_on_the_number_of_draws(texts: int) -> None:
    """Two of five accounts show one of seven answers only. Accounts take turns; a step draws few texts."""
    drawn: Counter[bytes] = Counter()
    for seed in range(200):
        source = random.Random(seed)
        buffer = DemonstrationBuffer()
        for number in range(60):
            for author in (ANN, BOB, CAT):
                answer = b"%d" % source.randrange(7)
                buffer.add(DemonstrationText((number,), (9, 0), 0, author, answer))
        for number in range(texts):
            for author in (b"x", b"y"):
                buffer.add(DemonstrationText((number,), (9, 0), 0, author, b"0"))
        drawn.update(each.answer for each in buffer.draw({0: 1.0}, 8, source))
    assert drawn[b"0"] / drawn.total() < 0.2, "two in five accounts, and one in seven answers of the others"


@given(st.text("abcdefg", max_size=80))
def test_balancing_limits_each_answer_and_keeps_balanced_texts_unchanged(shown: str) -> None:
    counts = Counter(each.answer for each in balanced(of_answers(shown), random.Random(0)))
    assert all(MIN_ANSWERS * count <= counts.total() for count in counts.values())
    before = Counter(shown)
    if before and MIN_ANSWERS * max(before.values()) <= before.total():
        assert counts.total() == len(shown)
