"""The live view of a running testnet, from event files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from sapo_client.testnet.plot import smooth
from sapo_client.testnet.story import Story

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

SPARKS: Final = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH: Final = 16

PLAIN_SECONDS: Final = 15.0
"""Between two lines where nobody can watch a table move."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The swarm at one moment.

    Attributes:
        phase: what is going on, in words.
        block: head of the chain, if it was asked.
        points: on the ledger so far, by account.
        notes: what went wrong and when, the latest last.
    """

    phase: str
    epoch: int | None
    epochs: int
    seconds_left: float
    block: int | None
    stories: Sequence[Story]
    points: Mapping[str, int]
    notes: Sequence[str] = ()


def sparkline(values: Sequence[float], width: int = SPARKLINE_WIDTH) -> str:
    """A run of numbers from 0 to 1 as a line of blocks: smoothed, then one block per part of the run."""
    if not values:
        return ""
    curve = smooth(values)
    width = min(width, len(curve))
    picked = [curve[(index + 1) * len(curve) // width - 1] for index in range(width)]
    top = len(SPARKS) - 1
    return "".join(SPARKS[min(top, max(0, round(value * top)))] for value in picked)


def headline(moment: Moment) -> str:
    """One line about the whole swarm."""
    epoch = "before epoch 0" if moment.epoch is None else f"epoch {moment.epoch} of {moment.epochs}"
    block = "" if moment.block is None else f"  block {moment.block}"
    return f"{moment.phase}  {epoch}{block}  {max(0.0, moment.seconds_left):.0f} s left"


def plain_lines(moment: Moment) -> list[str]:
    """The moment where no table can be drawn: a headline and a line per node."""
    return [headline(moment), *(f"  {_plain(story, moment.points)}" for story in moment.stories)]


def _plain(story: Story, points: Mapping[str, int]) -> str:
    if not story.steps:
        return f"{story.name}: {'started' if story.starts else 'starting'}"
    return (
        f"{story.name}: step {story.steps[-1].step}  reward {smooth(story.rewards)[-1]:.2f}"
        f"  peers {story.peers}  pool {story.pool}  sampled {story.sampled}"
        f"  refused {story.refusals}  points {points.get(story.account, 0)}"
    )


def table(moment: Moment) -> RenderableType:
    """The moment as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD)
    for column in ("node", "step", "reward", "", "peers", "pool", "sampled", "refused", "points"):
        drawn.add_column(column, justify="left" if column in ("node", "") else "right")
    for story in moment.stories:
        drawn.add_row(*_cells(story, moment.points))
    return Group(Text(headline(moment)), drawn, *map(Text, moment.notes[-3:]))


def _cells(story: Story, points: Mapping[str, int]) -> tuple[str, ...]:
    rewards = story.rewards
    return (
        story.name,
        str(story.steps[-1].step) if story.steps else "…",
        f"{smooth(rewards)[-1]:.2f}" if rewards else "",
        sparkline(rewards),
        str(story.peers),
        str(story.pool),
        str(story.sampled),
        str(story.refusals),
        str(points.get(story.account, 0)),
    )


class View(AbstractContextManager["View"]):
    """Where the swarm is shown: a table that moves on a terminal, a few lines now and then elsewhere."""

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
        """One line that stays."""
        self._console.print(text, markup=False, highlight=False)

    def show(self, moment: Moment, now_seconds: float) -> None:
        """The swarm as it is now."""
        if self._live is not None:
            self._live.update(table(moment), refresh=True)
        elif now_seconds >= self._next_plain_seconds:
            self._next_plain_seconds = now_seconds + PLAIN_SECONDS
            for line in plain_lines(moment):
                self.say(line)
