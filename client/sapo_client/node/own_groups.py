"""Outcomes of a node's last own groups, collected from its events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sapo_client.observe.own_groups import GROUPS, MIN_SKIPPED, SKIP_REASONS, OwnGroupFacts

_TASKS = 512
"""Last tasks that are remembered, to report families of which none was answered."""


@dataclass(frozen=True, slots=True)
class _Round:
    shared: int
    withheld: Counter[str]
    with_advantage: int
    reward: float

    @property
    def groups(self) -> int:
        return self.shared + self.withheld.total()


class OwnGroups:
    """The rounds with the last own groups, as many as an assessment needs."""

    def __init__(self) -> None:
        self._rounds: deque[_Round] = deque()
        self._withheld: Counter[str] = Counter()
        self._tasks: deque[tuple[str, str]] = deque(maxlen=_TASKS)  # family, reason of a skip

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node."""
        match event, fields:
            case "own_rollout_refused", {"reason": reason}:
                self._withheld[str(reason)] += 1
            case "slot_skipped", {"family": str(family), "reason": reason} if reason in SKIP_REASONS:
                self._tasks.append((family, str(reason)))
            case "step", {
                "local": Sequence() as local,
                "with_advantage": int(count),
                "reward": float(reward),
                "families": Mapping() as answered,
            }:
                self._tasks.extend((family, "") for family in answered)
                self._add(_Round(len(local), self._withheld, count, reward))
                self._withheld = Counter()

    def _add(self, ended: _Round) -> None:
        if not ended.groups:  # such as a private round
            return
        self._rounds.append(ended)
        while sum(each.groups for each in self._rounds) - self._rounds[0].groups >= GROUPS:
            self._rounds.popleft()

    def facts(self) -> OwnGroupFacts:
        """Return their outcomes."""
        shared = sum(each.shared for each in self._rounds)
        return OwnGroupFacts(
            shared=shared,
            withheld=sum((each.withheld for each in self._rounds), Counter()),
            with_advantage=sum(each.with_advantage for each in self._rounds),
            reward=sum(each.shared * each.reward for each in self._rounds) / shared if shared else 0.0,
            skipped=self._skipped(),
        )

    def _skipped(self) -> dict[str, list[str]]:
        """Return the families of which no task was answered, by the reason of the last skip."""
        last, counts = dict(self._tasks), Counter(family for family, _ in self._tasks)
        answered = {family for family, reason in self._tasks if not reason}
        found: dict[str, list[str]] = {}
        for family in sorted(counts.keys() - answered):
            if counts[family] >= MIN_SKIPPED:
                found.setdefault(last[family], []).append(family)
        return found
