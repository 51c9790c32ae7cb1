"""Curves as SVG, drawn without a library: bins of steps with their mean and its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from sapo_client.intervals import NORMAL_975

BINS: Final = 60
"""Number of bins of a curve."""

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 34, 40


@dataclass(frozen=True, slots=True)
class Bin:
    """Values of neighbouring steps.

    Attributes:
        x: their mean position.
        half_width: half the width of the mean's 95 % interval, normal approximation; none for fewer than two
            values.
    """

    x: float
    mean: float
    half_width: float | None
    n: int


def binned(points: Sequence[tuple[float, float]], bins: int = BINS) -> list[Bin]:
    """Return points, in order of their position, in bins of equal numbers of values."""
    size = max(1, math.ceil(len(points) / bins))
    return [_bin(points[start : start + size]) for start in range(0, len(points), size)]


def _bin(points: Sequence[tuple[float, float]]) -> Bin:
    n = len(points)
    mean = sum(value for _, value in points) / n
    variance = sum((value - mean) ** 2 for _, value in points) / (n - 1) if n > 1 else None
    half = None if variance is None else NORMAL_975 * math.sqrt(variance / n)
    return Bin(sum(x for x, _ in points) / n, mean, half, n)


def svg(title: str, bins: Sequence[Bin], x_label: str, y_label: str) -> str:
    """Return the SVG of a curve of shares, 0 to 1, with its interval as a band."""
    first, last = bins[0].x, bins[-1].x
    span = (last - first) or 1.0

    def at(x: float, y: float) -> str:
        px = _LEFT + (x - first) / span * (_WIDTH - _LEFT - _RIGHT)
        py = _TOP + (1 - min(1.0, max(0.0, y))) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{px:.1f},{py:.1f}"

    upper = [at(each.x, each.mean + (each.half_width or 0)) for each in bins]
    lower = [at(each.x, each.mean - (each.half_width or 0)) for each in reversed(bins)]
    line = " ".join(at(each.x, each.mean) for each in bins)
    marks = "".join(_mark(at(first, share), f"{share:g}") for share in (0, 0.25, 0.5, 0.75, 1))
    n = f"{bins[0].n} steps" if len({each.n for each in bins[:-1]}) <= 1 else "steps"
    note = f"line: mean of {n} per bin; band: its 95 % interval (normal approximation)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
        f'<text x="{_LEFT}" y="14" font-size="14">{escape(title)}</text>'
        f'<text x="{_LEFT}" y="28" fill="#555">{escape(note)}</text>{marks}'
        f'<polygon points="{" ".join(upper + lower)}" fill="#0072b2" fill-opacity="0.25"/>'
        f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 8}" text-anchor="end">{escape(x_label)} {last:g}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{escape(x_label)} {first:g}</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="14" text-anchor="end">{escape(y_label)}</text></svg>\n'
    )


def _mark(place: str, text: str) -> str:
    _, _, y = place.partition(",")
    end = _WIDTH - _RIGHT
    return (
        f'<line x1="{_LEFT}" y1="{y}" x2="{end}" y2="{y}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{text}</text>'
    )
