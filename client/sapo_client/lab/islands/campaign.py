"""`sapo lab islands`: how fast a skill known on one island reaches the others, compared with two controls.

Each experiment has one folder of `lab.store`. All experiments have the same initial models, families and
seeds. The controls are a single topic, on which all agents receive all messages, and islands between which
all links are cut, so that visits have no effect. Islands with and without visits also have the same keys and
tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from sapo_client.lab.arms import ARMS, Arm
from sapo_client.lab.campaign import Progress, execute_runs, raise_first
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.lab.simulate import manifest_of
from sapo_client.lab.store import ExperimentStore

HIDDEN: Final = "binary_matrix"
"""The family that only the first island knows; it is learnt in the fewest steps."""

KNOWN: Final = "fraction_simplification"
"""The family that all agents know."""

PLAN: Final = ExperimentPlan(
    model="specialist-a",
    teacher_model="specialist-b",
    level="worked",
    families=(HIDDEN, KNOWN),
    agents=8,
    teachers=4,
    rounds=60,
    completions=2,
    tasks=32,
    learning_rate=5e-5,
    max_new_tokens=96,
    evaluate_every=4,
    held_out_per_family=48,
    rounds_per_epoch=2,
    demonstrations=256,
    texts_per_step=32,
    islands=8,
    period_epochs=8,
)
"""Each island has one agent, which answers as many tasks as four accounts; a visit lasts sixteen rounds."""

VISITED: Final = "visited"
ONE_TOPIC: Final = "one-topic"
UNVISITED: Final = "unvisited"

ARM: Final = ARMS["imitate"]


@dataclass(frozen=True, slots=True)
class IslandCampaign:
    """The same agents on islands with visits, on one topic, and on islands without visits.

    Attributes:
        root: folder of all experiments.
        plan: plan of the islands with visits.
        seeds: seeds of each experiment.
        hidden: the family that only the first island's teachers know.
        arm: arm of all runs.
    """

    root: Path
    plan: ExperimentPlan
    seeds: Sequence[int]
    hidden: str = HIDDEN
    arm: Arm = ARM

    def plans(self) -> Mapping[str, ExperimentPlan]:
        """Return the plan of each experiment."""
        return {
            VISITED: self.plan,
            ONE_TOPIC: replace(self.plan, islands=1),
            UNVISITED: replace(self.plan, visits=False),
        }

    def store(self, name: str) -> ExperimentStore:
        """Return the folder of an experiment."""
        return ExperimentStore(self.root / name)

    def runs(self) -> Iterator[tuple[ExperimentStore, list[Run]]]:
        """Yield the experiments with their runs."""
        for name, plan in self.plans().items():
            yield self.store(name), [Run(plan, self.arm, seed) for seed in self.seeds]

    def create(self) -> None:
        """Create the folders of all experiments, or open existing ones.

        Raises:
            SapoError: one of them contains an experiment with another plan.
        """
        for store, runs in self.runs():
            store.create(runs[0].plan, partial(manifest_of, runs[0].plan))

    def execute_runs(self, jobs: int, progress: Progress) -> None:
        """Execute the unfinished runs.

        Raises:
            SapoError: one of them fails, or a folder contains an experiment with another plan.
        """
        self.create()
        experiments = list(self.runs())
        each = max(1, jobs // len(experiments))
        with ThreadPoolExecutor(max(1, min(jobs, len(experiments)))) as threads:
            raise_first([threads.submit(execute_runs, *one, each, progress) for one in experiments])
