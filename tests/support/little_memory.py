"""A training step in a process whose address space does not hold the whole batch.

    python -m support.little_memory POLICY RESULT

Writes to RESULT what became of the step, as a dictionary for `torch.load`: ``halvings``, ``rolled_back``
and ``gradient``, which is of all parameters, in order.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch
from support.trainers import make_trainer

from sapo_client.learner.batch import TrainingGroup

LONG = TrainingGroup(
    prompt=(30, 31, 32),
    completions=tuple(tuple(30 + (i * 7 + j) % 60 for j in range(500)) for i in range(32)),
    rewards=(1.0,) + (0.0,) * 31,
    external=True,
    behaviour=None,
)
"""The batch."""


def main(folder: Path, result: Path) -> None:
    """Train a step with room for half of what the batch needs."""
    rows, length = len(LONG.completions), len(LONG.prompt) + len(LONG.completions[0])
    trainer = make_trainer(folder, micro_batch_tokens=2**20, memory_bytes=2**40)
    trainer.step([TrainingGroup((30, 31, 32), ((33, 34), (35, 36)), (1.0, 0.0), True, None)])
    # the step above allocated threads and workspaces; the one below starts from the same weights
    trainer.optimizer.state.clear()
    trainer.optimizer.zero_grad()
    for parameter, start in zip(trainer.parameters, make_trainer(folder).parameters, strict=True):
        parameter.data.copy_(start.data)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = 4 * rows * 4 * length * length * 4  # half of the attention scores of two layers, four heads
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, hard))
    report = trainer.step([LONG])
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.parameters]
    gradient = torch.cat([moment.flatten() for moment in moments])
    outcome = {"halvings": report.halvings, "rolled_back": report.rolled_back, "gradient": gradient}
    torch.save(outcome, result)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
