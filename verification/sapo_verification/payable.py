"""What an auditor counts: payable rollouts per account and epoch.

Payable is a rollout that was heard in time for its assigned slot, stood up to verification and is
informative. Points are linear in it and capped, so splitting an account gains nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sapo_protocol import merkle
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_verification.types import VerifiedRollout


class PayableCount:
    """One auditor's count; a rollout counts once however often it is verified."""

    def __init__(self) -> None:
        self._payable: dict[int, dict[Account, set[ContentId]]] = defaultdict(lambda: defaultdict(set))

    def record(self, verified: VerifiedRollout) -> None:
        """Counts the rollout, if it is payable."""
        if verified.is_informative:
            self._payable[verified.admitted.rollout.epoch][verified.account].add(verified.content_id)

    def points(
        self, epoch: int, live_accounts: Iterable[Account], points_per_epoch: int
    ) -> tuple[tuple[Account, int], ...]:
        """Points of every registered account with any, ascending by account."""
        counted = {account: len(ids) for account, ids in self._payable.get(epoch, {}).items()}
        return capped_points(counted, live_accounts, points_per_epoch)

    def evidence_root(self, epoch: int) -> Digest:
        """A Merkle root over the content ids behind the count."""
        ids = sorted(id_ for counted in self._payable.get(epoch, {}).values() for id_ in counted)
        return merkle.root([Digest(id_) for id_ in ids])

    def evidence(self, epoch: int, account: Account) -> frozenset[ContentId]:
        """The content ids counted for an account."""
        return frozenset(self._payable.get(epoch, {}).get(account, ()))

    def forget(self, before_epoch: int) -> None:
        """Drops the counts of older epochs."""
        for epoch in [epoch for epoch in self._payable if epoch < before_epoch]:
            del self._payable[epoch]


def capped_points(
    payable: Mapping[Account, int], live_accounts: Iterable[Account], points_per_epoch: int
) -> tuple[tuple[Account, int], ...]:
    """The pay rule: a point per payable rollout of a registered account, capped; ascending by account."""
    return tuple(
        (account, min(points_per_epoch, payable[account]))
        for account in sorted(set(live_accounts) & set(payable))
    )
