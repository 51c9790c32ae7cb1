"""The journal of one agent, step by step: the curve of a run, and the data to resume a killed run.

A run's swarm is a function of its learners' outputs. Therefore only the learner is checkpointed, after its
journal is written. After a kill the swarm is replayed with the completions of the journal up to the
checkpoint's step; later entries of the journal are dropped and computed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.report import StepReport

Calls = tuple[tuple[tuple[str, ...], ...], ...]
"""Completions by call of the sampler and by group, in one round."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One agent's round: a point of the curve.

    Attributes:
        batch: mean reward of all groups in the batch, external ones included (the paper's measure).
        local: mean reward of all own completions of the round, trained or not.
        informative: share of own groups that have an advantage.
        external: number of external groups in the batch.
        generated_tokens: tokens sampled in the round.
        trained_tokens: completion tokens with an advantage.
        entropy: mean negative log-probability of own sampled tokens, in nats.
        seconds: the learner's processor time for sampling and training.
        held_out: share of right answers on the held-out set by family, sampled once per item at the training
            temperature (pass@1); None between evaluations.
        greedy: the same with greedy decoding.
        received_bytes: bytes of rollouts and refused messages that arrived in the round.
        attackers: number of attackers' groups in the batch, as text or as tasks.
        marks: share of the sampled held-out answers with each mark of an attack.
        honest_weight: mean weight with which the other agents' accounts are drawn; None while all are
            newcomers.
        attackers_weight: mean weight of the attackers' accounts seen so far; None while all are newcomers.
        practised: number of groups that answer tasks of others.
        demonstrations: number of right answers passed to the learner to imitate.
        attackers_demonstrations: number of them that attackers wrote.
        honest_set_aside: number of (agent, family) pairs whose steps are measured but not imitated, because
            their value is far below that of the median account.
        attackers_set_aside: the same for attackers' accounts.
        carried: islands to which the node was subscribed when the round's last group of another account
            arrived, empty if none arrived; None in a swarm without islands.
        heard: number of groups that arrived in the round, by the number of their agent or teacher.
        shown: number of demonstrations passed to the learner, by family, then by the same number.
        examined: number of groups of other agents and teachers that were checked so far.
        blamed: number of them that were refused for a fault or by a screen, by the rule's number.
        rolled_back: number of times that the agent's canary has rolled its policy back.
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
    received_bytes: int = 0
    attackers: int = 0
    marks: Mapping[str, float] | None = None
    honest_weight: float | None = None
    attackers_weight: float | None = None
    practised: int = 0
    demonstrations: int = 0
    attackers_demonstrations: int = 0
    honest_set_aside: int = 0
    attackers_set_aside: int = 0
    carried: Sequence[int] | None = None
    heard: Mapping[str, int] | None = None
    shown: Mapping[str, Mapping[str, int]] | None = None
    examined: int = 0
    blamed: Mapping[str, int] | None = None
    rolled_back: int = 0


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One step of one agent.

    Attributes:
        batch: digest of the training batch, by which a replay detects that it has diverged.
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
        """Truncate the journal after a step, and return the entries up to it.

        Raises:
            SapoError: the journal has fewer entries.
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
        """Append an entry with one write."""
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
