"""The progress bar of `sapo lab run`: the rounds of all runs, and an estimate of the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress

    from sapo_client.lab.plan import Run

SPEED_SECONDS: Final = 1800.0
"""Window of the estimate of the speed; a round takes from a second (CPU) to minutes (GPU)."""


@contextmanager
def rounds_bar(
    runs: Mapping[Run, int], *, is_hidden: bool, get_time: Callable[[], float] = time.monotonic
) -> Iterator[tuple[Progress, Callable[[Run, int], None]]]:
    """Yield the bar, and a function that sets how many rounds of a run are done.

    Args:
        runs: all runs, each with its rounds done in earlier starts, which the estimate leaves out.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.completed} of {task.total} rounds"), BarColumn(), TimeRemainingColumn())
    done = dict(runs)
    bar = Progress(
        *columns, TextColumn("{task.fields[run]}"), console=Console(stderr=True), disable=is_hidden,
        speed_estimate_period=SPEED_SECONDS, get_time=get_time,
    )  # fmt: skip
    task = bar.add_task(
        "run", total=sum(run.plan.rounds for run in runs), completed=sum(done.values()), run=""
    )

    def show(run: Run, rounds: int) -> None:
        done[run] = rounds
        label = run.name if run.plan.attack is None else f"{run.plan.attack} {run.name}"
        bar.update(task, completed=sum(done.values()), run=label)

    with bar:
        yield bar, show
