"""The latest rollouts with their text, for the inspector: bounded in number and in bytes, in memory only."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sapo_protocol.identifiers import ContentId
from sapo_protocol.rollout import Rollout
from sapo_protocol.rules import STAGES, Rule

MAX_ROLLOUTS: Final = 1024
MAX_OWN_ROLLOUTS: Final = 256
"""Of these; the rest is for what others share."""

MAX_BYTES: Final = 16 * 2**20
"""Of text, in all rollouts together."""

ADMISSION_STAGES: Final = range(8)
VERIFICATION_STAGES: Final = (9, 10, 11, 13)
"""The likelihood, stage 12, is looked at when a group is drawn into a batch."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """The outcome of one stage for one rollout.

    Attributes:
        passed: none if the stage has not been reached.
        detail: the result in words.
    """

    stage: int
    name: str
    passed: bool | None
    detail: str = ""
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class RolloutUse:
    """One training step that used a rollout."""

    step: int
    use: str  # reinforced, practised or imitated; trained for an own one
    at: str  # UTC, ISO 8601


@dataclass(slots=True)
class SeenRollout:
    """One rollout with its author, text and checks.

    Attributes:
        forwarder: peer that sent it; none for an own one.
        prompt: as re-derived here; none before.
        rewards: as scored here; none before.
        broken: the rule that it broke after admission, and how.
    """

    rollout: Rollout
    own: bool
    at: float
    forwarder: str | None = None
    prompt: str | None = None
    rewards: tuple[float, ...] | None = None
    broken: tuple[Rule, str] | None = None
    displaced: bool = False
    uses: list[RolloutUse] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of its text."""
        return sum(map(len, self.rollout.completions))

    @property
    def has_advantage(self) -> bool:
        """Whether its answers earned different rewards, so that there is something to learn from it."""
        return self.rewards is None or len(set(self.rewards)) > 1

    @property
    def state(self) -> str:
        """Return where it stands, in one word or two."""
        if self.uses:
            return self.uses[-1].use
        if self.broken is not None:
            if self.own and self.broken[0] is Rule.SIGNAL:
                return "no advantage"
            return f"refused: {self.broken[0].reason}"
        return "verified" if self.rewards is not None else "admitted"

    def stages(self) -> tuple[StageResult, ...]:
        """Return the outcome of every stage, in order."""
        return tuple(self._stages())

    def _stages(self) -> Iterator[StageResult]:
        reached = True
        for number, name in enumerate(STAGES):
            if self.broken is not None and number == self.broken[0].stage:
                rule, detail = self.broken
                # a group without advantage is in order: right answers of it may be imitated
                passed = None if rule is Rule.SIGNAL else False
                yield StageResult(number, name, passed, detail or str(rule.reason), rule.number)
                reached = False
            else:
                passed, detail = self._result(number) if reached else (None, "not reached")
                yield StageResult(number, name, passed, detail)

    def _result(self, number: int) -> tuple[bool | None, str]:
        if number in ADMISSION_STAGES:
            return True, "made here" if self.own else ""
        if self.own:
            return (
                (True, _scored(self.rewards)) if number == 10 and self.rewards else (None, "own: not checked")
            )
        if number == 8:
            return True, "the account is not banned and has a free place"
        if number in VERIFICATION_STAGES:
            if self.rewards is None:
                return None, "left out: the audit queue was full" if self.displaced else "not drawn yet"
            return True, _scored(self.rewards) if number == 10 else ""
        if any(use.use in ("reinforced", "practised") for use in self.uses):
            return True, ""
        return None, "checked when it is drawn into a batch"


def _scored(rewards: tuple[float, ...] | None) -> str:
    if not rewards:
        return ""
    right = sum(reward > 0 for reward in rewards)
    return f"{right} of {len(rewards)} right"


class _Latest:
    """The latest rollouts of one side by content id, oldest first."""

    def __init__(self, max_rollouts: int, max_bytes: int) -> None:
        self.kept: OrderedDict[ContentId, SeenRollout] = OrderedDict()
        self._max_rollouts, self._max_bytes = max_rollouts, max_bytes
        self._bytes = 0

    def keep(self, content_id: ContentId, seen: SeenRollout) -> None:
        self.kept[content_id] = seen
        self._bytes += seen.size
        while len(self.kept) > self._max_rollouts or (self._bytes > self._max_bytes and len(self.kept) > 1):
            _, oldest = self.kept.popitem(last=False)
            self._bytes -= oldest.size


class SeenRollouts:
    """The latest rollouts by content id.

    Own and others' rollouts have room apart: a fast node would evict what it receives, and a
    loud swarm whatever the node made.
    """

    def __init__(self) -> None:
        self._own = _Latest(MAX_OWN_ROLLOUTS, MAX_BYTES // 4)
        self._others = _Latest(MAX_ROLLOUTS - MAX_OWN_ROLLOUTS, MAX_BYTES - MAX_BYTES // 4)

    def __len__(self) -> int:
        return len(self._own.kept) + len(self._others.kept)

    def get(self, content_id: ContentId) -> SeenRollout | None:
        """Return a rollout, if it is one of the latest."""
        return self._own.kept.get(content_id) or self._others.kept.get(content_id)

    def newest(self) -> Iterator[tuple[ContentId, SeenRollout]]:
        """Yield the rollouts, newest first."""
        sides = (reversed(side.kept.items()) for side in (self._own, self._others))
        yield from heapq.merge(*sides, key=lambda item: -item[1].at)

    def keep(self, content_id: ContentId, seen: SeenRollout) -> SeenRollout:
        """Return the rollout as known, or keep it as a new one; the oldest of its side make room."""
        if (known := self.get(content_id)) is not None:
            return known
        (self._own if seen.own else self._others).keep(content_id, seen)
        return seen
