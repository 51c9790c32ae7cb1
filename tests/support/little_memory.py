"""A training step in a process whose address space does not hold the whole batch."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

import torch
from support.trainers import make_trainer

from sapo_client.learner.batch import TrainingGroup


@dataclass(frozen=True, slots=True)
class LimitedStep:
    """What became of the step.

    Attributes:
        gradient: of all parameters, in order.
    """

    halvings: int
    rolled_back: bool
    gradient: list[float]


def step_with_little_memory(folder: Path, groups: list[TrainingGroup]) -> LimitedStep:
    """Return what became of a step with room for a third of what the longest group needs; ends no limit."""
    rows, length = len(groups[0].completions), len(groups[0].prompt) + len(groups[0].completions[0])
    trainer = make_trainer(folder, micro_batch_tokens=2**20, memory_bytes=2**40)
    trainer.step([TrainingGroup((30, 31, 32), ((33, 34), (35, 36)), (1.0, 0.0), True, None)])
    # the step above allocated threads and workspaces; the one below starts from the same weights
    trainer.optimizer.state.clear()
    trainer.optimizer.zero_grad()
    for parameter, start in zip(trainer.parameters, make_trainer(folder).parameters, strict=True):
        parameter.data.copy_(start.data)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = 3 * rows * 4 * length * length * 4  # a third of the attention scores of two layers, four heads
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, hard))
    report = trainer.step(groups)
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.parameters]
    gradient = torch.cat([moment.flatten() for moment in moments])
    return LimitedStep(report.halvings, report.rolled_back, gradient.tolist())
