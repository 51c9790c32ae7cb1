"""The pool: admitted rollouts that wait to be verified, bounded and fair (stage 8).

SQLite keeps their content ids; the envelope store keeps the messages. After a restart each rollout passes
through admission again.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rules import Rule
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.sampling.newcomers import ENOUGH, NewcomerLots
from sapo_verification.store import Source, StoreSchema, open_database
from sapo_verification.types import AdmittedRollout

_SCHEMA = StoreSchema(
    "pool",
    """
    CREATE TABLE IF NOT EXISTS waiting (content_id BLOB PRIMARY KEY) WITHOUT ROWID;
    """,
)


_STALE: Final = 64
"""Outdated entries that a heap may hold beyond as many current ones; then it is rebuilt."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of the pool.

    Attributes:
        rollouts: in the whole pool; with 4 KiB of answers each, 4,096 are about 22 MiB.
        per_account: of one account in one epoch; a nano node on a busy laptop makes 400 per minute.
        newcomer_share: part of all places that newcomers may have together.
    """

    rollouts: int = 4096
    per_account: int = 1024
    newcomer_share: float = 0.5


class RolloutCounts:
    """The number of waiting rollouts of each account, and the account with most of them.

    All calls take constant time: numbers change by one at a time, so the largest one does, too.
    """

    def __init__(self) -> None:
        self._counts: dict[Account, int] = {}
        self._with: dict[int, OrderedDict[Account, None]] = {}  # in the order of reaching the number
        self._most = 0

    def add(self, account: Account) -> None:
        """Count one rollout more."""
        self._set(account, self._counts.get(account, 0) + 1)

    def remove(self, account: Account) -> None:
        """Count one rollout less.

        Raises:
            KeyError: the account has none.
        """
        self._set(account, self._counts[account] - 1)

    def fullest(self) -> Account:
        """Return the account with most rollouts; of several, the one that has had that number for longest.

        Raises:
            KeyError: no account has any.
        """
        return next(iter(self._with[self._most]))

    def _set(self, account: Account, count: int) -> None:
        if before := self._counts.pop(account, 0):
            del self._with[before][account]
            if not self._with[before]:
                del self._with[before]
        if count:
            self._counts[account] = count
            self._with.setdefault(count, OrderedDict())[account] = None
        if count > self._most or self._most not in self._with:
            self._most = count


class NewcomerPlaces:
    """The number of newcomers' places in the pool, and the newcomer that loses a place next.

    That is the one with most places beyond ``ENOUGH``, or else the one with the largest lot. They are kept in
    a heap with lazy deletion: a change takes logarithmic time, a new set of lots a pass over all newcomers.

    Attributes:
        total: number of places of all newcomers.
    """

    def __init__(self, lots: NewcomerLots) -> None:
        self._lots = lots
        self._places: dict[Account, int] = {}
        self._heap: list[tuple[int, float, Account]] = []
        self._revision: tuple[int, int] | None = None  # None before the first query
        self.total = 0

    def of(self, account: Account) -> int:
        """Return an account's number of places, 0 unless it is a newcomer."""
        return self._places.get(account, 0)

    def change(self, account: Account, by: int, epoch: int) -> None:
        """Change a newcomer's number of places, to 0 or more."""
        before, after = self.of(account), self.of(account) + by
        self.total += by
        self._places[account] = after
        if not after:
            del self._places[account]
        elif self._revision is not None and (not before or max(before, after) > ENOUGH):
            heappush(self._heap, self._entry(account, epoch))
            if len(self._heap) > 2 * len(self._places) + _STALE:
                self._heap, self._revision = [], None

    def forget(self, account: Account) -> None:
        """Remove an account, which is no longer a newcomer."""
        self.total -= self._places.pop(account, 0)

    def last(self, epoch: int) -> Account | None:
        """Return the newcomer that loses a place next; None if no newcomer has a place."""
        if self._revision != (revision := self._lots.revision(epoch)):
            self._revision, self._heap = revision, [self._entry(account, epoch) for account in self._places]
            heapify(self._heap)
        while self._heap:
            count, _, account = self._heap[0]
            if account in self._places and -count == max(ENOUGH, self._places[account]):
                return account
            heappop(self._heap)
        return None

    def _entry(self, account: Account, epoch: int) -> tuple[int, float, Account]:
        """Return an account's heap entry; the smallest entry loses a place first."""
        return -max(ENOUGH, self._places[account]), -self._lots.lot(account, epoch), account


