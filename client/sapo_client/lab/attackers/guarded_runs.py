"""Many runs of ``guarded``, each in a process of its own, and their table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.attackers.guarded import EVALUATIONS, TACTICS, Guarded
from sapo_client.lab.attackers.guarded_learner import GuardPlan
from sapo_client.lab.campaign import ENVIRONMENT
from sapo_client.lab.store import write_csv

COLUMNS: Final = (
    "tactic",
    "seed",
    "round",
    "taught family",
    "target",
    "promoted",
    "rolled back",
    "attackers' pairs aside",
    "honest pairs aside",
)

TABLE: Final = "guard.csv"


def tactics_named(names: Sequence[str]) -> tuple[str, ...]:
    """Return the tactics of these names, of all if none is named.

    Raises:
        SapoError: there is no such tactic.
    """
    for name in names:
        if name not in TACTICS:
            raise SapoError(
                f"there is no tactic {name!r}",
                hint=f"tactics are {', '.join(TACTICS)}",
                exit_code=ExitCode.USAGE,
            )
    return tuple(names or TACTICS)


def execute_guards(
    root: Path, plans: Sequence[GuardPlan], jobs: int, progress: Callable[[GuardPlan], None]
) -> None:
    """Execute the plans that are not finished, and write the table of all.

    Raises:
        SapoError: a run fails; finished ones are kept.
    """

    def execute(plan: GuardPlan) -> None:
        folder = _folder(root, plan)
        if _stored(folder, plan) is None:
            folder.mkdir(parents=True, exist_ok=True)
            _execute(folder, plan)
        progress(plan)

    with ThreadPoolExecutor(max(1, jobs)) as threads:
        for _ in threads.map(execute, plans):
            pass
    write_csv(root / TABLE, COLUMNS, table(root, plans))


def table(root: Path, plans: Sequence[GuardPlan]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each evaluation of the finished plans."""
    for plan in plans:
        for each in _stored(_folder(root, plan), plan) or ():
            shares = (round(each.held_out[name], 3) for name in (plan.taught, plan.target))
            aside = each.set_aside, each.honest_set_aside
            yield plan.tactic, plan.seed, each.round, *shares, each.promoted, each.rolled_back, *aside


def _execute(folder: Path, plan: GuardPlan) -> None:
    log = folder / "run.log"
    with log.open("w", encoding="utf-8") as errors:
        ended = subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-m", "sapo_client.lab.attackers.guarded", folder, json.dumps(asdict(plan))],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, **ENVIRONMENT},
            check=False,
        )
    if ended.returncode:
        raise SapoError(
            f"the run of {plan.tactic} with seed {plan.seed} failed",
            hint=f"its log is {log}; the same command runs it again",
            exit_code=ExitCode.BUG,
        )


def _stored(folder: Path, plan: GuardPlan) -> list[Guarded] | None:
    """Return the evaluations of a finished run.

    Raises:
        SapoError: the folder holds a run of another plan.
    """
    file = folder / EVALUATIONS
    if not file.exists():
        return None
    about, *rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    if about != asdict(plan):
        raise SapoError(
            f"{folder} holds a run of another plan",
            hint="name another folder with --out, or repeat the options that it was started with",
            exit_code=ExitCode.DATA,
        )
    return [Guarded(**row) for row in rows]


def _folder(root: Path, plan: GuardPlan) -> Path:
    return root / plan.tactic / f"seed-{plan.seed}"
