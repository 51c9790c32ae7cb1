"""What a node's health says of a clock that was set while the node runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """A change of the wall clock that is not believed yet.

    Attributes:
        jump_seconds: by how much it was set; negative: back.
        believed_in_seconds: when it is believed if it stays as it is.
    """

    jump_seconds: float
    believed_in_seconds: float


def assess_clock(clock: ClockFacts) -> Iterator[HealthFinding]:
    """Yield what is wrong with it."""
    side = "ahead" if clock.jump_seconds > 0 else "back"
    text = (
        f"this machine's clock jumped {side} by {abs(clock.jump_seconds):.0f} s, so this node trains alone"
        " and signs nothing until the clock is sure"
    )
    hint = (
        "set the clock, for example with NTP; if it is right now, do nothing: it is believed after a new"
        f" block of the chain with the same time, or in {max(0.0, clock.believed_in_seconds):.0f} s"
    )
    yield HealthFinding(FindingCode.CLOCK_JUMPED, FindingLevel.ERROR, text, hint)
