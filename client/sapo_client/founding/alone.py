"""The manifest of a node that trains alone: tasks and epochs, no peers, no chain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from sapo_client.errors import SapoError
from sapo_client.founding.tasks import NANO_TASKS, choose_tasks
from sapo_protocol.manifest import Limits, Manifest

if TYPE_CHECKING:
    from sapo_client.config import LearnerConfig

EPOCH_SECONDS: Final = 3600
LIMITS: Final = Limits(slots_per_epoch=100_000_000, max_completions=16, points_per_epoch=1)
"""More slots than any policy can use in an hour; they are neither checked by others nor paid."""


def alone_manifest(name: str, learner: LearnerConfig) -> Manifest:
    """Return a manifest for one node, whose first epoch begins now, with tasks that fit its model.

    Raises:
        SapoError: the model cannot be found or read.
    """
    try:
        tasks = choose_tasks(model=learner.model) if learner.trains else NANO_TASKS
    except SapoError as error:
        if isinstance(error.__cause__, SapoError):  # who founds a swarm can name a level; who trains cannot
            raise error.__cause__ from None
        raise
    return Manifest(
        name=name,
        genesis_seconds=int(time.time()),
        epoch_seconds=EPOCH_SECONDS,
        suite=tasks.suite(),
        limits=LIMITS,
    )
