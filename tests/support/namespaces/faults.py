"""Faults of a network of real nodes: losses, a partition, a dead bootstrap node, new addresses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.namespaces.deliveries import Window
from support.namespaces.nodes import Nodes


@dataclass(frozen=True, slots=True)
class Durations:
    """How long each part lasts, in seconds.

    Attributes:
        settle: after a change, before deliveries are counted.
        count: of a time in which deliveries are counted.
        late: after such a time, in which its last groups may still arrive.
        cut: of the partition.
    """

    settle: float = 60.0
    count: float = 120.0
    late: float = 30.0
    cut: float = 600.0


@dataclass
class Scenario:
    """A run of the scenario and its observations.

    Attributes:
        note: receives progress messages.
        windows: in which deliveries are counted.
        healed_seconds: Unix time of the end of the partition; None before it.
        lowest: by moment, the lowest score that a node had for another.
        reachable: the reachability that the nodes determined.
        moved: numbers of the nodes with a new address.
        ended: why the run ended early; None if it did not.
    """

    nodes: Nodes
    durations: Durations
    note: Callable[[str], None]
    windows: list[Window] = field(default_factory=list)
    healed_seconds: float | None = None
    lowest: dict[str, float] = field(default_factory=dict)
    reachable: Counter[str] = field(default_factory=Counter)
    moved: tuple[int, ...] = ()
    ended: str | None = None

    @property
    def all_numbers(self) -> tuple[int, ...]:
        """The numbers of all nodes."""
        return tuple(range(self.nodes.terms.nodes))

    def run(self) -> None:
        """Run all parts in order."""
        self.nodes.wait(self.durations.settle)
        self.reachable.update(self._status(number)["reachable"] for number in self.all_numbers)
        self.nodes.world.lose(0.01)
        self._count("1 % loss")
        self.nodes.world.lose(0.0)
        self._partition()
        self._move_and_kill()
        self.nodes.world.lose(0.3)
        self._count("30 % loss")
        self.nodes.world.lose(0.0)
        self.nodes.wait(self.durations.settle)
        self._count("after 30 % loss")

    def _partition(self) -> None:
        self.note("a partition begins")
        self.nodes.world.cut()
        begin = time.time()
        self.nodes.wait(self.durations.cut)
        for side in (0, 1):
            there = tuple(n for n in self.all_numbers if self.nodes.world.sites[n].side == side)
            begin_counting = begin + self.durations.cut / 2
            self.windows.append(
                Window(
                    f"side {side} of a partition", begin_counting, time.time() - self.durations.late, there
                )
            )
        self.nodes.world.heal()
        self.healed_seconds = time.time()
        self.note("the partition has ended")
        self.nodes.wait(self.durations.settle)
        self._count("after the partition")

    def _move_and_kill(self) -> None:
        """Kill the boot node, and move a node with a public address and one behind a router."""
        self.note("the boot node is killed, and two addresses change")
        others, sites = self.all_numbers[1:], self.nodes.world.sites
        self.nodes.kill(0)
        self.moved = tuple(
            next(n for n in others if sites[n].behind_router is kind) for kind in (False, True)
        )
        for number in self.moved:
            self.nodes.world.move(number)
        self.nodes.wait(self.durations.settle)
        self._count("without the boot node, two new addresses", others)
        self.note("the boot node starts again")
        self.nodes.start(0)
        self.nodes.wait(self.durations.settle)
        self._count("the boot node is back")

    def _count(self, name: str, numbers: Sequence[int] | None = None) -> None:
        """Wait for a time whose groups are counted, and for late arrivals."""
        begin = time.time()
        self.nodes.wait(self.durations.count)
        self.windows.append(Window(name, begin, time.time(), tuple(numbers or self.all_numbers)))
        self.nodes.wait(self.durations.late)
        self.lowest[name] = self.nodes.lowest_score()
        self.note(f"{name}: lowest score {self.lowest[name]:.1f}")

    def _status(self, number: int) -> dict[str, Any]:
        status: dict[str, Any] = self.nodes.ask(number, "status")
        return status
