"""Near-duplicates: pasted and copied text is found, honest traffic of every variation is not."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.swarm import EPOCH, Identity
from support.traffic import COMPLETIONS, FAMILIES, Writer, rollout

from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.fair_memory import nobody
from sapo_verification.screens.near_duplicates import (
    CLEARLY_EARLIER_SECONDS,
    MAX_ARRIVALS,
    MAX_TEXTS,
    MAX_TEXTS_PER_ACCOUNT,
    MIN_RUNS,
    SKETCH,
    NearDuplicates,
    similarity,
)
from sapo_verification.types import VerifiedRollout

ALICE, BOB, CAROL = (Identity(number) for number in range(1, 4))
ESSAY = " ".join(f"word{n} and{n % 7}" for n in range(60))
TEXTS = [f"{ESSAY} take{n} {n}. <answer>{n}</answer>" for n in range(COMPLETIONS)]


def screen(max_texts: int = MAX_TEXTS, is_newcomer: Callable[[Account], bool] = nobody) -> NearDuplicates:
    return NearDuplicates(FAMILIES, b"key", CAROL.account, max_texts, is_newcomer)


def arrive(
    duplicates: NearDuplicates, group: VerifiedRollout, seconds: float = 0.0, live: bool = True
) -> str | None:
    duplicates.note_arrival(group.account, group.content_id, seconds, live=live)
    return duplicates.examine(group)


def test_the_same_text_under_another_question_is_pasted() -> None:
    duplicates = screen()
    assert arrive(duplicates, rollout(ALICE, 0, "1 + 1", TEXTS)) is None
    assert arrive(duplicates, rollout(ALICE, 1, "1 + 1", TEXTS)) is None, "the same question, the same text"
    assert "8 of 8" in str(arrive(duplicates, rollout(ALICE, 2, "1 + 2", TEXTS)))
    assert "8 of 8" in str(
        arrive(duplicates, rollout(ALICE, 3, "1 + 3", [text.upper() + " !" for text in TEXTS]))
    )


@pytest.mark.parametrize(("every", "found"), [(60, True), (20, True), (10, False)])
def test_a_few_changed_words_do_not_hide_a_copy(every: int, found: bool) -> None:
    duplicates = screen()
    arrive(duplicates, rollout(ALICE, 0, "1 + 1", TEXTS))
    changed = [
        " ".join(f"x{n}" if n % every == every - 1 else word for n, word in enumerate(text.split(" ")))
        for text in TEXTS
    ]
    assert (arrive(duplicates, rollout(ALICE, 1, "1 + 2", changed)) is not None) == found


@pytest.mark.parametrize(("copied", "refused"), [(COMPLETIONS // 2, False), (COMPLETIONS // 2 + 1, True)])
def test_more_than_half_of_a_group_must_be_copied(copied: int, refused: bool) -> None:
    duplicates = screen()
    arrive(duplicates, rollout(ALICE, 0, "1 + 1", TEXTS))
    own = [text.replace("word", f"mine{n}") for n, text in enumerate(TEXTS)]
    mixed = [*TEXTS[:copied], *own[copied:]]
    assert (arrive(duplicates, rollout(ALICE, 1, "1 + 2", mixed)) is not None) == refused


COPY = rollout(BOB, 0, "2 + 2", TEXTS)
ORIGINAL = rollout(ALICE, 0, "1 + 1", TEXTS)
LATER = CLEARLY_EARLIER_SECONDS + 1


def test_the_clearly_later_text_is_the_copy_in_any_order_of_verification() -> None:
    duplicates = screen()
    assert arrive(duplicates, ORIGINAL, 0.0) is None
    assert arrive(duplicates, COPY, LATER) is not None
    duplicates = screen()
    duplicates.note_arrival(ALICE.account, ORIGINAL.content_id, 0.0, live=True)
    assert arrive(duplicates, COPY, LATER) is None, "nothing to compare with yet"
    assert duplicates.examine(ORIGINAL) is None, "the first heard is not blamed for its copy"


@pytest.mark.parametrize(
    ("first", "second", "live"),
    [(0.0, CLEARLY_EARLIER_SECONDS / 2, True), (0.0, 0.0, True), (0.0, 3600.0, False), (3600.0, 0.0, True)],
)
def test_without_a_clear_order_there_is_no_penalty(first: float, second: float, live: bool) -> None:
    duplicates = screen()
    assert arrive(duplicates, ORIGINAL, first) is None
    assert arrive(duplicates, COPY, second, live) is None


def test_messages_without_a_recorded_arrival_have_no_order() -> None:
    duplicates = screen()
    assert arrive(duplicates, ORIGINAL) is None
    assert duplicates.examine(COPY) is None


def test_another_epoch_or_family_is_another_task() -> None:
    duplicates = screen()
    arrive(duplicates, ORIGINAL)
    assert arrive(duplicates, rollout(BOB, 0, "2 + 2", TEXTS, epoch=EPOCH + 1), LATER) is None
    other = replace(COPY, task=replace(COPY.task, family=1))
    assert arrive(duplicates, other, LATER) is None


def test_the_own_account_is_a_reference_and_never_penalised() -> None:
    duplicates = screen()
    assert arrive(duplicates, rollout(CAROL, 0, "1 + 1", TEXTS)) is None
    assert arrive(duplicates, rollout(CAROL, 1, "1 + 2", TEXTS)) is None
    assert arrive(duplicates, COPY, LATER) is not None


def test_answers_alone_are_never_duplicates() -> None:
    duplicates = screen()
    for slot in range(50):
        for who in (ALICE, BOB):
            long = ["move disk 1 from peg 1 to peg 3, " * 20] * COMPLETIONS
            group = rollout(who, slot, f"question {slot}", ["12"] * COMPLETIONS, family=1)
            assert arrive(duplicates, group, slot * LATER) is None
            assert arrive(duplicates, rollout(who, slot, "hanoi", long, family=1), slot * LATER) is None
            tagged = [f"<answer>{text}</answer>" for text in long]
            assert arrive(duplicates, rollout(who, slot, f"{slot}", tagged), slot * LATER) is None
    assert len(duplicates) == 0


def test_grids_and_short_remarks_are_not_compared() -> None:
    duplicates = screen()
    rng = random.Random(0)
    for slot in range(50):
        grid = " ".join(rng.choice("01") for _ in range(100))
        remark = "Let us see what we have here, and then decide on the answer as usual: "
        texts = [f"{remark}{grid} <answer>{n}</answer>" for n in range(COMPLETIONS)]
        assert arrive(duplicates, rollout(ALICE, slot, f"question {slot}", texts)) is None


@pytest.mark.parametrize(("collapse", "rounds"), [(0.0, 30), (0.8, 150), (1.0, 30)])
def test_honest_traffic_is_not_penalised(collapse: float, rounds: int) -> None:
    """Eight nodes whose text varies much, little, or only in the numbers: none of up to 1,200 groups."""
    duplicates, writers = screen(), [Writer(Identity(number), collapse) for number in range(10, 18)]
    blamed = sum(
        arrive(duplicates, writer.group(place % 2), 10.0 * place) is not None
        for place in range(rounds)
        for writer in writers
    )
    assert blamed == 0
    assert len(duplicates) > 3 * 8 * rounds, "and it was text to be judged"


def test_a_copier_of_live_traffic_is_penalised_and_its_victims_are_not() -> None:
    duplicates, writers = screen(), [Writer(Identity(number)) for number in range(10, 14)]
    found = blamed = 0
    for place in range(60):
        seconds = 20.0 * place
        for writer in writers:
            group = writer.group()
            blamed += arrive(duplicates, group, seconds) is not None
        texts = [completion.decode() for completion in group.completions]
        found += arrive(duplicates, rollout(BOB, place, f"mine {place}", texts), seconds + LATER) is not None
    assert (found, blamed) == (60, 0)


@pytest.mark.parametrize("collapse", [0.8, 1.0])
def test_publishing_anothers_text_first_does_not_penalise_its_author(collapse: float) -> None:
    """Tasks follow from the beacon, so Mallory knows Alice's questions, and her habits from earlier texts."""
    duplicates, alice, guess = screen(), Writer(Identity(10), collapse), Writer(Identity(10), collapse)
    guess.rng = random.Random("mallory")
    blamed = 0
    for place in range(30):
        group, seconds = alice.group(), 100.0 * place
        guess.slot, numbers = place, [int(number) for number in group.prompt.split(" + ")]
        texts = [f"{guess.text(numbers)} {number}" for number in range(COMPLETIONS)]
        for mallory in range(4):
            arrive(duplicates, rollout(Identity(200 + mallory), place, f"mine {place} + 7", texts), seconds)
        blamed += arrive(duplicates, group, seconds + LATER) is not None
    assert blamed == 0


