"""What the page costs: bytes and first paint of a browser on this machine, and the node's own time.

    python -m support.page_cost DATA_DIR --minutes 10

The node of DATA_DIR runs already. The page is opened and closed in turn, for windows of equal length, so that
what else the machine does falls on both alike. Compared are rounds per second, and processor seconds per
round of the node's process (which serves the page) and of its learner.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from support.browser import browsing

from sapo_client.observe.control_client import ControlClient
from sapo_client.observe.events import last_events
from sapo_client.paths import DataDir

WINDOW_SECONDS: Final = 30.0
PAINTS: Final = 10
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Window:
    """What a node did in one window."""

    open: bool
    rounds: int
    seconds: float
    node_cpu: float
    learner_cpu: float


@dataclass(frozen=True)
class Paint:
    """One load of the page: milliseconds to the first contentful paint and to the curves, and bytes."""

    first_paint_ms: float
    load_ms: float
    transferred: int


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    data = DataDir(arguments.data_dir)
    with browsing() as chrome:
        paints = [_paint(chrome, ControlClient(data)) for _ in range(PAINTS)]
        windows = _windows(chrome, data, arguments.minutes * 60)
    print(json.dumps({**_summary(paints, windows), "windows": [asdict(each) for each in windows]}, indent=1))


def _paint(chrome: Any, client: ControlClient) -> Paint:
    """Load the page anew, without a cache."""
    chrome.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    chrome.get(client.page_link())
    _wait(lambda: chrome.execute_script("return document.querySelectorAll('.chart polyline').length > 1"))
    found = chrome.execute_script(
        """
        const [page] = performance.getEntriesByType("navigation");
        const files = performance.getEntriesByType("resource");
        const paint = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null;
        const loaded = Math.max(...files.map((each) => each.responseEnd));
        const bytes = [page, ...files].reduce((sum, each) => sum + each.transferSize, 0);
        return [paint, loaded, bytes];
        """
    )
    return Paint(*found)


def _windows(chrome: Any, data: DataDir, seconds: float) -> list[Window]:
    [started] = last_events(data.events, "node_started", 1)
    pid, client = int(str(started["pid"])), ControlClient(data)
    windows, end = list[Window](), time.monotonic() + seconds
    while time.monotonic() < end or len(windows) % 2:
        is_open = len(windows) % 2 == 0
        chrome.get(client.page_link() if is_open else "about:blank")
        before, began = _state(client, pid), time.monotonic()
        time.sleep(WINDOW_SECONDS)
        after, took = _state(client, pid), time.monotonic() - began
        rounds, node, learner = (b - a for a, b in zip(before, after, strict=True))
        windows.append(Window(is_open, int(rounds), took, node, learner))
    return windows


def _state(client: ControlClient, pid: int) -> tuple[float, float, float]:
    """Return the node's round, and processor seconds of its process and of its children."""
    status: Any = client.get("status")
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return float(status["round"]), _cpu(pid), sum(map(_cpu, children))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _summary(paints: list[Paint], windows: list[Window]) -> dict[str, Any]:
    pairs = list(zip(windows[::2], windows[1::2], strict=True))  # open, closed
    measures: dict[str, Callable[[Window], float]] = {
        "rounds per second": lambda each: each.rounds / each.seconds,
        "node cpu seconds per round": lambda each: each.node_cpu / max(1, each.rounds),
        "learner cpu seconds per round": lambda each: each.learner_cpu / max(1, each.rounds),
        "node cpu share of a core": lambda each: each.node_cpu / each.seconds,
    }
    return {
        "first paint ms": [round(each.first_paint_ms) for each in paints],
        "first paint ms, median": statistics.median(each.first_paint_ms for each in paints),
        "curves ms, median": statistics.median(each.load_ms for each in paints),
        "bytes": max(each.transferred for each in paints),
        "pairs": len(pairs),
        **{
            name: {
                "open": statistics.fmean(of(each) for each, _ in pairs),
                "closed": statistics.fmean(of(each) for _, each in pairs),
                "difference": statistics.fmean(of(a) - of(b) for a, b in pairs),
                "deviation of the difference": statistics.stdev(of(a) - of(b) for a, b in pairs),
            }
            for name, of in measures.items()
        },
    }


def _wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
