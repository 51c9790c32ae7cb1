"""Rounds of a lab run, made up."""

from __future__ import annotations

from dataclasses import replace

from sapo_client.lab.journal import CurvePoint

_POINT = CurvePoint(
    round=1,
    agent=0,
    batch=0.5,
    local=0.5,
    informative=0.5,
    external=0,
    generated_tokens=10,
    trained_tokens=8,
    entropy=1.0,
    seconds=1.0,
    held_out=None,
    greedy=None,
)


def curve_point(**changes: object) -> CurvePoint:
    """Return a round without an evaluation and without groups of others, but for what is changed."""
    return replace(_POINT, **changes)  # type: ignore[arg-type]  # fields of the caller's choice
