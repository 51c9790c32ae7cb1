"""Style of plots: colours that colour-blind readers can distinguish, line styles, and legends.

Colours are those of Okabe and Ito (2008), with a dark brown for their yellow, which is faint on white, and
greys for controls. Lines also differ in their markers, so that a picture can be read in grey. Type is large
enough for half the size.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

DPI: Final = 150
PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#661100")
GREYS: Final = ("#000000", "#666666", "#999999", "#444444")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p")
_SETTINGS: Final = {
    "font.size": 13,
    "axes.titlesize": 14,
    "legend.fontsize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The style that distinguishes a line from others.

    Attributes:
        dashed: whether it is the line of a control.
    """

    colour: str
    marker: str
    dashed: bool = False

    def arguments(self, points: int) -> dict[str, Any]:
        """Return matplotlib's arguments for a line of ``points`` points; about eight of them get a marker."""
        return {
            "color": self.colour,
            "linewidth": 2.2,
            "linestyle": (0, (4, 2)) if self.dashed else "-",
            "marker": self.marker,
            "markersize": 6,
            "markevery": max(1, points // 8),
        }


def style(index: int, *, dashed: bool = False) -> LineStyle:
    """Return the style of a line by its index, with a period of 84; dashed ones are grey."""
    colours = GREYS if dashed else PALETTE
    marker = MARKERS[index % len(MARKERS)]
    return LineStyle(colours[index % len(colours)], marker, dashed)


@contextmanager
def drawing() -> Iterator[Any]:
    """Yield matplotlib's ``pyplot`` with our settings, drawing into files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(_SETTINGS):
        yield pyplot


def legend(figure: Any, axes: Any, says: str) -> None:
    """Write a figure's legend below it, preceded by an explanation of its lines, bands and marks.

    Args:
        axes: the panel whose lines are named.
        says: lines of text; long ones are wrapped to the figure's width.
    """
    width = int(_CHARACTERS_PER_INCH * figure.get_figwidth())
    wrapped = "\n".join(part for line in says.splitlines() for part in textwrap.wrap(line, width))
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=max(2, int(figure.get_figwidth() // 3)),
        frameon=False,
        title=wrapped,
        title_fontsize=11,
    )


_CHARACTERS_PER_INCH: Final = 11
"""Of the small type."""
