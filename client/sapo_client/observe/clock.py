"""Health findings about the wall clock: jumps not accepted yet, and signatures of a clock far ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding

_LAST_SECOND: Final = int(datetime(9999, 12, 31, 23, 59, tzinfo=UTC).timestamp())
"""The latest Unix time that ``datetime`` can format; a clock may have been ahead by more."""


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """A change of the wall clock that the node has not accepted yet.

    Attributes:
        jump_seconds: how far the clock was set forward; negative: back.
        believed_in_seconds: seconds until it is accepted, if it does not change again.
    """

    jump_seconds: float
    believed_in_seconds: float


@dataclass(frozen=True, slots=True)
class SignedAheadFacts:
    """An epoch that is still to come, in which this data directory has signed.

    Attributes:
        begins_seconds: its start, Unix seconds.
    """

    epoch: int
    begins_seconds: int


def assess_clock(clock: ClockFacts) -> Iterator[HealthFinding]:
    """Yield a finding about a jump of the clock."""
    side = "ahead" if clock.jump_seconds > 0 else "back"
    text = (
        f"this machine's clock jumped {side} by {abs(clock.jump_seconds):.0f} s, so this node trains alone"
        " and signs nothing until the clock is sure"
    )
    hint = (
        "set the clock, for example with NTP; if it is right now, do nothing: it is accepted after a new"
        f" block of the chain with the same time, or in {max(0.0, clock.believed_in_seconds):.0f} s"
    )
    yield HealthFinding(FindingCode.CLOCK_JUMPED, FindingLevel.ERROR, text, hint)


def assess_signed_ahead(ahead: SignedAheadFacts) -> Iterator[HealthFinding]:
    """Yield that the node may sign nothing before that epoch."""
    begins = datetime.fromtimestamp(min(ahead.begins_seconds, _LAST_SECOND), UTC)
    text = (
        f"this data directory signed in epoch {ahead.epoch}, which begins on {begins:%Y-%m-%d %H:%M} UTC, so"
        " until then this node trains alone, and nothing of it is shared or paid"
    )
    hint = (
        "if this machine's clock is behind, set it; else wait, or share sooner as another account: `sapo keys"
        " new NAME`, then join with --identity NAME and a new --data-dir; a new node key or data directory of"
        " the same account would sign slots twice, which costs the account its reputation"
    )
    yield HealthFinding(FindingCode.SIGNED_AHEAD, FindingLevel.ERROR, text, hint)
