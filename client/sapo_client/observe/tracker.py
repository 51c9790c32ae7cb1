"""``python -m sapo_client.observe.tracker``: logs a node's metrics to trackio or TensorBoard.

It is a process of its own: these libraries take a second to import, print, and start threads. It reads one
JSON object per line from standard input, such as ``{"step": 7, "figures": {"reward": 0.5}}``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

Figures = Mapping[str, float]


class Tracker(Protocol):
    """Logs the metrics of a run."""

    def log(self, figures: Figures, step: int) -> None:
        """Log the metrics of a step."""
        ...

    def close(self) -> None:
        """Flush what is buffered, and close the run."""
        ...


class TrackioTracker:
    """A run of a trackio project, in trackio's own folder (``TRACKIO_DIR``): `trackio show` displays it."""

    def __init__(self, project: str, run: str) -> None:
        import trackio

        self._run = trackio.init(
            project=project,
            name=run,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, figures: Figures, step: int) -> None:
        """Log the metrics of a step."""
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        """Flush what is buffered, and close the run."""
        self._run.finish()


class TensorboardTracker:
    """Event files of one folder: `tensorboard --logdir FOLDER` displays them. Needs no torch."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))

    def log(self, figures: Figures, step: int) -> None:
        """Log the metrics of a step."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Flush what is buffered, and close the run."""
        self._writer.close()


def open_tracker(name: str, *, project: str, run: str, folder: Path) -> Tracker:
    """Return the tracker of a name: ``trackio`` or ``tensorboard``.

    Args:
        folder: for TensorBoard's event files.
    """
    return TrackioTracker(project, run) if name == "trackio" else TensorboardTracker(folder)


def follow(lines: Iterable[str], tracker: Tracker) -> int:
    """Log every line; return their number."""
    count = 0
    for line in lines:
        message = json.loads(line)
        tracker.log(message["figures"], message["step"])
        count += 1
    return count


def main(arguments: list[str]) -> int:
    """Follow standard input to its end; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sapo_client.observe.tracker")
    parser.add_argument("tracker", choices=("trackio", "tensorboard"))
    parser.add_argument("--project", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args(arguments)
    tracker = open_tracker(given.tracker, project=given.project, run=given.run, folder=given.folder)
    try:
        follow(sys.stdin, tracker)
    finally:
        tracker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
