"""The kinds of characters that are compared of an answer, and which of them are odd by themselves."""

import pytest

from sapo_verification.screens.answer_forms import answer_runs, is_odd


@pytest.mark.parametrize(
    ("completion", "runs"),
    [
        ("", set()),
        (" \n\t", set()),
        ("7", {"number"}),
        ("0", {"number"}),
        ("00", {"zeros"}),
        ("07", {"zeros"}),
        ("70", {"number"}),
        ("1.05", {"number", "."}),
        ("01.05", {"zeros", "number", "."}),
        ("1,05", {"number", ",", "zeros"}),
        ("1..05", {"number", ".+"}),
        ("-3", {"number"}),
        ("--3", {"number", "-+"}),
        ("((1))", {"number", "(+", ")+"}),
        ("(1)(2)", {"number", "(", ")"}),
        ("red", {"lower"}),
        ("RED", {"upper"}),
        ("Red", {"title"}),
        ("rEd", {"mixed"}),
        ("ha ha", {"lower", "' '"}),
        ("a  b", {"lower", "spaces"}),
        ("a\nb", {"lower", "'\\n'"}),
        ("a\n\nb", {"lower", "spaces"}),
        ("a_b", {"lower", "_"}),
        ("a1b", {"lower", "number"}),
        ("中文", {"mixed"}),
        ("so <answer> 7 </answer> and 00", {"number"}),
        ("so <answer>7", {"number"}),
        ("<answer></answer>00", set()),
        ("7</answer>", {"number", "<", "/", "lower", ">"}),
    ],
)
def test_what_is_compared_of_an_answer(completion: str, runs: set[str]) -> None:
    found = list(answer_runs(completion.encode()))
    assert (set(found), len(found)) == (runs, len(runs))


@pytest.mark.parametrize("length", [15, 16, 63, 64, 255, 256, 1023, 1024, 1025])
def test_lengths_are_those_that_the_answer_reaches(length: int) -> None:
    lengths = {f"{least} characters" for least in (16, 64, 256, 1024) if least <= length}
    answer = ("ab" * length)[:length]
    assert set(answer_runs(f"  <answer> {answer}\n</answer>".encode())) == {"lower", *lengths}


def test_bytes_that_are_no_text_are_compared_too() -> None:
    assert set(answer_runs(b"7\xff")) == {"number", "\ufffd"}


def test_what_is_odd_by_itself() -> None:
    kinds = [
        "zeros",
        "mixed",
        "spaces",
        "-+",
        "(+",
        "number+",
        "64 characters",
        "256 characters",
        "1024 characters",
    ]
    others = ["number", "lower", "upper", "title", "' '", "+", "-", "(", "16 characters"]
    assert [kind for kind in [*kinds, *others] if is_odd(kind)] == kinds
