"""The islands of a swarm as one node knows them: where accounts live, and which islands the node carries.

Everything follows from beacons and from how many accounts were paid; both are given. Where one of them is not
known yet, so is the island, and what comes from there is ignored: it blames nobody.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sapo_protocol.constants import CLOCK_SLACK_SECONDS, EPOCH_WINDOW
from sapo_protocol.epochs import epoch_at
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.islands.count import island_count
from sapo_protocol.islands.homes import drawing_epoch, home_island, visited_island
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule

Heard = frozenset[int] | None
"""The islands on which a message counts: its topic's, or those that the node carries; none: anywhere."""

PaidOf = Callable[[int], Sequence[int] | None]
"""How many accounts were paid in each of the final epochs that an epoch's islands rest on, oldest first;
none while it is unknown."""

_KEPT_HOMES: Final = 16_384
"""Homes in memory, about 200 bytes each: some epochs of the accounts of two large islands."""


def nobody_paid(_epoch: int) -> Sequence[int]:
    """Return that no epoch is final yet."""
    return ()


class IslandMap:
    """Homes of accounts and visits of nodes; remembers which islands the node carries.

    Attributes:
        is_divided: whether the swarm may have more islands than one.
        carried: the islands whose messages the node hears now; the first one until it has joined some.
        has_joined: whether it has.
        everywhere: accounts whose certificates count on every island: the auditors'.
    """

    def __init__(
        self,
        manifest: Manifest,
        beacon_of: Callable[[int], Digest | None],
        paid_of: PaidOf = nobody_paid,
    ) -> None:
        self._manifest = manifest
        self._terms = manifest.islands
        self.is_divided: Final = manifest.islands is not None
        self._beacon_of = beacon_of
        self._paid_of = paid_of
        self._homes: dict[tuple[Account, int], int] = {}
        self.carried: frozenset[int] = frozenset({0})
        self.has_joined = False
        self.everywhere: frozenset[Account] = frozenset()

    def count(self, epoch: int) -> int | None:
        """Return the number of islands in an epoch, or none while it is unknown."""
        if self._terms is None:
            return 1
        paid = self._paid_of(epoch)
        return None if paid is None else island_count(self._terms, paid)

    def home(self, account: Account, epoch: int) -> int | None:
        """Return the island of an account in an epoch, or none while it is unknown."""
        if (known := self._homes.get((account, epoch))) is not None:
            return known
        home = self._find_home(account, epoch)
        if home is not None and self._terms is not None:
            if len(self._homes) >= _KEPT_HOMES:
                self._homes.clear()
            self._homes[account, epoch] = home
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
        """Return the epochs whose islands a node carries: those of timely rollouts, and the next one."""
        genesis = self._manifest.genesis_seconds
        last = epoch_at(self._manifest, max(genesis, now_seconds - CLOCK_SLACK_SECONDS))
        return range(max(0, last - EPOCH_WINDOW), epoch_at(self._manifest, max(genesis, now_seconds)) + 2)

    def due(self, node: NodeId, account: Account, now_seconds: float) -> frozenset[int]:
        """Return the islands that a node of an account has to carry, as far as they are known."""
        epochs = self.epochs_at(now_seconds)
        found = {self.home(account, epoch) for epoch in epochs}
        found |= {self.visit(node, account, epoch) for epoch in epochs}
        return frozenset(island for island in found if island is not None)

    def all_at(self, now_seconds: float) -> frozenset[int]:
        """Return all islands of the epochs that matter now, which an auditor carries."""
        counts = [self.count(epoch) or 1 for epoch in self.epochs_at(now_seconds)]
        return frozenset(range(max(counts)))

    def is_near(self, account: Account, now_seconds: float) -> bool:
        """Whether an account lives on an island that the node carries, may live there, or will soon."""
        if self._terms is None or account in self.everywhere or not self.has_joined:
            return True
        homes = [self.home(account, epoch) for epoch in self.epochs_at(now_seconds)]
        return any(home is None or home in self.carried for home in homes)

    def require_rollout(self, account: Account, epoch: int, heard: Heard) -> None:
        """Raise unless a rollout of an epoch counts where it was heard.

        Raises:
            RemoteProtocolError: ``WRONG_ISLAND``.
        """
        self._require(Rule.ROLLOUT_ISLAND, account, (epoch,), heard)

    def require_certificate(self, account: Account, now_seconds: float, heard: Heard) -> None:
        """Raise unless an account's certificate counts where it was heard.

        Raises:
            RemoteProtocolError: ``WRONG_ISLAND``.
        """
        if account not in self.everywhere:
            self._require(Rule.CERTIFICATE_ISLAND, account, self._around(now_seconds), heard)

    def require_proof(self, account: Account, epoch: int, now_seconds: float, heard: Heard) -> None:
        """Raise unless a proof about an epoch counts where it was heard.

        Raises:
            RemoteProtocolError: ``WRONG_ISLAND``.
        """
        self._require(Rule.PROOF_ISLAND, account, (epoch, *self._around(now_seconds)), heard)

    def proof_islands(self, account: Account, epoch: int, now_seconds: float) -> tuple[int, ...]:
        """Return the islands on which a proof about an epoch is published."""
        now = epoch_at(self._manifest, max(now_seconds, self._manifest.genesis_seconds))
        homes = (self.home(account, one) for one in (epoch, now))
        return tuple(sorted({home for home in homes if home is not None}))

    def _around(self, now_seconds: float) -> range:
        now = epoch_at(self._manifest, max(now_seconds, self._manifest.genesis_seconds))
        return range(max(0, now - 1), now + 2)

    def _require(self, rule: Rule, account: Account, epochs: Iterable[int], heard: Heard) -> None:
        if self._terms is None or heard is None:
            return
        homes = [self.home(account, epoch) for epoch in epochs]
        if not any(home in heard for home in homes):
            raise RemoteProtocolError(rule, f"account {account} lives on {homes}, this is of {sorted(heard)}")

    def _find_home(self, account: Account, epoch: int) -> int | None:
        count = self.count(epoch)
        if self._terms is None or count is None or count == 1:
            return None if count is None else 0
        drawn = drawing_epoch(self._manifest.swarm_id, account, epoch, self._terms.period_epochs)
        if (beacon := self._beacon_of(drawn)) is None:
            return None
        return home_island(self._manifest.swarm_id, beacon, account, count)
