"""The islands of a swarm as one node knows them: the home islands of accounts, and the islands it carries.

A node carries an island if it subscribes to the island's topics. Everything is derived from beacons and from
the numbers of paid accounts, which are given. While a beacon is unknown, so is the island, and its messages
are ignored without a penalty. While the number of islands is unknown, the last known one is used; what is
ignored because of that has no penalty either.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sapo_protocol.constants import CLOCK_SLACK_SECONDS, EPOCH_WINDOW
from sapo_protocol.epochs import overlap_seconds, present_epoch
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.islands.count import island_count
from sapo_protocol.islands.homes import drawing_epoch, home_island, visited_island
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_verification.bounded_cache import BoundedCache
from sapo_verification.island_counts import IslandCounts

TopicIslands = frozenset[int] | None
"""Islands on which a message is valid: that of its topic, or all that the node carries; None is any
island."""

_KEPT_HOMES: Final = 16_384
"""Home islands in memory, about 200 bytes each: enough for several epochs of two large islands."""


class IslandMap:
    """Home islands of accounts and visited islands of nodes; remembers which islands the node carries.

    Args:
        counts: store of the known numbers of islands; in memory by default.

    Attributes:
        is_divided: whether the swarm may have more than one island.
        carried: the islands that the node carries now; island 0 until it has joined some.
        rollouts: those of them to whose rollouts it subscribes: all, except for an auditor with audits by
            sample.
        has_joined: whether it has joined any.
        everywhere: accounts (the auditors) whose certificates are valid on every island.
    """

    def __init__(
        self,
        manifest: Manifest,
        beacon_of: Callable[[int], Digest | None],
        counts: IslandCounts | None = None,
    ) -> None:
        self._manifest = manifest
        self._terms = manifest.islands
        self.is_divided: Final = manifest.islands is not None
        self._beacon_of = beacon_of
        self._counts = counts or IslandCounts(":memory:")
        self._homes = BoundedCache[tuple[Account, int, int], int](_KEPT_HOMES)
        self.carried: frozenset[int] = frozenset({0})
        self.rollouts: frozenset[int] = self.carried
        self.has_joined = False
        self.everywhere: frozenset[Account] = frozenset()

    def learn(self, epoch: int, paid: Sequence[int]) -> None:
        """Derive an epoch's number of islands from the accounts paid in its ``counted_epochs``, oldest first.

        The first call for an epoch decides, whatever the chain shows of it later.
        """
        self._counts.learn(epoch, island_count(self._terms, paid, self._manifest.one_in))

    def knows(self, epoch: int) -> bool:
        """Whether the number of islands in an epoch is known, not only that of an earlier epoch."""
        follows_chain = self._terms is not None and self._terms.count is None
        return not follows_chain or self._counts.of(epoch) is not None

    def count(self, epoch: int) -> int | None:
        """Return the number of islands in an epoch; while it is unknown, the last known one, if any."""
        if self._terms is None or self._terms.count is not None:
            return island_count(self._terms)
        known = self._counts.of(epoch)
        return self._counts.last_before(epoch) if known is None else known

    def home(self, account: Account, epoch: int) -> int | None:
        """Return the island of an account in an epoch, or none while it is unknown."""
        count = self.count(epoch)
        if count is None or count == 1:
            return None if count is None else 0
        if (known := self._homes.get((account, epoch, count))) is not None:
            return known
        home = self._find_home(account, epoch, count)
        if home is not None:
            self._homes[account, epoch, count] = home
        return home

    def visit(self, node: NodeId, account: Account, epoch: int) -> int | None:
        """Return the island that a node of an account visits in an epoch, or none while it is unknown."""
        home, count = self.home(account, epoch), self.count(epoch)
        if self._terms is None or home is None or count is None or count == 1:
            return home
        drawn = drawing_epoch(self._manifest.swarm_id, node, epoch, self._terms.period_epochs)
        if (beacon := self._beacon_of(drawn)) is None:
            return None
        return visited_island(self._manifest.swarm_id, beacon, node, home=home, count=count)

    def epochs_at(self, now_seconds: float) -> range:
        """Return the relevant epochs: those whose rollouts are accepted, and the next one."""
        past, now = self._epoch(now_seconds - CLOCK_SLACK_SECONDS), self._epoch(now_seconds)
        return range(max(0, past - EPOCH_WINDOW), now + 2)

    def carried_epochs(self, now_seconds: float) -> range:
        """Return the epochs whose islands a node carries: the present one, and near its begin or end a second
        one.

        Also the previous one if its number of islands was another, since no other node carries the old
        islands.
        """
        overlap = overlap_seconds(self._manifest)
        first = self._epoch(now_seconds - overlap - CLOCK_SLACK_SECONDS)
        last = self.epochs_at(now_seconds)[0]
        if self.count(last) != self.count(first):
            first = last
        return range(first, self._epoch(now_seconds + overlap) + 1)

    def due(self, node: NodeId, account: Account, now_seconds: float) -> frozenset[int]:
        """Return the known islands that a node of an account has to carry."""
        epochs = self.carried_epochs(now_seconds)
        found = {self.home(account, epoch) for epoch in epochs}
        found |= {self.visit(node, account, epoch) for epoch in epochs}
        return frozenset(island for island in found if island is not None)

    def all_at(self, now_seconds: float) -> frozenset[int]:
        """Return all known islands of the relevant epochs, which an auditor carries.

        An auditor carries them longer than other nodes, so that late rollouts that are accepted are also
        paid.
        """
        counts = [self.count(epoch) for epoch in self.epochs_at(now_seconds)]
        return frozenset(range(max((count for count in counts if count is not None), default=0)))

    def is_near(self, account: Account, now_seconds: float) -> bool:
        """Whether an account's home is, soon will be or (if unknown) may be an island that the node
        carries."""
        if self._terms is None or account in self.everywhere or not self.has_joined:
            return True
        homes = [self.home(account, epoch) for epoch in self.epochs_at(now_seconds)]
        return any(home is None or home in self.carried for home in homes)

    def require_rollout(self, account: Account, epoch: int, topic_islands: TopicIslands) -> None:
        """Raise unless a rollout of an epoch is valid on the islands on which it was received.

        Raises:
            RemoteProtocolError: ``WRONG_ISLAND``.
        """
        self._require(Rule.ROLLOUT_ISLAND, account, (epoch,), topic_islands)

    def require_certificate(self, account: Account, now_seconds: float, topic_islands: TopicIslands) -> None:
        """Raise unless an account's certificate is valid on the islands on which it was received.

        Raises:
            RemoteProtocolError: ``WRONG_ISLAND``.
        """
        if account not in self.everywhere:
            self._require(Rule.CERTIFICATE_ISLAND, account, self._around(now_seconds), topic_islands)

    def require_proof(
        self, account: Account, epoch: int, now_seconds: float, topic_islands: TopicIslands
    ) -> None:
        """Raise unless a proof about an epoch is valid on the islands on which it was received.

        Raises:
            RemoteProtocolError: ``WRONG_ISLAND``.
        """
        self._require(Rule.PROOF_ISLAND, account, (epoch, *self._around(now_seconds)), topic_islands)

    def proof_islands(self, account: Account, epoch: int, now_seconds: float) -> tuple[int, ...]:
        """Return the islands on which a proof about an epoch is published."""
        homes = (self.home(account, one) for one in (epoch, self._epoch(now_seconds)))
        return tuple(sorted({home for home in homes if home is not None}))

    def _around(self, now_seconds: float) -> range:
        now = self._epoch(now_seconds)
        return range(max(0, now - 1), now + 2)

    def _epoch(self, seconds: float) -> int:
        return present_epoch(self._manifest, seconds)

    def _require(
        self, rule: Rule, account: Account, epochs: Iterable[int], topic_islands: TopicIslands
    ) -> None:
        if self._terms is None or topic_islands is None:
            return
        homes = [self.home(account, epoch) for epoch in epochs]
        if not any(home in topic_islands for home in homes):
            detail = f"the home of account {account} is {homes}, this message is of {sorted(topic_islands)}"
            raise RemoteProtocolError(rule, detail)

    def _find_home(self, account: Account, epoch: int, count: int) -> int | None:
        if self._terms is None:
            return 0
        drawn = drawing_epoch(self._manifest.swarm_id, account, epoch, self._terms.period_epochs)
        if (beacon := self._beacon_of(drawn)) is None:
            return None
        return home_island(self._manifest.swarm_id, beacon, account, count)