def test_copies_that_also_contain_the_own_question_are_detected() -> None:
    duplicates, alice = screen(), Writer(Identity(10))
    for place in range(10):
        group = alice.group()
        arrive(duplicates, group, 0.0)
        own = f"{place}1 + {place}2 + {place}3 + {place}4 + {place}5 + {place}6 + {place}7"
        texts = [f"it is {own} that is asked. {completion.decode()}" for completion in group.completions]
        assert arrive(duplicates, rollout(BOB, place, own, texts), LATER) is not None


def test_accounts_received_too_long_ago_are_not_compared() -> None:
    duplicates = screen()
    assert arrive(duplicates, ORIGINAL, 0.0) is None
    for number in range(MAX_ARRIVALS):
        content = ContentId(number.to_bytes(32, "big"))
        duplicates.note_arrival(Account(number.to_bytes(20, "big")), content, 0.0, live=True)
    assert arrive(duplicates, COPY, LATER) is None


def test_evicted_texts_of_an_account_are_not_compared() -> None:
    duplicates = screen(max_texts=COMPLETIONS)
    assert arrive(duplicates, rollout(ALICE, 0, "1 + 1", TEXTS)) is None
    for number in range(2 * COMPLETIONS):
        others = [text.replace("word", f"other{number}w") for text in TEXTS]
        assert arrive(duplicates, rollout(Identity(100 + number), 0, "1 + 2", others)) is None
    assert arrive(duplicates, rollout(ALICE, 1, "1 + 3", TEXTS)) is None, "nothing of hers is left"
    assert len(duplicates) == COMPLETIONS


