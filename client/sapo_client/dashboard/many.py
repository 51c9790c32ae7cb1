"""One page over many nodes: the views of each, requested from it, and a view of all of them.

The figures come from the nodes' history files, which cost the nodes nothing; everything else from their
control ports. A node that is down keeps its curves.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import httpx
import trio

from sapo_client.dashboard.curves import CurvesDocument, curves_document
from sapo_client.dashboard.history import FigureHistory, Moments
from sapo_client.dashboard.session import Sessions
from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe.control_client import HOST, read_port, read_token
from sapo_client.observe.plain import JSON, to_json
from sapo_client.observe.starting import starting_node
from sapo_client.observe.web import WebRequest
from sapo_client.paths import DataDir

SWARM: Final = "swarm"
ASK_SECONDS: Final = 90.0
"""Timeout for a node's answer; a claim waits for the chain."""

MAX_MARKS: Final = 500

CARRIED: Final = 3
"""Intervals in which a node's last point counts in the mean until it has another. A round may last longer
than an interval, and the mean would jump with the nodes that happen to have a point."""

NodeRole = Literal["node", "control"]
"""A control trains alone: nothing is shared with it."""


@dataclass(frozen=True, slots=True)
class ShownNode:
    """One node of the page."""

    name: str
    data: DataDir
    role: NodeRole = "node"


@dataclass(frozen=True, slots=True)
class AttackMark:
    """A moment at which attackers sent something.

    Attributes:
        at: seconds since 1970.
    """

    at: float
    label: str


class ManyNodes:
    """The nodes of a swarm on this machine, for one page.

    Args:
        title: the swarm's name on the page.
        nodes: returns the current nodes; called before each answer.
        marks: moments to mark on the curves.
    """

    def __init__(
        self, title: str, nodes: Callable[[], Sequence[ShownNode]], marks: Callable[[], Sequence[AttackMark]]
    ) -> None:
        self._title = title
        self._nodes = nodes
        self._marks = marks
        self._histories: dict[Path, FigureHistory] = {}

    def nodes(self) -> JSON:
        """Return the nodes, and their roles."""
        shown = [{"name": each.name, "role": each.role, "title": each.name} for each in self._nodes()]
        return {"title": self._title, "swarm": True, "axis": "time", "nodes": to_json(shown)}

    async def view(self, node: str, name: str, request: WebRequest) -> JSON | None:
        """Return a view of all nodes, or of one.

        Raises:
            SapoError: the node refuses to answer.
        """
        if node == SWARM:
            return await trio.to_thread.run_sync(self._swarm, request) if name == "curves" else None
        if (shown := self._find(node)) is None:
            return None
        if name == "curves":
            return await trio.to_thread.run_sync(self._curves, shown, request)
        return await self._ask("GET", shown, f"{name}?{request.query}")

    def stream(self, node: str, request: WebRequest) -> AsyncIterator[bytes] | None:
        """Return a node's live events."""
        shown = self._find(node)
        return None if shown is None else self._events(shown)

    async def order(self, node: str, name: str, body: bytes) -> JSON | None:
        """Pass a command on to a node.

        Raises:
            SapoError: it was not done.
        """
        shown = self._find(node)
        return None if shown is None else await self._ask("POST", shown, name, body)

    def _find(self, name: str) -> ShownNode | None:
        return next((each for each in self._nodes() if each.name == name), None)

    def _history(self, shown: ShownNode) -> FigureHistory | None:
        path = shown.data.history
        if path not in self._histories and path.exists():
            self._histories[path] = FigureHistory(path)
        return self._histories.get(path)

    def _curves(self, shown: ShownNode, request: WebRequest) -> JSON | None:
        history = self._history(shown)
        return None if history is None else to_json(curves_document(history, request))

    def _swarm(self, request: WebRequest) -> JSON:
        """Return the mean over the nodes of each role, every node's own curve, and its curves by family."""
        window: CurvesDocument = {"since": 0.0, "now": time.time(), "seconds": 10, "figures": {}}
        figures: dict[str, JSON] = {}
        by_role: dict[str, list[dict[int, float]]] = defaultdict(list)
        for each in self._nodes():
            if (history := self._history(each)) is None:
                continue
            own = [name for name in history.figures() if name == "own" or name.startswith("own/")]
            window = curves_document(history, request, only=own)
            points = window["figures"].pop("own", ())
            figures[f"node/{each.name}"] = to_json(points)
            for name, of_family in window["figures"].items():
                figures[f"family/{name.removeprefix('own/')}/{each.name}"] = to_json(of_family)
            by_role[each.role].append({start: mean for start, mean, *_ in points})
        for role, nodes in by_role.items():
            if rows := _mean_over(nodes, window["seconds"]):
                figures[role] = to_json(rows)
        about: dict[str, JSON] = {
            "since": window["since"],
            "now": window["now"],
            "seconds": window["seconds"],
        }
        return {**about, "figures": figures, "marks": to_json(_thinned(self._marks()))}

    async def _ask(self, method: str, shown: ShownNode, path: str, body: bytes = b"") -> JSON:
        try:
            async with httpx.AsyncClient(timeout=ASK_SECONDS) as client:
                answer = await client.request(
                    method, self._url(shown, path), headers=_bearer(shown), content=body
                )
        except (httpx.HTTPError, SapoError) as error:
            raise _down(shown) from error
        found: JSON = answer.json()
        return found

    async def _events(self, shown: ShownNode) -> AsyncIterator[bytes]:
        """Yield a node's events; if it is down, end: the browser asks again."""
        timeout = httpx.Timeout(ASK_SECONDS, read=None)
        try:
            async with (
                httpx.AsyncClient(timeout=timeout) as client,
                client.stream("GET", self._url(shown, "stream"), headers=_bearer(shown)) as answer,
            ):
                async for part in answer.aiter_bytes():
                    yield part
        except (httpx.HTTPError, SapoError):
            return

    def _url(self, shown: ShownNode, path: str) -> str:
        root = Sessions(read_token(shown.data)).root
        return f"http://{HOST}:{read_port(shown.data)}{root}api/self/{path}"


def _mean_over(
    nodes: Sequence[Mapping[int, float]], seconds: int
) -> list[tuple[int, float, float | None, int]]:
    """Return start, mean, half of the 95 % interval, and number of nodes, of each interval of some length.

    Args:
        nodes: mean reward of each node by the start of the interval.
    """
    rows = []
    for start in sorted(set().union(*nodes)):
        sums = Moments()
        for points in nodes:
            earlier = (start - number * seconds for number in range(CARRIED + 1))
            if (last := next((points[at] for at in earlier if at in points), None)) is not None:
                sums.add(last)
        rows.append((start, sums.mean, sums.half_width, sums.n))
    return rows


def _bearer(shown: ShownNode) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {read_token(shown.data)}"}


def _down(shown: ShownNode) -> SapoError:
    starting = starting_node(shown.data)
    awaited = None if starting is None else starting.waits_for
    why = "it is starting, or has stopped" if awaited is None else f"its start waits: {awaited.why}"
    return SapoError(
        f"the node {shown.name} does not answer: {why}",
        hint="its curves are of the file that it left; choose another node above",
        exit_code=ExitCode.NETWORK,
    )


def _thinned(marks: Sequence[AttackMark]) -> Sequence[AttackMark]:
    """Return at most ``MAX_MARKS`` marks, evenly chosen."""
    step = max(1, -(-len(marks) // MAX_MARKS))
    return marks[::step]
