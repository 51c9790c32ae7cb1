"""Cost of the page: bytes and first paint of a browser on this machine, and the node's processor time.

    python -m support.page_cost DATA_DIR --minutes 30
    python -m support.page_cost DATA_DIR --minutes 10 --browser

The node of DATA_DIR runs already. The page is opened and closed in turn, for windows of equal length, first
open in one pair and first closed in the next, so that what else the machine does falls on both alike.
Compared are rounds per second, and processor seconds of the node's process (which serves the page) and of
its learner and checkers, per round and per second. What serving costs a second is also fitted to all windows
by least squares, beside what a round and an idle second cost: windows differ in their rounds. Several pages
at once (``--readers``) show the cost of one more exactly.

A browser on the same cores takes them from the node, so an open page is a reader that asks for the same at
the same rhythm and draws nothing; ``--browser`` takes a real one, and measures its paints.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from support.browser import browsing
from support.page_reader import PageReader
from support.processes import children_of

from sapo_client.observe.control_client import ControlClient
from sapo_client.observe.events import last_events
from sapo_client.paths import DataDir

WINDOW_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 2.0
"""After opening or closing; loading the page anew in every window is no part of keeping it open."""

PAINTS: Final = 10


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
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--readers", type=int, default=1, help="pages that are open at once")
    arguments = parser.parse_args()
    data = DataDir(arguments.data_dir)
    client, readers = ControlClient(data), 1 if arguments.browser else arguments.readers
    with browsing() if arguments.browser else nullcontext() as chrome:
        paints = [_paint(chrome, client) for _ in range(PAINTS)] if arguments.browser else []
        opened = partial(_shown, chrome, client) if arguments.browser else partial(_read, client, readers)
        windows = list(_windows(opened, data, arguments.minutes * 60))
    print(
        json.dumps(
            {**_summary(paints, windows, readers), "windows": [asdict(each) for each in windows]}, indent=1
        )
    )


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


@contextmanager
def _shown(chrome: Any, client: ControlClient) -> Iterator[None]:
    chrome.get(client.page_link())
    yield
    chrome.get("about:blank")


@contextmanager
def _read(client: ControlClient, readers: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(readers):
            stack.enter_context(PageReader(client))
        yield


def _windows(opened: Callable[[], Any], data: DataDir, seconds: float) -> Iterator[Window]:
    """Yield windows in pairs: open and closed, closed and open, and so on."""
    [started] = last_events(data.events, "node_started", 1)
    pid, client, end = int(str(started["pid"])), ControlClient(data), time.monotonic() + seconds
    first = True
    while time.monotonic() < end:
        for is_open in (first, not first):
            with opened() if is_open else nullcontext():
                time.sleep(SETTLE_SECONDS)
                before, began = _state(client, pid), time.monotonic()
                time.sleep(WINDOW_SECONDS)
                after, took = _state(client, pid), time.monotonic() - began
            rounds, node, learner = (b - a for a, b in zip(before, after, strict=True))
            yield Window(is_open, int(rounds), took, node, learner)
        first = not first


def _state(client: ControlClient, pid: int) -> tuple[float, float, float]:
    """Return the node's round, and processor seconds of its process and of its descendants."""
    status: Any = client.get("status")
    return float(status["round"]), _cpu(pid), sum(map(_cpu, _descendants(pid)))


def _descendants(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(each for child in children for each in _descendants(child))]


def _cpu(pid: int) -> float:
    """Return the processor seconds of a process, to the nanosecond; on Linux the clock's id holds its own."""
    return time.clock_gettime((~pid << 3) | 2)


def _summary(paints: list[Paint], windows: list[Window], readers: int) -> dict[str, Any]:
    pairs = [
        sorted(pair, key=lambda each: not each.open) for pair in zip(windows[::2], windows[1::2], strict=True)
    ]
    measures: dict[str, Callable[[Window], float]] = {
        "rounds per second": lambda each: each.rounds / each.seconds,
        "node cpu ms per second": lambda each: 1000 * each.node_cpu / each.seconds,
        "all cpu ms per second": lambda each: 1000 * (each.node_cpu + each.learner_cpu) / each.seconds,
        "node cpu ms per round": lambda each: 1000 * each.node_cpu / each.rounds,
        "learner cpu ms per round": lambda each: 1000 * each.learner_cpu / each.rounds,
        "all cpu ms per round": lambda each: 1000 * (each.node_cpu + each.learner_cpu) / each.rounds,
    }
    found: dict[str, Any] = {"pairs": len(pairs)}
    for name, of in measures.items():
        differences = [of(opened) - of(closed) for opened, closed in pairs]
        closed = statistics.fmean(of(each) for _, each in pairs)
        half = 2.0 * statistics.stdev(differences) / math.sqrt(len(differences))
        found[name] = {
            "open": statistics.fmean(of(each) for each, _ in pairs),
            "closed": closed,
            "difference": statistics.fmean(differences),
            "half width of its 95 % interval": half,
            "per cent of closed": 100 * statistics.fmean(differences) / closed,
            "per cent, half width": 100 * half / closed,
        }
    found["serving"] = _serving(windows, readers)
    if paints:
        found |= {
            "first paint ms": [round(each.first_paint_ms) for each in paints],
            "first paint ms, median": statistics.median(each.first_paint_ms for each in paints),
            "curves ms, median": statistics.median(each.load_ms for each in paints),
            "bytes": max(each.transferred for each in paints),
        }
    return found


def _serving(windows: list[Window], readers: int) -> dict[str, float]:
    """Fit the node's processor milliseconds to its rounds, its seconds, and the seconds of an open page."""
    design = np.array([(each.rounds, each.seconds, each.seconds * each.open * readers) for each in windows])
    spent = np.array([1000 * each.node_cpu for each in windows])
    fitted, *_ = np.linalg.lstsq(design, spent)
    rest = spent - design @ fitted
    variance = rest @ rest / (len(windows) - design.shape[1]) * np.linalg.inv(design.T @ design)
    used = statistics.fmean(
        1000 * (each.node_cpu + each.learner_cpu) / each.seconds for each in windows if not each.open
    )
    half = 2.0 * math.sqrt(variance[2, 2])
    return {
        "ms per round": fitted[0],
        "ms per idle second": fitted[1],
        "ms per second of an open page": fitted[2],
        "half width of its 95 % interval": half,
        "per cent of what the closed node and its learner use": 100 * fitted[2] / used,
        "per cent, half width": 100 * half / used,
    }


def _wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
