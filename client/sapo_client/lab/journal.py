"""What one agent said and did, step by step: the curve of a run, and how a killed run comes back.

A run's swarm is a function of what its learners say. So the learner alone is checkpointed, after its journal
is written. After a kill the swarm around it is played again with the words of the journal until the
checkpoint's step; what the journal holds beyond it is forgotten and done anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.report import StepReport

Calls = tuple[tuple[tuple[str, ...], ...], ...]
"""The completions of every group of every call of the sampler in one round."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One agent's round: the curve's point.

    Attributes:
        batch: mean reward of everything in the batch, external groups included (the paper's figure).
        local: mean reward of all own completions of the round, also those that were not trained.
        informative: share of own groups that have an advantage.
        external: external groups in the batch.
        generated_tokens: sampled in the round.
        trained_tokens: completion tokens with an advantage.
        entropy: mean surprise of own sampled tokens in nats.
        seconds: the learner's processor time for sampling and training.
        held_out: share of right answers on the held-out set by family, sampled once at the training
            temperature (pass@1); None between evaluations.
        greedy: the same with the likeliest answers.
    """

    round: int
    agent: int
    batch: float
    local: float
    informative: float
    external: int
    generated_tokens: int
    trained_tokens: int
    entropy: float
    seconds: float
    held_out: Mapping[str, float] | None
    greedy: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One step of one agent.

    Attributes:
        batch: digest of what was trained, by which a replay knows that it is on the same road.
    """

    row: CurvePoint
    report: StepReport
    calls: Calls
    batch: str


class Journal:
    """The entries of one agent, one JSON line each, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def rewind(self, step: int) -> list[JournalEntry]:
        """Return the entries up to a step; those after it are forgotten.

        Raises:
            SapoError: there are fewer.
        """
        lines = self._path.read_bytes().splitlines(keepends=True)[:step]
        if len(lines) < step or not all(line.endswith(b"\n") for line in lines):
            raise SapoError(
                f"{self._path} is shorter than its checkpoint",
                hint=f"remove {self._path.parents[1]}: the run then starts over",
                exit_code=ExitCode.DATA,
            )
        os.truncate(self._path, sum(map(len, lines)))
        return [_entry(json.loads(line)) for line in lines]

    def append(self, entry: JournalEntry) -> None:
        """One more entry, by one write."""
        with self._path.open("ab") as file:
            file.write(json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n")

    def rows(self) -> list[CurvePoint]:
        """Return the curve so far."""
        return [_entry(json.loads(line)).row for line in self._path.read_bytes().splitlines()]


def _entry(document: dict[str, Any]) -> JournalEntry:
    calls = tuple(tuple(tuple(group) for group in call) for call in document["calls"])
    return JournalEntry(
        CurvePoint(**document["row"]), StepReport(**document["report"]), calls, document["batch"]
    )
