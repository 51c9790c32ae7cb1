"""Health finding: training steps are undone, so the policy does not learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding

STEPS: Final = 16
"""Number of latest steps that are assessed; with fewer nothing is reported."""

MAX_UNDONE: Final = 0.25
"""Share of undone steps above which a warning is given; one in a while is normal with float16."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A node's last training steps.

    Attributes:
        undone: those of them whose update was undone, because a loss or gradient was not finite.
    """

    steps: int = 0
    undone: int = 0


def assess_steps(facts: StepFacts) -> Iterator[HealthFinding]:
    """Yield a finding if too many steps are undone; an error if all are."""
    if facts.steps < STEPS or facts.undone <= MAX_UNDONE * facts.steps:
        return
    is_all = facts.undone == facts.steps
    level = FindingLevel.ERROR if is_all else FindingLevel.WARNING
    result = "so the policy does not learn" if is_all else "so the policy learns less"
    text = (
        f"{facts.undone} of the last {facts.steps} training steps were undone, because a loss or gradient was"
        f" not finite, {result}"
    )
    hint = (
        "lower learner.learning_rate, or set learner.bfloat16 = false; if the weights themselves are damaged,"
        " stop the node and start it with --fresh"
    )
    yield HealthFinding(FindingCode.STEPS_UNDONE, level, text, hint)
