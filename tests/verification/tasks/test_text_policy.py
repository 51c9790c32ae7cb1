"""The text policy: each fault by example, honest text without any, hostile text in linear time."""

import unicodedata
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.suite import Family
from sapo_verification.suites.catalogue import FAMILIES, family
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Underivable, derive, solution
from sapo_verification.tasks.text_policy import (
    HIDDEN,
    LOOP_MIN_WINDOWS,
    TextFault,
    fault_of,
    group_fault,
    reasoning,
)
from sapo_verification.tasks.words import is_prose, prose_windows, window_hashes, words_of

PLAIN, TAG = family("basic_arithmetic", "nano"), family("basic_arithmetic", "full")
ANSWER = "<answer>7</answer>"
SENTENCE = "we add the two numbers and carry the one to the tens, "
DISTINCT = " ".join(f"word{n}" for n in range(60))


@pytest.mark.parametrize(
    ("each", "text", "fault"),
    [
        (PLAIN, "12", None),
        (PLAIN, "", None),
        (PLAIN, "1" * 25, TextFault.TOO_LONG),
        (PLAIN, "1\u200b", TextFault.HIDDEN),
        (PLAIN, "\u202e21", TextFault.HIDDEN),
        (PLAIN, "1\x00", TextFault.HIDDEN),
        (PLAIN, "1\U000e0041", TextFault.HIDDEN),
        (PLAIN, "\ufe0f", TextFault.HIDDEN),
        (PLAIN, "1\ufe0f", TextFault.HIDDEN),
        (PLAIN, "a\ufe0f", TextFault.HIDDEN),
        (PLAIN, "\u2714\ufe0f\ufe0f", TextFault.HIDDEN),
        (PLAIN, "\u2714\ufe0e", TextFault.HIDDEN),
        (PLAIN, "あ\ufe0f", TextFault.HIDDEN),
        (PLAIN, "1\ufe0f\u20e3 \u2714\ufe0f \u26a0\ufe0f", None),
        (PLAIN, "#\ufe0f\u20e3 ©\ufe0f \U0001f336\ufe0f", None),
        (PLAIN, "1\ufffd", TextFault.GARBLED),
        (PLAIN, "<answer>1", None),
        (TAG, ANSWER, None),
        (TAG, f"So: {ANSWER} as I said.\n", None),
        (TAG, "7", TextFault.ANSWERS),
        (TAG, f"{ANSWER} or {ANSWER}", TextFault.ANSWERS),
        (TAG, "</answer>7<answer>", TextFault.ANSWERS),
        (TAG, f"<answer>{ANSWER}", TextFault.ANSWERS),
        (TAG, SENTENCE * 20 + ANSWER, TextFault.LOOP),
        (TAG, SENTENCE + ANSWER + SENTENCE * 20, TextFault.LOOP),
        (TAG, "あいうえお" * 30 + ANSWER, TextFault.LOOP),
        (TAG, DISTINCT + ANSWER, None),
        (TAG, f"{DISTINCT} {DISTINCT} {ANSWER}", None),  # said twice, as when a question is quoted
        (TAG, f"{DISTINCT} {DISTINCT} {DISTINCT} {DISTINCT} {ANSWER}", TextFault.LOOP),
        (TAG, "0 1 1 0 " * 200 + ANSWER, None),  # a grid is data
        (TAG, f"Look: <answer>{SENTENCE * 20}</answer>", None),  # the answer is the scorer's business
    ],
)
def test_each_fault_is_reported(each: Family, text: str, fault: TextFault | None) -> None:
    assert fault_of(each, text.encode()) is fault
    assert fault is None or extract(each, text.encode()) is None, "what has a fault earns nothing"


def test_bytes_that_are_no_utf8_are_a_fault() -> None:
    for raw in (b"\xff", b"\xed\xa0\x80", b"\xc0\xb1"):
        assert fault_of(PLAIN, raw) is TextFault.NOT_UTF8


