"""The view of a node's curves: a window of its history as the page draws it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypedDict

from sapo_client.dashboard.history import CurveValue, FigureHistory
from sapo_client.observe.web import WebRequest

HOUR_SECONDS = 3600.0


class CurvesDocument(TypedDict):
    """Figures over a window of time.

    Attributes:
        since: start of the window, in seconds since 1970; its end is ``now``.
        seconds: length of the interval that a point stands for.
        figures: points by name; see ``FigureCurve.points``.
    """

    since: float
    now: float
    seconds: int
    figures: dict[str, tuple[CurveValue, ...]]


def curves_document(
    history: FigureHistory, request: WebRequest, *, only: Iterable[str] | None = None
) -> CurvesDocument:
    """Return the last hours of a history; of hours = 0, all of it; of ``after``, only points from there.

    Args:
        only: names of figures; unset: all of them.
    """
    now = time.time()
    hours = request.number("hours", 2, maximum=20_000)
    span = history.span()
    since = now - hours * HOUR_SECONDS if hours else float(span[0] if span else now)
    after = request.number("after", 0, maximum=10**11)
    names = history.figures() if only is None else only
    curves = history.curves(names, since=since, now=now, after=after)
    return {
        "since": since,
        "now": now,
        "seconds": next((curve.seconds for curve in curves.values()), 10),
        "figures": {name: curve.points for name, curve in curves.items() if curve.points},
    }
