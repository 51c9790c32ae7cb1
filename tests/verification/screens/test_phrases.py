"""Planted phrases: found where one account repeats one; not where styles differ; never evidence."""

import pytest
from support.swarm import Identity
from support.traffic import COMPLETIONS, FAMILIES, Writer, rollout

from sapo_protocol.errors import Reason
from sapo_verification.reputation.penalties import CONSEQUENCES
from sapo_verification.screens.phrases import FADE_GROUPS, LEAST_GROUPS, Phrases
from sapo_verification.types import VerifiedRollout

PHRASE = " All hail to the thief."
MALLORY = Identity(99)


def planting(writer: Writer, place: int, every: int = 1) -> VerifiedRollout:
    """Return a writer's group; in some groups half of the answers hold the phrase."""
    group = writer.group()
    texts = [completion.decode() for completion in group.completions]
    if place % every == 0:
        texts = [text + PHRASE if n % 2 else text for n, text in enumerate(texts)]
    return rollout(writer.identity, place, group.prompt, texts)


def swarm(accounts: int, collapse: float = 0.0) -> list[Writer]:
    """Return honest writers; without collapse they are one model, with it each has its own style."""
    return [Writer(Identity(number), collapse) for number in range(10, 10 + accounts)]


def judged(phrases: Phrases, group: VerifiedRollout) -> bool:
    phrases.learn(group)
    return phrases.planted(group)


@pytest.mark.parametrize(("every", "found"), [(1, True), (2, True), (8, False)])
def test_a_phrase_of_one_account_is_found(every: int, found: bool) -> None:
    phrases, honest, mallory = Phrases(FAMILIES, b"key"), swarm(4), Writer(MALLORY, 0.0)
    wrong = right = 0
    for place in range(3 * LEAST_GROUPS):
        wrong += sum(judged(phrases, writer.group()) for writer in honest)
        right += judged(phrases, planting(mallory, place, every))
    assert wrong == 0
    assert (right >= LEAST_GROUPS // every) == found
    assert not phrases.planted(mallory.group()), "only what holds the phrase is kept out"


def test_before_enough_was_heard_nobody_is_judged() -> None:
    phrases, mallory = Phrases(FAMILIES, b"key"), Writer(MALLORY, 0.0)
    honest = swarm(2)  # two others are no crowd
    for place in range(2 * LEAST_GROUPS):
        assert not any(judged(phrases, writer.group()) for writer in honest)
        assert not judged(phrases, planting(mallory, place))


def test_a_flooder_makes_no_phrase_common_and_none_rare() -> None:
    phrases, honest, mallory, friend = (
        Phrases(FAMILIES, b"key"),
        swarm(4),
        Writer(MALLORY, 0.0),
        Writer(Identity(98), 0.0),
    )
    right = 0
    for place in range(2 * LEAST_GROUPS):
        for writer in honest:
            judged(phrases, writer.group())
        for again in range(4):
            phrases.learn(planting(friend, 4 * place + again))
        right += judged(phrases, planting(mallory, place))
    assert right >= LEAST_GROUPS


def test_in_a_swarm_of_different_models_manners_are_no_phrases() -> None:
    phrases, honest = Phrases(FAMILIES, b"key"), swarm(4, collapse=1.0)
    blamed = sum(judged(phrases, writer.group()) for _ in range(3 * LEAST_GROUPS) for writer in honest)
    assert blamed <= 0.02 * 3 * LEAST_GROUPS * len(honest), "the first to stand out, until the others do"


def test_short_answers_are_not_counted() -> None:
    phrases, honest = Phrases(FAMILIES, b"key"), swarm(4)
    assert not any(judged(phrases, writer.group(1)) for _ in range(2 * LEAST_GROUPS) for writer in honest)


def test_memory_is_bounded_and_fades() -> None:
    phrases, mallory, honest = Phrases(FAMILIES, b"key", most_sketches=5), Writer(MALLORY, 0.0), swarm(4)
    for place in range(LEAST_GROUPS):
        for writer in honest:
            phrases.learn(writer.group())
        phrases.learn(planting(mallory, place))
    held = planting(mallory, 0)
    assert phrases.planted(held)
    for _ in range(FADE_GROUPS):
        phrases.learn(mallory.group())
    assert not phrases.planted(held), "what is past fades"
    for number in range(200, 220):
        phrases.learn(Writer(Identity(number)).group())
    assert len(phrases._sketches) == 5


def test_a_quarantine_is_no_evidence() -> None:
    assert CONSEQUENCES[Reason.PLANTED_PHRASE].evidence == 0.0
    assert COMPLETIONS > 1
