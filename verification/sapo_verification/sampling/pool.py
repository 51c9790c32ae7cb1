"""The pool: admitted rollouts that wait to be verified, bounded and fair (stage 8).

SQLite keeps their content ids; the messages are kept once, by the envelope store. After a restart each one
goes through admission again: trust is not stored, it is re-established.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of the pool.

    Attributes:
        rollouts: in all; with 4 KiB of answers each, 4,096 are about 22 MiB.
        per_account: of one account in one epoch; a nano node on a busy laptop makes 400 a minute.
        newcomer_share: of all places, for all newcomers together.
    """

    rollouts: int = 4096
    per_account: int = 1024
    newcomer_share: float = 0.5


class RolloutCounts:
    """How many rollouts of each account wait, and which account has most of them.

    A number changes by one at a time, and so does the largest one: no search is needed, and a call takes the
    same time among few accounts and among thousands.
    """

    def __init__(self) -> None:
        self._counts: dict[Account, int] = {}
        self._with: dict[int, OrderedDict[Account, None]] = {}  # by number, who came to it first in front
        self._most = 0

    def accounts(self) -> frozenset[Account]:
        """Return the accounts with rollouts."""
        return frozenset(self._counts)

    def of(self, account: Account) -> int:
        """Return how many rollouts an account has."""
        return self._counts.get(account, 0)

    def add(self, account: Account) -> None:
        """Count one rollout more."""
        self._set(account, self.of(account) + 1)

    def remove(self, account: Account) -> None:
        """Count one rollout less of an account that has one."""
        self._set(account, self.of(account) - 1)

    def fullest(self) -> Account:
        """Return the account with most rollouts, of several the one that has had so many for longest.

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


class Pool:
    """Admitted rollouts of other accounts that no batch has used, by account.

    Newcomers have a share of the places. Once they have filled it, lots decide whose rollouts wait. When all
    places are taken, the account with most rollouts loses its oldest one, so a flood displaces only itself.
    """

    def __init__(self, path: Source, limits: PoolLimits, reputation: Reputation, lots: NewcomerLots) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._limits = limits
        self._reputation = reputation
        self._lots = lots
        self._epoch = 0
        self._waiting: OrderedDict[ContentId, AdmittedRollout] = OrderedDict()
        self._counts = RolloutCounts()
        self._per_account: Counter[tuple[Account, int]] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def restore(
        self, message_of: Callable[[ContentId], bytes | None], admit: Callable[[bytes], AdmittedRollout]
    ) -> int:
        """Admit the stored rollouts again; return how many wait. Those that admission refuses are deleted."""
        for (stored,) in self._connection.execute("SELECT content_id FROM waiting").fetchall():
            content_id = ContentId(stored)
            with suppress(RemoteProtocolError):  # a message that is no longer stored is refused as well
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
        if admitted.content_id not in self._waiting:
            self._counts.add(account)
        self._waiting[admitted.content_id] = admitted
        self._per_account[account, epoch] += 1
        self._connection.execute("INSERT OR IGNORE INTO waiting VALUES (?)", (admitted.content_id,))
        if len(self._waiting) > self._limits.rollouts:
            self.take(next(self.waiting(self._counts.fullest())).content_id)

    def accounts(self) -> frozenset[Account]:
        """Return the accounts with rollouts waiting."""
        return self._counts.accounts()

    def waiting(self, account: Account | None = None) -> Iterator[AdmittedRollout]:
        """Yield the rollouts that wait, oldest first, of one account or of all."""
        return (a for a in self._waiting.values() if account is None or a.account == account)

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
        """Give a newcomer a place: a free one, one of its own, or that of a newcomer with a worse lot.

        Raises:
            RemoteProtocolError: ``NEWCOMER_CAP``.
        """
        room = self._limits.newcomer_share * self._limits.rollouts
        if len(self._waiting) < room or not self._reputation.is_newcomer(account):
            return  # newcomers cannot have filled their share
        places = {
            other: self._counts.of(other)
            for other in self._counts.accounts()
            if self._reputation.is_newcomer(other)
        }
        if sum(places.values()) < room:
            return
        has_enough = places.get(account, 0) >= ENOUGH
        yields = account if has_enough else self._last(places)
        if yields is None or not (has_enough or self._is_before(account, yields)):
            raise RemoteProtocolError(
                Rule.NEWCOMER_CAP, "newcomers with better lots filled their share of the pool"
            )
        self.take(next(self.waiting(yields)).content_id)

    def _last(self, places: Mapping[Account, int]) -> Account | None:
        """Return the newcomer that yields: with most places beyond enough, otherwise with the worst lot."""
        return max(
            places,
            key=lambda account: (max(ENOUGH, places[account]), self._lots.lot(account, self._epoch)),
            default=None,
        )

    def _is_before(self, account: Account, other: Account) -> bool:
        if self._counts.of(other) > ENOUGH:
            return True
        return self._lots.lot(account, self._epoch) < self._lots.lot(other, self._epoch)

    def _leave(self, content_id: ContentId) -> None:
        self._counts.remove(self._waiting.pop(content_id).account)

    def _delete(self, content_ids: Iterable[bytes]) -> None:
        self._connection.executemany(
            "DELETE FROM waiting WHERE content_id = ?", [(bytes(content_id),) for content_id in content_ids]
        )
