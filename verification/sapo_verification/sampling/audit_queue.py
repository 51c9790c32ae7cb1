"""Queue of rollouts that wait for an audit, fair in checker time between accounts.

Start-time fair queueing (Goyal, Vin and Cheng, 1996) on two levels. Known accounts (with weight) get nine
tenths of the time while any rollout of theirs waits, newcomers the rest, because new accounts cost nothing.
Within each class every account gets the same *time*, not the same number of rollouts, so an account whose
answers run into the deadline waits until the others have had as much time. When the bounded queue is full,
the account with most rollouts in it loses one, so a flood displaces only itself.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sapo_protocol.identifiers import Account
from sapo_verification.sampling.pool import RolloutCounts
from sapo_verification.types import AdmittedRollout

PARTS: Final = {True: 9.0, False: 1.0}
"""Parts of the time for known accounts and for newcomers, as ``newcomer_cap`` divides a batch."""

MAX_WAITING: Final = 4096
"""Rollouts in the queue; most of them are in the pool as well."""

MAX_CHARGED: Final = 8192
"""Accounts with a charge, as many as have certificates; beyond it all charges are reset."""

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Turn:
    """A rollout that is to be audited, and whether its account was known when it was queued."""

    admitted: AdmittedRollout
    known: bool


class AuditQueue:
    """Rollouts that wait for an audit, those of one account in their order of arrival."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._queues: dict[bool, dict[Account, deque[AdmittedRollout]]] = {True: {}, False: {}}
        self._counts = {known: RolloutCounts() for known in self._queues}
        self._between = _VirtualTime[bool]()
        self._within = {known: _VirtualTime[Account]() for known in self._queues}
        self._waiting = 0
        self._unaudited: Counter[int] = Counter()

    def __len__(self) -> int:
        return self._waiting

    def put(self, admitted: AdmittedRollout, *, known: bool) -> AdmittedRollout | None:
        """Add a rollout; return the one that a full queue dropped for it, possibly this one."""
        self._queues[known].setdefault(admitted.account, deque()).append(admitted)
        self._counts[known].add(admitted.account)
        self._waiting += 1
        self._unaudited[admitted.rollout.epoch] += 1
        return self._displace() if self._waiting > self._max_waiting else None

    def unaudited(self, epoch: int) -> int:
        """Return how many rollouts of an epoch wait, or were taken and are not yet charged."""
        return self._unaudited[epoch]

    def take(self) -> Turn:
        """Remove and return the next rollout of a queue that is not empty; charge it before taking
        another."""
        known = self._between.least(known for known, queues in self._queues.items() if queues)
        account = self._within[known].least(self._queues[known])
        return Turn(self._remove(known, account, newest=False), known)

    def charge(self, turn: Turn, seconds: float) -> None:
        """Charge an audit's time to its account and to the class of its account."""
        self._leave(turn.admitted)
        self._within[turn.known].charge(turn.admitted.account, seconds)
        self._between.charge(turn.known, seconds / PARTS[turn.known])

    def _displace(self) -> AdmittedRollout:
        """Drop the newest rollout of the account with most waiting, of a newcomer while there is one."""
        known = not self._queues[False]
        displaced = self._remove(known, self._counts[known].fullest(), newest=True)
        self._leave(displaced)
        return displaced

    def _leave(self, admitted: AdmittedRollout) -> None:
        self._unaudited[admitted.rollout.epoch] -= 1
        if not self._unaudited[admitted.rollout.epoch]:
            del self._unaudited[admitted.rollout.epoch]

    def _remove(self, known: bool, account: Account, *, newest: bool) -> AdmittedRollout:
        """Remove and return the newest or oldest rollout of an account."""
        queues = self._queues[known]
        queue = queues[account]
        admitted = queue.pop() if newest else queue.popleft()
        if not queue:
            del queues[account]
        self._counts[known].remove(account)
        self._waiting -= 1
        return admitted


class _VirtualTime(Generic[_Key]):
    """Virtual time of start-time fair queueing: for each key, the time at which its next turn may start.

    A key that was idle starts at the present virtual time, so it gains nothing by waiting.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._due: dict[_Key, float] = {}

    def least(self, waiting: Iterable[_Key]) -> _Key:
        """Return the waiting key with the earliest start, and advance the clock to it."""
        key = min(waiting, key=self._start)
        self._now = self._start(key)
        return key

    def charge(self, key: _Key, cost: float) -> None:
        """Delay a key's next start by the cost of its last turn."""
        if len(self._due) >= MAX_CHARGED:
            self._due.clear()
        self._due[key] = self._start(key) + cost

    def _start(self, key: _Key) -> float:
        return max(self._now, self._due.get(key, 0.0))
