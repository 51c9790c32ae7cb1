"""Comparisons of the three readers over many cases, each named by a seed and a number."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from reader.asking import Reader
from reader.crowded_cases import crowded_case
from reader.derivations import DERIVATIONS
from reader.mutated_cases import mutated_case
from reader.mutated_documents import MANIFESTS, mutated_manifest, mutated_succession
from reader.questions import QUESTIONS
from reader.verdicts_of_three import differences

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json, successor_from_json

EPOCHS = (19, 20, 39, 40, 60)
"""Around those for which documents are announced."""


@dataclass
class Tally:
    """What was compared, how often each outcome occurred, and what differs, enough of it to see it again."""

    compared: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    differences: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Take the figures of another comparison as well."""
        self.compared += other.compared
        self.outcomes += other.outcomes
        self.differences += other.differences

    def differ(self, **detail: Any) -> None:
        """Keep a difference."""
        self.differences.append(detail)


def compare_cases(reader: Reader, seed: int, numbers: Iterable[int]) -> Tally:
    """Compare the outcomes of all messages of mutated cases."""
    return _compare_cases(reader, mutated_case, seed, numbers)


def compare_crowds(reader: Reader, seed: int, numbers: Iterable[int]) -> Tally:
    """Compare the outcomes of all messages of cases about what a node remembers."""
    return _compare_cases(reader, crowded_case, seed, numbers)


def _compare_cases(
    reader: Reader, make: Callable[[int, int], dict[str, Any]], seed: int, numbers: Iterable[int]
) -> Tally:
    tally = Tally()
    for number in numbers:
        case = make(seed, number)
        said, found = differences(case, reader)
        tally.compared += len(said)
        tally.outcomes.update(rule or verdict for verdict, _, rule in said)
        for one in found:
            tally.differ(kind=make.__name__, seed=seed, number=number, outcomes=str(one), case=case)
    return tally


def compare_questions(reader: Reader, seed: int, name: str, numbers: Iterable[int]) -> Tally:
    """Compare the answers to questions of one kind."""
    tally, make = Tally(), {**QUESTIONS, **DERIVATIONS}[name]
    for number in numbers:
        question = make(random.Random(f"{name}:{seed}:{number}"))
        answer = reader.ask(question.ask, **question.fields)
        tally.compared += 1
        tally.outcomes[name] += 1
        if question.answers_differ(answer):
            tally.differ(kind=name, seed=seed, number=number, question=str(question), javascript=answer)
    return tally


def compare_documents(reader: Reader, seed: int, numbers: Iterable[int]) -> Tally:
    """Compare what the package and the reader in JavaScript see in mutated manifests and successors."""
    tally = Tally()
    for number in numbers:
        text = mutated_manifest(seed, number)
        found, answer = _manifest_bytes(text), reader.ask("manifest", text=text)
        tally.outcomes["no manifest" if found is None else "a manifest"] += 1
        if found != answer:
            tally.differ(
                kind="manifest", seed=seed, number=number, package=found, javascript=answer, text=text
            )
        name, announced = mutated_succession(seed, number)
        row = _terms(_manifest(name), announced)
        hexes = [[epoch, document.hex()] for epoch, document in announced]
        other = reader.ask("successors", manifest=name, announced=hexes, epochs=EPOCHS)
        tally.outcomes.update(
            "counts" if counts else "unreadable" if epoch == row["unreadable_from"] else "counts for nothing"
            for counts, (epoch, _) in zip(row["counted"], announced, strict=True)
        )
        if row != other:
            tally.differ(kind="successors", seed=seed, number=number, package=row, javascript=other)
        tally.compared += 2
    return tally


@cache
def _manifest(name: str) -> Manifest:
    return manifest_from_json(json.dumps(MANIFESTS[name]))


def _manifest_bytes(text: str) -> str | None:
    try:
        return manifest_from_json(text).to_bytes().hex()
    except LocalProtocolError:
        return None


def _terms(manifest: Manifest, announced: list[tuple[int, bytes]]) -> dict[str, Any]:
    """Return which documents count, from which epoch on one cannot be read, and the terms of some epochs."""
    counted: list[bool] = []
    unreadable = None
    for epoch, document in announced:
        try:
            successor = successor_from_json(document)
        except LocalProtocolError:
            unreadable = epoch if unreadable is None else unreadable
            counted.append(False)
            continue
        try:
            manifest = manifest.succeeded_by(epoch, successor)
            counted.append(True)
        except LocalProtocolError:
            counted.append(False)
    terms = []
    for epoch in EPOCHS:
        limits = manifest.limits_at(epoch)
        terms.append([limits.slots_per_epoch, limits.max_completions, list(manifest.families_at(epoch))])
    return {"counted": counted, "unreadable_from": unreadable, "terms": terms}