def test_newcomers_cannot_evict_the_texts_that_they_copy() -> None:
    """Two of Mallory's accounts: one writes until alice is forgotten, and the other copies her."""
    room = 20 * COMPLETIONS
    duplicates = screen(room, lambda account: account != ALICE.account)
    assert arrive(duplicates, ORIGINAL, 0.0) is None
    for number in range(3 * room // COMPLETIONS):
        texts = [text.replace("word", f"mine{number}w{place}x") for place, text in enumerate(TEXTS)]
        assert arrive(duplicates, rollout(Identity(100 + number), 0, f"mine {number}", texts), 1.0) is None
    assert len(duplicates) == room
    assert arrive(duplicates, COPY, LATER) is not None


def test_arrivals_of_newcomers_do_not_displace_those_of_known_accounts() -> None:
    duplicates = screen(is_newcomer=lambda account: account != ALICE.account)
    assert arrive(duplicates, ORIGINAL, 0.0) is None
    for number in range(2 * MAX_ARRIVALS):
        content = ContentId(number.to_bytes(32, "big"))
        duplicates.note_arrival(Identity(9).account, content, 1.0, live=True)
    assert arrive(duplicates, COPY, LATER) is not None


def test_memory_is_bounded_and_an_account_evicts_its_own_texts_first() -> None:
    duplicates = screen(max_texts=2000)
    arrive(duplicates, rollout(ALICE, 0, "1 + 1", TEXTS))
    flooder = Writer(BOB)
    for _ in range(MAX_TEXTS_PER_ACCOUNT // COMPLETIONS + 20):
        arrive(duplicates, flooder.group())
    assert len(duplicates) == MAX_TEXTS_PER_ACCOUNT + COMPLETIONS
    assert arrive(duplicates, rollout(ALICE, 1, "1 + 2", TEXTS)) is not None, "alice's are still known"
    small = screen(max_texts=20)
    for _ in range(20):
        arrive(small, flooder.group())
    assert len(small) == 20


@given(st.sets(st.integers(0, 2**64 - 1), max_size=40), st.sets(st.integers(0, 2**64 - 1), max_size=40))
def test_the_similarity_of_small_sets_is_exact(one: set[int], other: set[int]) -> None:
    assert len(one | other) <= SKETCH
    expected = len(one & other) / len(one | other) if one | other else 0.0
    assert similarity(sorted(one), sorted(other)) == pytest.approx(expected)


def test_the_similarity_of_large_sets_is_close() -> None:
    rng = random.Random(0)
    for share in (0.2, 0.5, 0.8, 0.95):
        common = [rng.getrandbits(64) for _ in range(int(2000 * share))]
        rest = 2000 - len(common)
        one, other = (
            sorted([*common, *(rng.getrandbits(64) for _ in range(rest // 2))])[:SKETCH] for _ in range(2)
        )
        assert similarity(one, other) == pytest.approx(share, abs=0.15)
    assert MIN_RUNS < SKETCH
