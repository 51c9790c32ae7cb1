"""The fuzzers: no finding in this tree, and detection of deliberate defects."""

from pathlib import Path

import pytest
from fuzz.mutator import MUTATIONS
from fuzz.mutator_others import OTHERS
from fuzz.session import SESSION, Figures, play
from fuzz.targets import TARGETS

from sapo_protocol import ed25519, rollout
from sapo_verification.admission.rollouts import TermsInForce

CORPUS = Path(__file__).parents[1] / "corpus"


@pytest.mark.parametrize("session", range(5))
def test_a_session_finds_nothing(session: int) -> None:
    figures = Figures()
    play(2026, session, figures)
    assert (figures.envelopes, figures.failures) == (SESSION, [])
    assert figures.clean


def test_sessions_reach_every_mutation_and_both_ends_of_the_pipeline() -> None:
    figures = Figures()
    for session in range(8):
        play(1, session, figures)
    assert set(figures.mutations) == MUTATIONS.keys() | OTHERS.keys()
    assert {"accept", "not_canonical", "bad_signature", "seen", "equivocation"} <= set(figures.outcomes)
    assert {"R3.3", "R4.3", "R4.4", "R5.3", "R7.2", "R7.3"} <= set(figures.rules)


def test_the_same_seed_gives_the_same_session() -> None:
    first, second = Figures(), Figures()
    play(7, 7, first)
    play(7, 7, second)
    assert first == second


def test_a_pipeline_without_signatures_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ed25519, "verify_signed", lambda node, signed: True)
    figures = Figures()
    play(3, 0, figures)
    assert figures.wrong_accepts > 0
    assert figures.differences > 0


def test_a_pipeline_that_reads_too_leniently_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "MAX_GROUP_BYTES", 0)
    figures = Figures()
    play(3, 0, figures)
    assert figures.differences > 0


def test_a_pipeline_that_crashes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(self: TermsInForce, *arguments: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(TermsInForce, "require_assignable", crash)
    figures = Figures()
    play(3, 0, figures)
    assert figures.crashes > 0


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_replayed(target: str) -> None:
    seeds = sorted((CORPUS / target).iterdir())
    assert len(seeds) >= 9
    for seed in seeds:
        TARGETS[target](seed.read_bytes())
