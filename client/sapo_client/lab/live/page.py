"""The live page of an experiment's arms, with finished and running runs.

It reads only the experiment's folder: the curves of finished runs, and the growing journals of the others.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from sapo_client.dashboard.serve import serve_pages
from sapo_client.lab.statistics import estimate
from sapo_client.lab.store import ExperimentStore
from sapo_client.observe.plain import JSON, to_json
from sapo_client.observe.web import WebRequest
from sapo_client.paths import DataDir

ARMS_VIEW = "swarm"


@dataclass(slots=True)
class RowTail:
    """The rows of a growing file; only new lines are read."""

    path: Path
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> Sequence[Mapping[str, Any]]:
        """Return all rows so far; a file that became shorter is read from its beginning."""
        if self.path.stat().st_size < self._offset:
            self.rows, self._offset = [], 0
        with self.path.open("rb") as stream:
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                document = json.loads(line)
                self.rows.append(document.get("row", document))  # a journal's line has more than the row
        return self.rows


class ExperimentPage:
    """The arms of an experiment, for the page.

    Args:
        root: the experiment's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tails: dict[Path, RowTail] = {}

    def nodes(self) -> JSON:
        """Return the data of the page: arms by round, and no node."""
        return {
            "title": self._root.name,
            "swarm": True,
            "axis": "round",
            "tab": "Arms",
            "headline": "Arms: reward of own answers",
            "parts": "Held-out tasks: pass@1, sampled",
            "nodes": [],
        }

    async def view(self, node: str, name: str, request: WebRequest) -> JSON | None:
        """Return the curves of all arms."""
        if (node, name) != (ARMS_VIEW, "curves"):
            return None
        return await trio.to_thread.run_sync(self._curves)

    def stream(self, node: str, request: WebRequest) -> AsyncIterator[bytes] | None:
        """Return nothing: there is no node."""
        return None

    async def order(self, node: str, name: str, body: bytes) -> JSON | None:
        """Return nothing: there is no node."""
        return None

    def _curves(self) -> JSON:
        figures: dict[str, JSON] = {}
        last = 1
        for arm, runs in self._runs().items():
            figures[arm] = to_json(_over_seeds(runs, _local))
            figures[f"node/{arm}"] = to_json(_over_seeds(runs, _held_out))
            last = max([last, *(row["round"] for rows in runs for row in rows)])
        note = (
            "Mean reward of own answers, 0 to 1, over the agents of a run; band: 95 % interval over n seeds."
            " Only seeds are repetitions. Nothing is smoothed."
        )
        return {"since": 0, "now": last, "seconds": 1, "figures": figures, "marks": [], "note": note}

    def _runs(self) -> Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]:
        """Return the rows of every run by arm."""
        found: dict[str, list[Sequence[Mapping[str, Any]]]] = defaultdict(list)
        for folder in sorted(self._root.glob("*/seed-*")):
            finished = folder / "rounds.jsonl"
            paths = [finished] if finished.exists() else sorted(folder.glob("work/agent-*/journal.jsonl"))
            rows = [row for path in paths for row in self._tails.setdefault(path, RowTail(path)).read()]
            if rows:
                found[folder.parent.name].append(rows)
        return found


def serve_experiment(root: Path, show: Callable[[str], None]) -> None:
    """Serve the page over an experiment until interrupted.

    Args:
        show: takes a link that opens the page once.

    Raises:
        SapoError: there is no experiment in the folder (exit code 8).
    """
    ExperimentStore(root).document()
    trio.run(serve_pages, DataDir(root / "page"), ExperimentPage(root), show)


def _over_seeds(
    runs: Sequence[Sequence[Mapping[str, Any]]], value: Callable[[Mapping[str, Any]], float | None]
) -> list[tuple[int, float, float | None, int]]:
    """Return round, mean over seeds, half width of its interval and number of seeds."""
    by_round: dict[int, list[float]] = defaultdict(list)
    for rows in runs:
        for number, values in _by_round(rows, value).items():
            by_round[number].append(sum(values) / len(values))
    points = []
    for number, means in sorted(by_round.items()):
        each = estimate(means)
        points.append((number, each.mean, each.half_width, each.seeds))
    return points


def _by_round(
    rows: Iterable[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float | None]
) -> Mapping[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if (known := value(row)) is not None:
            found[row["round"]].append(known)
    return found


def _local(row: Mapping[str, Any]) -> float | None:
    return float(row["local"])


def _held_out(row: Mapping[str, Any]) -> float | None:
    shares: Mapping[str, float] | None = row["held_out"]
    return sum(shares.values()) / len(shares) if shares else None
