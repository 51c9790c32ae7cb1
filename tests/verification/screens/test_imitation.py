"""Parts of another account's right answer that may be imitated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rollouts import rollout_of
from support.swarm import Identity, make_suite

from sapo_protocol.suite import Family
from sapo_verification.screens.imitation import MAX_RUNS, RUN_WORDS, Imitation
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.answers import extract

ALICE, OWN = Identity(1), Identity(3)
TAGGED = family("basic_arithmetic", "full")
PLAIN = make_suite().families[0]


def imitation_of(*own: bytes, prompt: str = "task 1", families: tuple[Family, ...] = (TAGGED,)) -> Imitation:
    """Return the screen of a node that wrote these completions."""
    made = Imitation(families, OWN.account)
    for number, completion in enumerate(own):
        made.verified(rollout_of(OWN.account, number, {completion: 1.0}))
    made.verified(rollout_of(ALICE.account, 1, {b"a phrase of a stranger": 0.0}))
    return made


def test_steps_in_numbers_and_signs_are_imitated_whole() -> None:
    way = b"7+5=12 c1; 4+8+1=13 <answer>132</answer>"
    assert imitation_of().imitable(0, way) == way


def test_unknown_prose_is_removed_and_the_answer_kept() -> None:
    text = b"7+5=12 trust the oracle <answer> 132 </answer> and obey"
    assert imitation_of().imitable(0, text) == b"<answer>132</answer>"


@pytest.mark.parametrize("way", ["7×5≤36", "99c,108l", "x1=3;2y=4", "½+½→1", "a b c"])
def test_signs_are_numbers_single_letters_and_mathematical_symbols(way: str) -> None:
    text = f"{way} <answer>1</answer>".encode()
    assert imitation_of().imitable(0, text) == text


@pytest.mark.parametrize("way", ["tru5t the oracle", "t1rust o1racle", "我说它是", "верь", "☠☠", "٢٢٥", "to"])
def test_disguised_prose_does_not_count_as_signs(way: str) -> None:
    assert imitation_of().imitable(0, f"{way} <answer>1</answer>".encode()) == b"<answer>1</answer>"


def test_of_consecutive_spaces_the_first_is_kept() -> None:
    text = b" \t7+5=12 \t\t 4+8+1=13\n\n\n  <answer>132</answer>"
    assert imitation_of().imitable(0, text) == b"7+5=12 4+8+1=13\n<answer>132</answer>"


def test_words_of_the_prompts_are_known() -> None:
    assert imitation_of().imitable(0, b"task 5 <answer>5</answer>") == b"task 5 <answer>5</answer>"


def test_own_prose_is_recognised_by_runs_and_not_by_words() -> None:
    screen = imitation_of(b"carry the one over <answer>3</answer>")
    known = b"carry the one over <answer>9</answer>"
    assert screen.imitable(0, known) == known
    assert screen.imitable(0, b"over the one carry <answer>9</answer>") == b"<answer>9</answer>"


def test_words_of_other_accounts_do_not_become_known() -> None:
    text = b"a phrase of a stranger <answer>9</answer>"
    assert imitation_of().imitable(0, text) == b"<answer>9</answer>"


def test_padding_around_a_plain_answer_is_dropped() -> None:
    assert imitation_of(families=(PLAIN,)).imitable(0, b"  12        \n") == b"12"


def test_own_runs_are_bounded() -> None:
    screen = imitation_of()
    words = [f"w{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)}" for n in range(17_000)]
    for start in range(0, len(words) * 8, 1000):
        part = " ".join(words[(start + 7 * n) % len(words)] for n in range(1000))
        screen.verified(rollout_of(OWN.account, start, {part.encode(): 0.0}))
    assert len(screen._runs[0]) <= MAX_RUNS


@given(st.text(alphabet="abcd 19+=\n", max_size=60), st.integers(0, 999))
def test_the_imitated_part_has_the_same_answer(way: str, number: int) -> None:
    text = f"{way}<answer> {number}</answer>{way}".encode()
    screen = imitation_of(b"ab cd ab <answer>1</answer>")
    left = screen.imitable(0, text)
    assert extract(TAGGED, left) == str(number)
    assert screen.imitable(0, left) == left
    assert RUN_WORDS == 3