def test_every_format_character_of_unicode_is_in_the_table() -> None:
    """Every invisible character of this interpreter's Unicode that joins, marks or directs text."""
    formats = [chr(n) for n in range(0x110000) if unicodedata.category(chr(n)) in ("Cf", "Cc", "Zl", "Zp")]
    seen = {character for character in formats if not HIDDEN.match(character)}
    visible = {character for character in seen if "NUMBER" in unicodedata.name(character, "")}
    scripts = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND")  # signs that are drawn
    drawn = {c for c in seen if unicodedata.name(c, "").startswith(scripts)}
    assert seen - visible - drawn == {"\t", "\n", "\r"}


def test_honest_answers_of_every_family_have_no_fault() -> None:
    for level in ("nano", "full"):
        for name in FAMILIES:
            each = family(name, level)
            for answer in islice(_solutions(each), 20):
                reason = "" if level == "nano" else f"The question asks for {name}. I write it down.\n"
                text = reason + (answer if level == "nano" else f"<answer>{answer}</answer>")
                assert fault_of(each, text.encode()) is None, (name, answer)


def _solutions(each: Family) -> Iterator[str]:
    for seed in range(1, 10**6, 1009):
        try:
            answer = solution(each, derive(each, seed))
        except Underivable:
            continue
        if answer is not None:
            yield answer


def test_a_group_is_refused_only_for_invisible_characters() -> None:
    hidden, loop, long, garbled = "7\u2060".encode(), b"7 " * 12, b"7" * 99, "7\ufffd".encode()
    assert group_fault(PLAIN, (hidden, hidden, *[b"7"] * 6)) is None
    told = group_fault(PLAIN, (hidden, hidden, hidden, *[b"7"] * 5))
    assert told is not None
    assert "3 of 8" in told
    assert group_fault(PLAIN, (hidden, b"7")) is not None
    for clumsy in (loop, long, garbled, b"\xff", b""):
        assert group_fault(PLAIN, (clumsy,) * 8) is None
    assert group_fault(TAG, (b"no answer",) * 8) is None


def test_the_reasoning_is_the_text_beside_the_answer() -> None:
    assert reasoning(PLAIN, b"12 and more") == ""
    assert reasoning(TAG, b"I add.<answer>12</answer>Done.") == "I add. Done."
    assert reasoning(TAG, b"I add. 12") == "I add. 12"
    assert reasoning(TAG, b"\xff") == ""


@given(st.binary(max_size=300), st.text(max_size=300))
def test_any_text_has_one_verdict(raw: bytes, text: str) -> None:
    for each in (PLAIN, TAG):
        for completion in (raw, text.encode()):
            fault = fault_of(each, completion)
            assert fault is fault_of(each, completion)
            assert fault is None or extract(each, completion) is None


@given(st.lists(st.sampled_from(["ab", "7", "é", "12", "x1"]), max_size=30), st.integers(1, 9))
def test_windows_of_prose_by_the_definition(words: list[str], size: int) -> None:
    expected = [at for at in range(len(words) - size + 1) if any(map(is_prose, words[at : at + size]))]
    assert list(prose_windows(words, size)) == expected
    different = {tuple(words[at : at + size]) for at in expected}
    assert len(window_hashes(words, size, b"key")) == len(different)


@given(st.text(max_size=80))
def test_words_ignore_case_spacing_and_punctuation(text: str) -> None:
    words = words_of(text)
    assert words_of(" ,".join(words)) == words
    assert all((word.isascii() and word.isalnum()) or len(word) == 1 for word in words)


def test_hostile_text_of_full_size_costs_steps_in_proportion() -> None:
    """Counted, not timed: every word is in a bounded number of windows."""
    for text in ("a " * 2048, "<answer>" * 500, "あ" * 1300, "a" * 4096, "\t" * 4096, "0 a " * 1024):
        assert fault_of(TAG, text.encode()) in {*TextFault, None}
        assert len(list(prose_windows(words_of(text), 8))) <= 4096
    assert LOOP_MIN_WINDOWS > 8
