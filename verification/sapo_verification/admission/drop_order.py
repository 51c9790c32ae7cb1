"""The order in which certificates are dropped when there are more than a node keeps.

An account costs nothing in a swarm without a gate, so with "oldest first" a flood of new accounts would
displace the certificates of all others. Accounts that the node needs keep theirs. The others get a random
priority each, so that an honest newcomer among n new accounts keeps its certificate with the same probability
as any other.
"""

import heapq
import math
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from sapo_protocol.identifiers import Account

_LOT_BYTES: Final = 7  # as many as a float has digits for


class DropOrder:
    """Accounts whose certificates may be dropped, in the order of their random priorities.

    The larger an account's weight, the less probable it is that it is dropped before another (weighted
    sampling, as in ``sampling.newcomers``): accounts that share a bond keep as many certificates as one
    account with all of it.

    Args:
        key: secret random bytes, new at each start, so that no attacker can create accounts with good
            priorities.
        weight_of: an account's weight; with 0 it is dropped before all others.
        is_kept: whether an account's certificates are dropped last.
    """

    def __init__(
        self, key: bytes, weight_of: Callable[[Account], float], is_kept: Callable[[Account], bool]
    ) -> None:
        self._key = blake2b(key, person=b"certificates").digest()
        self._weight_of = weight_of
        self._is_kept = is_kept
        self._heap: list[tuple[float, Account]] = []
        self._queued: set[Account] = set()

    def add(self, account: Account) -> None:
        """Add an account."""
        if account not in self._queued and not self._is_kept(account):
            self._queued.add(account)
            heapq.heappush(self._heap, (-self._lot(account), account))

    def take(self, is_candidate: Callable[[Account], bool]) -> Account | None:
        """Remove and return the first candidate in the order; None if there is none.

        Accounts that are not candidates now stay in the order, unless ``is_kept`` says that they are kept.
        """
        passed: list[Account] = []
        chosen = None
        while self._heap and chosen is None:
            _, account = heapq.heappop(self._heap)
            self._queued.discard(account)
            if self._is_kept(account):
                continue
            if is_candidate(account):
                chosen = account
            else:
                passed.append(account)
        for account in passed:
            self.add(account)
        return chosen

    def _lot(self, account: Account) -> float:
        weight = self._weight_of(account)
        if weight <= 0.0:
            return math.inf
        drawn = int.from_bytes(blake2b(account, key=self._key, digest_size=_LOT_BYTES).digest(), "big")
        return -math.log((drawn + 1) / 256**_LOT_BYTES) / weight
