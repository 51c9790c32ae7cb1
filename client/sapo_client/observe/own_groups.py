"""Findings about a node's own groups: whether they can be shared, and whether they teach and are paid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_protocol.rules import Reason

LEAST_GROUPS: Final = 32
"""Own groups by which it is told how many are not shared."""

MOST_WITHHELD: Final = 0.5
"""Share of them that is reported if it is not shared."""

GROUPS: Final = 128
"""Last own groups that are looked at: if one in forty has an advantage, one of these has (96 %)."""


@dataclass(frozen=True, slots=True)
class OwnGroupFacts:
    """What became of a node's last own groups.

    Attributes:
        shared: how many were published.
        withheld: how many were not, by reason.
        with_advantage: those shared of which some answers were right and others wrong.
        reward: mean reward of those shared.
    """

    shared: int = 0
    withheld: Mapping[str, int] = field(default_factory=dict)
    with_advantage: int = 0
    reward: float = 0.0


def assess_own_groups(own: OwnGroupFacts) -> Iterator[HealthFinding]:
    """Yield findings about groups that are not shared, and about groups of which nothing can be learned."""
    withheld = sum(own.withheld.values())
    groups = own.shared + withheld
    if groups >= LEAST_GROUPS and withheld > MOST_WITHHELD * groups:
        level = FindingLevel.WARNING if own.shared else FindingLevel.ERROR
        reason = max(own.withheld, key=lambda each: own.withheld[each])
        text = f"{withheld} of this node's last {groups} groups were not shared, most often for {reason}"
        hint = _WITHHELD_HINTS.get(reason, "the events own_rollout_refused in events.jsonl say why")
        yield HealthFinding(FindingCode.OWN_WITHHELD, level, text, hint)
    if own.shared >= GROUPS and not own.with_advantage:
        text = (
            f"none of this node's last {own.shared} groups had right and wrong answers (mean reward"
            f" {own.reward:.2f}): they teach nothing and earn no points"
        )
        yield HealthFinding(FindingCode.NO_ADVANTAGE, FindingLevel.WARNING, text, _NO_ADVANTAGE_HINT)


_WITHHELD_HINTS: Final = {
    str(Reason.TEXT_POLICY): "other nodes refuse characters that cannot be seen: lower"
    " learner.temperature, or take another model with --model",
    str(Reason.EPOCH_PAST): "a group must be answered before its epoch ends: lower"
    " learner.max_new_tokens or learner.local_groups, or take a smaller model with --model",
}

_NO_ADVANTAGE_HINT: Final = (
    "if most answers are wrong take a model that solves some of these tasks, if most are right join a swarm"
    " of harder ones; `sapo doctor` says how many of the first groups had both"
)
