"""How many of an account's groups hold a run of text, in memory of fixed size.

A count-min sketch with conservative update (Estan and Varghese, 2002): counts may be too large where many
different runs share cells, and only the halving of all counts makes one too small.
"""

from array import array
from collections.abc import Collection, Iterator
from typing import Final

DEPTH: Final = 3
MAX_IN_A_BYTE: Final = 255
_ROW_BITS: Final = 20
"""Bits of a run's hash that choose its cell in each row; three times as many are fewer than 64."""


RUN_CHARACTERS: Final = 4
"""Of runs of characters. Three recur by chance too often to tell."""


def runs_of(text: str) -> Iterator[str]:
    """Yield the runs of ``RUN_CHARACTERS`` in a text; none of a shorter one."""
    return (text[at : at + RUN_CHARACTERS] for at in range(len(text) - RUN_CHARACTERS + 1))


class RunCounts:
    """Number of groups per run.

    Args:
        width: cells of each of ``DEPTH`` rows, of one byte where the counts fit into it, else of two; at most
            a million.
        fade_groups: at this many groups all counts are halved; at most 65,535.

    Attributes:
        groups: how many are counted.
    """

    def __init__(self, width: int, fade_groups: int) -> None:
        self.groups = 0
        self._width = width
        self._fade_groups = fade_groups
        self._type = "B" if fade_groups <= MAX_IN_A_BYTE else "H"
        self._cells = array(self._type, [0]) * (width * DEPTH)

    def add(self, runs: Collection[int]) -> None:
        """Count a group.

        Args:
            runs: 64-bit hashes of the different runs that it holds.
        """
        if self.groups >= self._fade_groups:
            self._cells = array(self._type, [count // 2 for count in self._cells])
            self.groups //= 2
        self.groups += 1
        cells = self._cells
        for run in runs:
            places = self._places(run)
            raised = min(cells[place] for place in places) + 1
            for place in places:
                if cells[place] < raised:
                    cells[place] = raised

    def count(self, run: int) -> int:
        """Return how many groups held a run."""
        return min(self._cells[place] for place in self._places(run))

    def share(self, run: int) -> float:
        """Return the share of the groups that held a run; 0 without groups."""
        return self.count(run) / self.groups if self.groups else 0.0

    def _places(self, run: int) -> tuple[int, ...]:
        return tuple(row * self._width + (run >> (_ROW_BITS * row)) % self._width for row in range(DEPTH))
