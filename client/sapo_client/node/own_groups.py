"""What became of a node's last own groups, told from its events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sapo_client.observe.own_groups import GROUPS, OwnGroupFacts


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
    """Memory of the rounds with the last own groups, as many as an assessment looks at."""

    def __init__(self) -> None:
        self._rounds: deque[_Round] = deque()
        self._withheld: Counter[str] = Counter()

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Take an event of the node."""
        match event, fields:
            case "own_rollout_refused", {"reason": reason}:
                self._withheld[str(reason)] += 1
            case "step", {
                "local": Sequence() as local,
                "with_advantage": int(count),
                "reward": float(reward),
            }:
                self._add(_Round(len(local), self._withheld, count, reward))
                self._withheld = Counter()

    def _add(self, ended: _Round) -> None:
        if not ended.groups:  # a round without the chain, say
            return
        self._rounds.append(ended)
        while sum(each.groups for each in self._rounds) - self._rounds[0].groups >= GROUPS:
            self._rounds.popleft()

    def facts(self) -> OwnGroupFacts:
        """Return what became of them."""
        shared = sum(each.shared for each in self._rounds)
        return OwnGroupFacts(
            shared=shared,
            withheld=sum((each.withheld for each in self._rounds), Counter()),
            with_advantage=sum(each.with_advantage for each in self._rounds),
            reward=sum(each.shared * each.reward for each in self._rounds) / shared if shared else 0.0,
        )
