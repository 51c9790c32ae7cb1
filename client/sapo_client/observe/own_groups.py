"""Health findings about a node's own groups: whether they are shared, have an advantage and are paid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_protocol.rules import Reason

MIN_GROUPS: Final = 32
"""Minimum number of own groups for a finding about those not shared."""

MAX_WITHHELD: Final = 0.5
"""Share of groups not shared above which it is reported."""

GROUPS: Final = 128
"""Number of latest own groups assessed: if one in forty has an advantage, one of these has (96 %)."""

MIN_SKIPPED: Final = 8
"""Skipped tasks of a family in a row that are reported; if half can be answered, 1 in 256 by chance."""


@dataclass(frozen=True, slots=True)
class OwnGroupFacts:
    """Outcomes of a node's latest own groups.

    Attributes:
        shared: number of groups published.
        withheld: number of groups not published, by reason.
        with_advantage: number of groups published with both right and wrong answers.
        reward: mean reward of the groups published, 0..1.
        skipped: families of which no task was answered, by the reason why the last one was not.
    """

    shared: int = 0
    withheld: Mapping[str, int] = field(default_factory=dict)
    with_advantage: int = 0
    reward: float = 0.0
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)


def assess_own_groups(own: OwnGroupFacts) -> Iterator[HealthFinding]:
    """Yield findings about tasks that are not answered, and groups that are not shared or teach nothing."""
    if own.skipped:
        yield _families_skipped(own)
    withheld = sum(own.withheld.values())
    groups = own.shared + withheld
    if groups >= MIN_GROUPS and withheld > MAX_WITHHELD * groups:
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


def _families_skipped(own: OwnGroupFacts) -> HealthFinding:
    sentences = [
        f"no task of {', '.join(families)} was answered: {_SKIPPED[reason][0]}"
        for reason, families in sorted(own.skipped.items())
    ]
    hints = [_SKIPPED[reason][1] for reason in sorted(own.skipped)]
    level = FindingLevel.WARNING if own.shared or own.withheld else FindingLevel.ERROR
    return HealthFinding(FindingCode.FAMILIES_SKIPPED, level, "; ".join(sentences), "; ".join(hints))


_SKIPPED: Final = {
    "template": (
        "the model's chat template raises for them",
        "correct chat_template.jinja in the model's folder; the events slot_skipped in events.jsonl say why",
    ),
    "window": (
        "prompt and answer exceed the model's context window",
        "lower learner.max_new_tokens, or take a model with a longer window with --model",
    ),
}
"""Text and hint of the finding about skipped tasks, by the reason of the event ``slot_skipped``."""

SKIP_REASONS: Final = frozenset(_SKIPPED)

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
