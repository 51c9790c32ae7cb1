"""The package, the Python reference and the JavaScript reader say the same about mutated messages."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from reader.asking import MISSING, Reader, started_reader, vectors_run
from reader.comparing import compare_cases, compare_crowds, compare_documents, compare_questions
from reader.derivations import DERIVATIONS
from reader.questions import QUESTIONS
from reference.vectors import VECTORS, load

from sapo_protocol import ed25519, rollout

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

SEED = 2026


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with started_reader() as running:
        yield running


def test_it_reads_every_vector_as_it_is_written() -> None:
    report = vectors_run()
    names = sorted(path.stem for path in VECTORS.glob("*.json") if path.stem != "manifests")
    lists = {
        f"{name}.{key}": len(rows)
        for name in names
        for key, rows in load(name).items()
        if isinstance(rows, list)
    }
    assert report == {"totals": lists, "cases": sum(lists.values()), "failures": 0}


def test_mutated_cases_have_three_equal_outcomes(reader: Reader) -> None:
    tally = compare_cases(reader, SEED, range(80))
    assert tally.differences == []
    assert len(tally.outcomes) > 40


def test_crowds_have_three_equal_outcomes(reader: Reader) -> None:
    tally = compare_crowds(reader, SEED, range(25))
    assert tally.differences == []
    assert {"accept", "R4.2", "R5.1", "R6.4"} <= set(tally.outcomes)


def test_mutated_documents_are_read_alike(reader: Reader) -> None:
    tally = compare_documents(reader, SEED, range(200))
    assert tally.differences == []
    assert {"a manifest", "no manifest", "counts", "counts for nothing", "unreadable"} == set(tally.outcomes)


@pytest.mark.parametrize("name", [*QUESTIONS, *DERIVATIONS])
def test_questions_have_equal_answers(reader: Reader, name: str) -> None:
    tally = compare_questions(reader, SEED, name, range(12))
    assert (tally.differences, tally.compared) == ([], 12)


def test_a_package_without_signatures_is_caught(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ed25519, "verify_signed", lambda node, signed: True)
    assert compare_cases(reader, SEED, range(120)).differences != []


def test_a_package_that_reads_too_leniently_is_caught(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "MAX_GROUP_BYTES", 0)
    assert compare_cases(reader, SEED, range(40)).differences != []


def test_a_wrong_answer_is_caught(reader: Reader) -> None:
    class Liar(Reader):
        def ask(self, name: str, **question: Any) -> Any:
            return not reader.ask(name, **question)

    liar = Liar.__new__(Liar)
    assert len(compare_questions(liar, SEED, "characters", range(5)).differences) == 5


def test_a_number_names_a_case() -> None:
    first, second = (QUESTIONS["texts"](random.Random("1")) for _ in range(2))
    assert first == second
