"""Whose rollout is audited next: the account that has cost the checkers least.

Start-time fair queueing (Goyal, Vin and Cheng, 1996), twice over. Known accounts, those that carry weight,
have nine tenths of the time as long as any rollout of theirs waits, strangers the rest: strangers cost
nothing to make. Within each of the two every account has the same *time*, not the same number of rollouts,
so one whose answers run into the deadline waits until the others had as much. What waits is bounded, and
whoever has most of it waiting makes room: a flood of one account displaces nobody else.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sapo_protocol.identifiers import Account
from sapo_verification.types import AdmittedRollout

PARTS: Final = {True: 9.0, False: 1.0}
"""Of the time, for known accounts and for strangers: as much as ``newcomer_cap`` leaves them of a batch."""

MOST_WAITING: Final = 4096
"""Rollouts, mostly the ones that the pool holds too."""

MOST_BILLS: Final = 8192
"""As many accounts as have certificates; beyond it all bills are forgotten: accounts cost nothing."""

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Turn:
    """A rollout that is to be audited, and whether its account was known when it came."""

    admitted: AdmittedRollout
    known: bool


class AuditQueue:
    """Rollouts that wait for an audit, an account's own in the order in which they came."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._lanes: dict[bool, dict[Account, deque[AdmittedRollout]]] = {True: {}, False: {}}
        self._between = _Bills[bool]()
        self._within = {known: _Bills[Account]() for known in self._lanes}
        self._waiting = 0
        self._unaudited: Counter[int] = Counter()

    def __len__(self) -> int:
        return self._waiting

    def put(self, admitted: AdmittedRollout, *, known: bool) -> AdmittedRollout | None:
        """Return the rollout that made room for this one, if any had to; it may be this one."""
        self._lanes[known].setdefault(admitted.account, deque()).append(admitted)
        self._waiting += 1
        self._unaudited[admitted.rollout.epoch] += 1
        return self._displace() if self._waiting > self._most_waiting else None

    def unaudited(self, epoch: int) -> int:
        """Return how many rollouts of an epoch wait, or were taken and not yet charged."""
        return self._unaudited[epoch]

    def take(self) -> Turn:
        """Return the next rollout; there must be one. Charge it before the next one is taken."""
        known = self._between.least(known for known, lanes in self._lanes.items() if lanes)
        account = self._within[known].least(self._lanes[known])
        return Turn(self._remove(known, account, newest=False), known)

    def charge(self, turn: Turn, seconds: float) -> None:
        """Bills an audit's time to its account and to the accounts of its kind."""
        self._leave(turn.admitted)
        self._within[turn.known].charge(turn.admitted.account, seconds)
        self._between.charge(turn.known, seconds / PARTS[turn.known])

    def _displace(self) -> AdmittedRollout:
        """Return the newest rollout of whoever has most waiting, of strangers as long as there are any."""
        known = not self._lanes[False]
        lanes = self._lanes[known]
        displaced = self._remove(known, max(lanes, key=lambda account: len(lanes[account])), newest=True)
        self._leave(displaced)
        return displaced

    def _leave(self, admitted: AdmittedRollout) -> None:
        self._unaudited[admitted.rollout.epoch] -= 1
        if not self._unaudited[admitted.rollout.epoch]:
            del self._unaudited[admitted.rollout.epoch]

    def _remove(self, known: bool, account: Account, *, newest: bool) -> AdmittedRollout:
        """Return one rollout of an account, whose lane goes with its last one."""
        lanes = self._lanes[known]
        lane = lanes[account]
        admitted = lane.pop() if newest else lane.popleft()
        if not lane:
            del lanes[account]
        self._waiting -= 1
        return admitted


class _Bills(Generic[_Key]):
    """What each key was charged, as the time on a common clock at which its next turn is due.

    Whoever was idle starts at the present, so silence saves nothing up.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._due: dict[_Key, float] = {}

    def least(self, waiting: Iterable[_Key]) -> _Key:
        """Whose turn it is."""
        key = min(waiting, key=self._start)
        self._now = self._start(key)
        return key

    def charge(self, key: _Key, cost: float) -> None:
        """Puts a key's next turn off by what its last one cost."""
        if len(self._due) >= MOST_BILLS:
            self._due.clear()
        self._due[key] = self._start(key) + cost

    def _start(self, key: _Key) -> float:
        return max(self._now, self._due.get(key, 0.0))
