"""`python -m support.attack_picture`: draw the table of attacks from three starts (docs/results.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sapo_client.pictures import DPI, drawing, style

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "results.md"
PICTURE: Final = ROOT / "docs" / "images" / "attacks.png"
HEAD: Final = "| attack | `bundled` | `bundled-small` | `bundled-chatty` |"
STARTS: Final = ("bundled", "bundled-small", "bundled-chatty")
FLOOR: Final = 0.97
"""What the page asks for, as a share of what training alone reaches."""

_SHARE: Final = re.compile(r"(\d\.\d\d) ± (\d\.\d\d)")


@dataclass(frozen=True, slots=True)
class Row:
    """An attack's shares of alone with their half widths, by start, for one and for two attackers."""

    attack: str
    shares: tuple[tuple[tuple[float, float], ...], ...]


def rows(page: str) -> Iterator[Row]:
    """Yield the rows of the page's table."""
    _, _, table = page.partition(HEAD)
    for line in table.split("\n\n")[0].splitlines()[2:]:
        attack, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found = [[(float(a), float(b)) for a, b in _SHARE.findall(cell)] for cell in cells[: len(STARTS)]]
        yield Row(attack, tuple(map(tuple, found)))


def draw(table: list[Row], path: Path) -> None:
    """Draw a panel for each start: a point with its interval for each attack and number of attackers."""
    with drawing() as pyplot:
        figure, panels = pyplot.subplots(1, len(STARTS), figsize=(13, 6), sharey=True, layout="constrained")
        for place, (panel, start) in enumerate(zip(panels, STARTS, strict=True)):
            panel.axvline(FLOOR, color="black", linewidth=1.0, linestyle="--")
            panel.axvline(1.0, color="black", linewidth=0.8)
            for row, each in enumerate(table):
                _points(panel, row, each.shares[place])
            panel.set_title(start)
            panel.set_xlim(0.85, 1.65)
        panels[0].set_yticks(range(len(table)), [each.attack for each in table])
        panels[0].invert_yaxis()
        figure.supxlabel(
            "held-out pass@1 at equal processor seconds, as a share of what training alone reaches\n"
            "circle: 25 % of the accounts attack; square: 40 %; whisker: 95 % interval; dashed: 0.97",
            fontsize=12,
        )
        figure.savefig(path, dpi=DPI)
        pyplot.close(figure)


def _points(panel: Any, row: int, shares: tuple[tuple[float, float], ...]) -> None:
    for number, (mean, half) in enumerate(shares):
        line = style(number)
        panel.errorbar(
            mean,
            row + 0.3 * (number - (len(shares) - 1) / 2),
            xerr=half,
            color=line.colour,
            marker=line.marker,
            capsize=2,
        )


if __name__ == "__main__":
    draw(list(rows(PAGE.read_text(encoding="utf-8"))), PICTURE)
