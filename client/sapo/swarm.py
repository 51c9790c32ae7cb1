"""Founding a swarm from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def found_swarm(
    folder: str | Path,
    *,
    name: str = "swarm",
    families: Sequence[str] | None = None,
    level: str | None = None,
    model: str = "bundled",
    epoch_seconds: int = 600,
) -> Path:
    """Found a swarm without a chain, and return the path of its manifest, which nodes join with.

    Nothing is recorded or paid in it. ``sapo swarm deploy`` founds one with a chain.

    Args:
        folder: new or empty; receives ``manifest.json``.
        families: of the tasks; None for the level's default.
        level: nano, worked, easy or full; None for the one that fits the model.
        model: what most nodes will train; looked at only without a level.
        epoch_seconds: length of an epoch.

    Raises:
        SapoError: there is no such family or level, or the folder holds a manifest.
    """
    from sapo.arguments import require_list
    from sapo_client.founding.chainless import found_without_chain
    from sapo_client.founding.tasks import choose_tasks

    folder = Path(folder)
    tasks = choose_tasks(families=require_list("families", families), level=level, model=model)
    found_without_chain(folder, name=name, epoch_seconds=epoch_seconds, suite=tasks.suite())
    return folder / "manifest.json"
