"""The folder of an experiment.

experiment.json            the plan, with the versions that started it
manifest.json              the manifest of all runs
ARM/seed-N/run.json        arm, seed, versions, processor seconds; exists once the run is finished
ARM/seed-N/rounds.jsonl    its curve: one line per round and agent
ARM/seed-N/work/           checkpoints and journals, until the run is finished
"""

from __future__ import annotations

import csv
import json
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from sapo_client.atomic_files import write_atomically
from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.arms import known_arms
from sapo_client.lab.journal import CurvePoint, Journal
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json
from sapo_verification.tasks.bundled import RELEASE

FORMAT: Final = "sapo/lab/1"
PACKAGES: Final = ("sapo-swarm", "torch", "transformers", "numpy")


@dataclass(frozen=True, slots=True)
class Curve:
    """A finished run."""

    run: Run
    rows: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class ExperimentStore:
    """An experiment's folder."""

    root: Path

    def create(self, plan: ExperimentPlan, manifest: Callable[[], Manifest]) -> None:
        """Create the folder of this plan, or open an existing one.

        Raises:
            SapoError: it contains another experiment, or cannot be written.
        """
        document = {"format": FORMAT, "plan": plan.to_json(), "versions": versions()}
        if not self._experiment.exists():
            try:
                write_whole(self.root / "manifest.json", manifest_to_json(manifest()))
                write_whole(self._experiment, _text(document))
            except OSError as error:
                raise SapoError(
                    f"cannot write into {self.root}: {error.strerror}",
                    hint="name another folder with --out, or correct its permissions",
                    exit_code=ExitCode.DATA,
                ) from error
        elif self.plan() != plan:
            raise SapoError(
                f"{self.root} holds an experiment with another plan",
                hint="name another folder with --out, or repeat the options that it was started with",
                exit_code=ExitCode.DATA,
            )

    def plan(self) -> ExperimentPlan:
        """Return the plan that its runs share.

        Raises:
            SapoError: there is no experiment.
        """
        return ExperimentPlan.from_json(self.document()["plan"])

    def document(self) -> dict[str, Any]:
        """Return the content of `experiment.json`.

        Raises:
            SapoError: there is none of this format.
        """
        try:
            document: dict[str, Any] = json.loads(self._experiment.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            document = {}
        if document.get("format") != FORMAT:
            raise SapoError(
                f"there is no experiment in {self.root}",
                hint="`sapo lab run --out DIR` creates one",
                exit_code=ExitCode.DATA,
            )
        return document

    def manifest(self) -> Manifest:
        """Return the manifest of its runs."""
        return manifest_from_json((self.root / "manifest.json").read_text(encoding="utf-8"))

    def is_whole(self, run: Run) -> bool:
        """Whether a run is finished."""
        return (self.folder(run) / "run.json").exists()

    def folder(self, run: Run) -> Path:
        """Return the folder of a run."""
        return self.root / run.name

    def work(self, run: Run) -> Path:
        """Return the folder with the state from which a killed run resumes."""
        return self.folder(run) / "work"

    def finish(self, run: Run, rows: Iterable[CurvePoint], cpu_seconds: float) -> None:
        """Write the results of a finished run, and remove its work folder."""
        folder = self.folder(run)
        write_whole(folder / "rounds.jsonl", "".join(json.dumps(asdict(row)) + "\n" for row in rows))
        about = {
            "arm": asdict(run.arm),
            "seed": run.seed,
            "versions": versions(),
            "cpu_seconds_of_the_last_start": round(cpu_seconds, 1),
        }
        write_whole(folder / "run.json", _text(about))
        shutil.rmtree(self.work(run))

    def curves(self) -> list[Curve]:
        """Return the finished runs, in the order of arms and seeds."""
        plan, found = self.plan(), []
        for arm in known_arms().values():
            folders = (self.root / Run(plan, arm, 0).name).parent.glob("seed-*")
            for seed in sorted(int(folder.name.removeprefix("seed-")) for folder in folders):
                run = Run(plan, arm, seed)
                if self.is_whole(run):
                    found.append(Curve(run, self._rows(run)))
        return found

    def so_far(self, run: Run) -> Curve | None:
        """Return a run up to the last round that all its agents have finished; None before the first one."""
        if self.is_whole(run):
            return Curve(run, self._rows(run))
        journals = [self.work(run) / f"agent-{agent}" / "journal.jsonl" for agent in range(run.plan.agents)]
        if not all(path.exists() for path in journals):
            return None
        rows = [Journal(path).rows() for path in journals]
        common = min(len(each) for each in rows)
        if not common:
            return None
        return Curve(run, tuple(each[place] for place in range(common) for each in rows))

    def _rows(self, run: Run) -> tuple[CurvePoint, ...]:
        lines = (self.folder(run) / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        return tuple(CurvePoint(**json.loads(line)) for line in lines)

    @property
    def _experiment(self) -> Path:
        return self.root / "experiment.json"


def versions() -> dict[str, str]:
    """Return the versions that the figures depend on besides the plan."""
    return {
        **{name: version(name) for name in PACKAGES},
        "reasoning-gym": RELEASE,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically, and its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table with a heading; None becomes an empty cell."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
