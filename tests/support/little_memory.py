"""A training step, or a measurement of others' text, in a process with too little address space for all rows.

    python -m support.little_memory POLICY RESULT step|values

Writes to RESULT what became of it, as a dictionary for `torch.load`: of a step ``halvings``, ``rolled_back``
and ``gradient``, which is of all parameters, in order; of a measurement ``halvings`` and ``values``.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import torch
from support.trainers import make_trainer

from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.trainer import Trainer

LONG = TrainingGroup(
    prompt=(30, 31, 32),
    completions=tuple(tuple(30 + (i * 7 + j) % 60 for j in range(500)) for i in range(32)),
    rewards=(1.0,) + (0.0,) * 31,
    external=True,
    behaviour=None,
)
"""The batch."""

SHOWN = tuple(
    DemonstrationText((30, 31, 32 + number), completion, family=0, author=b"ann", steps=400)
    for number, completion in enumerate(LONG.completions)
)
"""Text of another account, whose steps are measured."""


def main(folder: Path, result: Path, task: str) -> None:
    """Train or measure, with room for half of what all rows need."""
    trainer = make_trainer(folder, micro_batch_tokens=2**20, memory_bytes=2**40)
    # allocates threads and workspaces
    trainer.step([TrainingGroup((30, 31, 32), ((33, 34), (35, 36)), (1.0, 0.0), True, None)])
    trainer.optimizer.state.clear()
    trainer.optimizer.zero_grad()
    for parameter, start in zip(trainer.parameters, make_trainer(folder).parameters, strict=True):
        parameter.data.copy_(start.data)
    rows, length = len(LONG.completions), len(LONG.prompt) + len(LONG.completions[0])
    scores = rows * 4 * length * length * 4  # of one layer: four heads, float32
    torch.save(step(trainer, scores) if task == "step" else values(trainer, scores), result)


def step(trainer: Trainer, scores: int) -> dict[str, Any]:
    """Train a step with room for one layer's scores, of two that are kept for the backward pass."""
    limit_memory(scores)
    report = trainer.step([LONG])
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.parameters]
    gradient = torch.cat([moment.flatten() for moment in moments])
    return {"halvings": report.halvings, "rolled_back": report.rolled_back, "gradient": gradient}


def values(trainer: Trainer, scores: int) -> dict[str, Any]:
    """Measure what steps are worth with room for half of one layer's scores, of which none is kept."""
    limit_memory(scores // 2)
    found = trainer.supervised.values(SHOWN)
    return {"halvings": trainer._gradients.halvings, "values": found}


def limit_memory(room: int) -> None:
    """Let this process have no more than a number of bytes beside those that it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, hard))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
