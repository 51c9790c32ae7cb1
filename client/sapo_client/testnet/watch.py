"""The live view of a running testnet, from event files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from sapo_client.testnet.node_record import NodeRecord
from sapo_client.testnet.plot import smooth

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

SPARKS: Final = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH: Final = 16

PLAIN_SECONDS: Final = 15.0
"""Time between two blocks of lines if the output is not a terminal."""


@dataclass(frozen=True, slots=True)
class SwarmSnapshot:
    """State of the swarm at one moment.

    Attributes:
        phase: name of the current phase.
        block: head of the chain; none before the first query.
        points: points on the ledger so far, by account.
        notes: failures so far, the latest last.
    """

    phase: str
    epoch: int | None
    epochs: int
    seconds_left: float
    block: int | None
    records: Sequence[NodeRecord]
    points: Mapping[str, int]
    notes: Sequence[str] = ()


def sparkline(values: Sequence[float], width: int = SPARKLINE_WIDTH) -> str:
    """Return numbers from 0 to 1 as a line of block characters: smoothed, one block per part of the run."""
    if not values:
        return ""
    curve = smooth(values)
    width = min(width, len(curve))
    picked = [curve[(index + 1) * len(curve) // width - 1] for index in range(width)]
    top = len(SPARKS) - 1
    return "".join(SPARKS[min(top, max(0, round(value * top)))] for value in picked)


def headline(snapshot: SwarmSnapshot) -> str:
    """Return one line on the state of the whole swarm."""
    epoch = "before epoch 0" if snapshot.epoch is None else f"epoch {snapshot.epoch} of {snapshot.epochs}"
    block = "" if snapshot.block is None else f"  block {snapshot.block}"
    return f"{snapshot.phase}  {epoch}{block}  {max(0.0, snapshot.seconds_left):.0f} s left"


def plain_lines(snapshot: SwarmSnapshot) -> list[str]:
    """Return the snapshot as plain text: a headline and one line per node."""
    return [headline(snapshot), *(f"  {_plain(record, snapshot.points)}" for record in snapshot.records)]


def _plain(record: NodeRecord, points: Mapping[str, int]) -> str:
    if not record.steps:
        return f"{record.name}: {'started' if record.starts else 'starting'}"
    return (
        f"{record.name}: step {record.steps[-1].step}  reward {smooth(record.rewards)[-1]:.2f}"
        f"  peers {record.peers}  pool {record.pool}  sampled {record.sampled}"
        f"  refused {record.refusals}  points {points.get(record.account, 0)}"
    )


def table(snapshot: SwarmSnapshot) -> RenderableType:
    """Return the snapshot as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD)
    for column in ("node", "step", "reward", "", "peers", "pool", "sampled", "refused", "points"):
        drawn.add_column(column, justify="left" if column in ("node", "") else "right")
    for record in snapshot.records:
        drawn.add_row(*_cells(record, snapshot.points))
    return Group(Text(headline(snapshot)), drawn, *map(Text, snapshot.notes[-3:]))


def _cells(record: NodeRecord, points: Mapping[str, int]) -> tuple[str, ...]:
    rewards = record.rewards
    return (
        record.name,
        str(record.steps[-1].step) if record.steps else "…",
        f"{smooth(rewards)[-1]:.2f}" if rewards else "",
        sparkline(rewards),
        str(record.peers),
        str(record.pool),
        str(record.sampled),
        str(record.refusals),
        str(points.get(record.account, 0)),
    )


class View(AbstractContextManager["View"]):
    """Live output: a table that is redrawn on a terminal, a few lines now and then elsewhere."""

    def __init__(self, console: Console, *, moving: bool) -> None:
        self._console = console
        self._live: Live | None = None
        self._moving = moving and console.is_terminal
        self._next_plain_seconds = 0.0

    def __enter__(self) -> Self:
        if self._moving:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print one permanent line."""
        self._console.print(text, markup=False, highlight=False)

    def show(self, snapshot: SwarmSnapshot, now_seconds: float) -> None:
        """Show the current state of the swarm."""
        if self._live is not None:
            self._live.update(table(snapshot), refresh=True)
        elif now_seconds >= self._next_plain_seconds:
            self._next_plain_seconds = now_seconds + PLAIN_SECONDS
            for line in plain_lines(snapshot):
                self.say(line)
