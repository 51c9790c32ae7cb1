"""The ledger after a run: the final epochs on the chain, and whether the auditors' tallies explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from sapo_client.testnet.node_record import NodeRecord
from sapo_protocol import merkle
from sapo_protocol.contributions import Tally, settle
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest import Manifest

if TYPE_CHECKING:
    from sapo_client.ledger.contract import Distributor, EpochLedgerContract, Token
    from sapo_client.ledger.history import History
    from sapo_client.ledger.rpc import Rpc

Points = Mapping[str, int]
"""Points by account, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch on the ledger.

    Attributes:
        points: every account's points; none if no quorum of the known tallies settles to the root.
    """

    epoch: int
    total: int
    contribution_root: str
    cumulative_root: str
    points: Points | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a reward, with the balances before and after it.

    Attributes:
        error: why the claim failed; none if it succeeded.
    """

    name: str
    account: str
    points_before: int
    points_after: int
    tokens_before: int
    tokens_after: int
    error: str | None = None


class ChainView:
    """Read-only view of the swarm's contracts."""

    def __init__(self, rpc_url: str, manifest: Manifest) -> None:
        from sapo_client.ledger.contract import EpochLedgerContract
        from sapo_client.ledger.history import History
        from sapo_client.ledger.rpc import Rpc

        assert manifest.ledger is not None
        self._rpc: Rpc = Rpc([rpc_url])
        self._ledger: EpochLedgerContract = EpochLedgerContract(self._rpc, manifest.ledger)
        self._history: History = History(self._ledger)
        self._points_per_epoch = manifest.points_cap

    def block(self) -> int:
        """Return the number of the last block."""
        from sapo_client.ledger.transactions import head_block

        return head_block(self._rpc)

    def next_epoch(self) -> int:
        """Return the lowest epoch that can still become final."""
        return self._ledger.next_epoch()

    def epochs(self, records: Sequence[NodeRecord]) -> list[EpochRow]:
        """Return every final epoch."""
        rows = []
        budget = self._ledger.epoch_budget()
        for root in (record.root for record in self._history.all()):
            points = explain_root(
                root.contribution_root,
                root.epoch,
                records,
                points_per_epoch=self._points_per_epoch,
                epoch_budget=budget,
            )
            roots = str(root.contribution_root), str(root.cumulative_root)
            rows.append(EpochRow(root.epoch, root.total, *roots, points))
        return rows

    def paid(self, account: Account) -> tuple[int, int]:
        """Return the points that an account was paid for, and its tokens in the smallest unit."""
        distributor: Distributor = self._ledger.distributor()
        token: Token = distributor.token()
        return distributor.claimed(account), token.balance(account)


def explain_root(
    root: Digest, epoch: int, records: Sequence[NodeRecord], *, points_per_epoch: int, epoch_budget: int
) -> Points | None:
    """Return the points behind a contribution root: the settlement of some of the auditors' tallies.

    Each auditor wrote its own tally into its event file. Which tallies the proposer used is not recorded, so
    every subset is tried; there are few auditors.
    """
    tallies = [_tally(record, epoch) for record in records if epoch in record.tallies]
    for size in range(len(tallies), 0, -1):
        for chosen in combinations(tallies, size):
            shares = settle(chosen, {}, points_per_epoch=points_per_epoch, epoch_budget=epoch_budget)
            paid = [share for share in shares if share.points]
            if merkle.sum_root([(share.account, share.points) for share in paid]) == root:
                return {share.account.hex(): share.points for share in paid}
    return None


def points_of(rows: Sequence[EpochRow], account: str) -> int:
    """Return an account's points over all epochs that could be explained."""
    return sum(row.points.get(account, 0) for row in rows if row.points)


def _tally(record: NodeRecord, epoch: int) -> Tally:
    counted = {Account.from_hex(account): points for account, points in record.tallies[epoch].items()}
    nobody = NodeId(bytes(32))
    account = Account.from_hex(record.account)
    return Tally(
        node=nobody,
        account=account,
        epoch=epoch,
        points=tuple(sorted(counted.items())),
        evidence_root=Digest(bytes(32)),
    )