class Pool:
    """Admitted rollouts of other accounts that no batch has used, by account.

    Newcomers may have a share of the places. When it is full, lots decide which newcomers' rollouts stay.
    When the whole pool is full, the account with most rollouts loses its oldest one, so a flood displaces
    only itself.
    """

    def __init__(self, path: Source, limits: PoolLimits, reputation: Reputation, lots: NewcomerLots) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._limits = limits
        self._reputation = reputation
        self._lots = lots
        self._epoch = 0
        self._waiting: OrderedDict[ContentId, AdmittedRollout] = OrderedDict()
        self._of: dict[Account, OrderedDict[ContentId, AdmittedRollout]] = {}
        self._counts = RolloutCounts()
        self._newcomers = NewcomerPlaces(lots)
        reputation.when_known(self._newcomers.forget)
        self._per_account: Counter[tuple[Account, int]] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def restore(
        self, message_of: Callable[[ContentId], bytes | None], admit: Callable[[bytes], AdmittedRollout]
    ) -> int:
        """Admit the stored rollouts again, delete those that are refused; return how many are in the pool."""
        for (stored,) in self._connection.execute("SELECT content_id FROM waiting").fetchall():
            content_id = ContentId(stored)
            with suppress(RemoteProtocolError):  # also a message that is no longer stored
                self.offer(admit(message_of(content_id) or b""))
            if content_id not in self._waiting:
                self._delete([content_id])
        return len(self)

    def offer(self, admitted: AdmittedRollout) -> None:
        """Add a rollout.

        Raises:
            RemoteProtocolError: ``BANNED``, ``ACCOUNT_QUOTA`` or ``NEWCOMER_CAP``.
        """
        account, epoch = admitted.rollout.account, admitted.rollout.epoch
        if self._reputation.is_banned(account, epoch):
            raise RemoteProtocolError(Rule.NOT_BANNED, f"account {account} is silenced")
        if self._per_account[account, epoch] >= self._limits.per_account:
            raise RemoteProtocolError(Rule.ACCOUNT_QUOTA, f"account {account} filled its quota")
        self._epoch = max(self._epoch, epoch)
        self._make_newcomer_room(account)
        self._enter(admitted)
        self._per_account[account, epoch] += 1
        self._connection.execute("INSERT OR IGNORE INTO waiting VALUES (?)", (admitted.content_id,))
        if len(self._waiting) > self._limits.rollouts:
            self.take(next(self.waiting(self._counts.fullest())).content_id)

    def accounts(self) -> frozenset[Account]:
        """Return the accounts with rollouts waiting."""
        return frozenset(self._of)

    def waiting(self, account: Account | None = None) -> Iterator[AdmittedRollout]:
        """Yield the rollouts that wait, oldest first, of one account or of all."""
        found = self._waiting if account is None else self._of.get(account)
        return iter(() if found is None else found.values())

    def take(self, content_id: ContentId) -> bool:
        """Remove a rollout; return whether it was waiting."""
        if content_id not in self._waiting:
            return False
        self._leave(content_id)
        self._delete([content_id])
        return True

    def expire(self, before_epoch: int) -> int:
        """Drop the rollouts of epochs before the given one; return their number."""
        old = [c for c, admitted in self._waiting.items() if admitted.rollout.epoch < before_epoch]
        for content_id in old:
            self._leave(content_id)
        self._delete(old)
        for key in [key for key in self._per_account if key[1] < before_epoch]:
            del self._per_account[key]
        return len(old)

    def _make_newcomer_room(self, account: Account) -> None:
        """Free a place for a newcomer, if necessary one of its own or of a newcomer with a larger lot.

        Raises:
            RemoteProtocolError: ``NEWCOMER_CAP``.
        """
        room = self._limits.newcomer_share * self._limits.rollouts
        if not self._reputation.is_newcomer(account) or self._newcomers.total < room:
            return
        has_enough = self._newcomers.of(account) >= ENOUGH
        yields = account if has_enough else self._newcomers.last(self._epoch)
        if yields is None or not (has_enough or self._is_before(account, yields)):
            raise RemoteProtocolError(
                Rule.NEWCOMER_CAP, "the newcomers' share of the pool is full of accounts with smaller lots"
            )
        self.take(next(self.waiting(yields)).content_id)

    def _is_before(self, account: Account, other: Account) -> bool:
        if self._newcomers.of(other) > ENOUGH:
            return True
        return self._lots.lot(account, self._epoch) < self._lots.lot(other, self._epoch)

    def _enter(self, admitted: AdmittedRollout) -> None:
        """Add a rollout; one that is in the pool already keeps its position."""
        account = admitted.rollout.account
        if admitted.content_id not in self._waiting:
            self._counts.add(account)
            if self._reputation.is_newcomer(account):
                self._newcomers.change(account, 1, self._epoch)
        self._waiting[admitted.content_id] = admitted
        self._of.setdefault(account, OrderedDict())[admitted.content_id] = admitted

    def _leave(self, content_id: ContentId) -> None:
        account = self._waiting.pop(content_id).account
        del self._of[account][content_id]
        if not self._of[account]:
            del self._of[account]
        self._counts.remove(account)
        if self._newcomers.of(account):
            self._newcomers.change(account, -1, self._epoch)

    def _delete(self, content_ids: Iterable[bytes]) -> None:
        self._connection.executemany(
            "DELETE FROM waiting WHERE content_id = ?", [(bytes(content_id),) for content_id in content_ids]
        )
