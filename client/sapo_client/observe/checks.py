"""Health finding: the machine is too slow, so too many checks of answers end without a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding

CHECKS: Final = 64
"""Number of latest checks that are assessed; with fewer than half as many nothing is reported."""

MAX_UNDECIDED: Final = 0.25
"""Share of undecided checks above which a warning is given; a pause of the whole machine leaves a few."""


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """Outcomes of a node's last checks of groups of answers.

    Attributes:
        undecided: those of them for which this node had no time.
    """

    checks: int = 0
    undecided: int = 0


def assess_checks(facts: CheckFacts) -> Iterator[HealthFinding]:
    """Yield a warning if too many checks are left undecided."""
    if 2 * facts.checks >= CHECKS and facts.undecided > MAX_UNDECIDED * facts.checks:
        text = (
            f"this machine had no time for {facts.undecided} of the last {facts.checks} checks of answers, so"
            " these decided nothing"
        )
        hint = (
            "stop other programs, or leave a core to the checks (learner.leave_cores); or check less: lower"
            " learner.external_groups and verification.audit_share"
        )
        yield HealthFinding(FindingCode.NODE_BUSY, FindingLevel.WARNING, text, hint)
