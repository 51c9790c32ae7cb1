"""Finding about checks of answers that a machine too slow for them leaves undecided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding

CHECKS: Final = 64
"""Last checks that are looked at; fewer than half of these say nothing."""

MOST_UNDECIDED: Final = 0.25
"""Share of them that is reported; a pause of the whole machine leaves a few undecided."""


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """What became of a node's last checks of groups of answers.

    Attributes:
        undecided: those of them for which this node had no time.
    """

    checks: int = 0
    undecided: int = 0


def assess_checks(facts: CheckFacts) -> Iterator[HealthFinding]:
    """Yield that too many are left undecided."""
    if 2 * facts.checks >= CHECKS and facts.undecided > MOST_UNDECIDED * facts.checks:
        text = (
            f"this machine had no time for {facts.undecided} of the last {facts.checks} checks of answers, so"
            " these decided nothing"
        )
        hint = (
            "stop other programs, or leave a core to the checks (learner.leave_cores); or check less: lower"
            " learner.external_groups and verification.audit_share"
        )
        yield HealthFinding(FindingCode.NODE_BUSY, FindingLevel.WARNING, text, hint)
