"""How long a testnet runs; pure."""

from __future__ import annotations

from collections.abc import Sequence

from sapo_client.testnet.node_record import NodeRecord
from sapo_client.testnet.plan import Settings


def reason_to_go_on(settings: Settings, epochs: int, running: Sequence[NodeRecord]) -> str | None:
    """Return why a run whose epochs are over takes one more, or None if it ends.

    A fixed number of epochs would measure the machine: a busy one takes half as many steps in the same time.

    Args:
        settings: of the run; it has at most twice their number of epochs.
        epochs: number of epochs so far.
        running: records of the nodes that still run.
    """
    max_epochs = 2 * settings.epochs
    slowest = min(running, key=lambda record: len(record.steps), default=None)
    if slowest is None or epochs >= max_epochs or len(slowest.steps) >= settings.steps:
        return None
    return (
        f"{slowest.name} has taken {len(slowest.steps)} of {settings.steps} steps, so the run goes on:"
        f" epoch {epochs + 1} of at most {max_epochs}"
    )
