"""The ledger at the end: what the chain holds, and whether the auditors' own counts lead to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from sapo_client.testnet.story import Story
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
        points: every account's points; none if no quorum of the tallies that were seen leads to the root.
    """

    epoch: int
    total: int
    contribution_root: str
    cumulative_root: str
    points: Points | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A reward that was asked for and paid.

    Attributes:
        error: why it was not, if it was not.
    """

    name: str
    account: str
    points_before: int
    points_after: int
    tokens_before: int
    tokens_after: int
    error: str | None = None


class ChainView:
    """The swarm's contracts, read from outside."""

    def __init__(self, rpc_url: str, manifest: Manifest) -> None:
        from sapo_client.ledger.contract import EpochLedgerContract
        from sapo_client.ledger.history import History
        from sapo_client.ledger.rpc import Rpc

        assert manifest.ledger is not None
        self._rpc: Rpc = Rpc([rpc_url])
        self._ledger: EpochLedgerContract = EpochLedgerContract(self._rpc, manifest.ledger)
        self._history: History = History(self._ledger)
        self._points_per_epoch = manifest.limits.points_per_epoch

    def block(self) -> int:
        """The number of the last block."""
        from sapo_client.ledger.transactions import head_block

        return head_block(self._rpc)

    def next_epoch(self) -> int:
        """The lowest epoch that can still become final."""
        return self._ledger.next_epoch()

    def epochs(self, stories: Sequence[Story]) -> list[EpochRow]:
        """Every final epoch."""
        rows = []
        budget = self._ledger.epoch_budget()
        for root in (record.root for record in self._history.all()):
            points = explain_root(
                root.contribution_root,
                root.epoch,
                stories,
                points_per_epoch=self._points_per_epoch,
                epoch_budget=budget,
            )
            roots = str(root.contribution_root), str(root.cumulative_root)
            rows.append(EpochRow(root.epoch, root.total, *roots, points))
        return rows

    def paid(self, account: Account) -> tuple[int, int]:
        """Points that an account was paid for, and the tokens that it holds, in the smallest unit."""
        distributor: Distributor = self._ledger.distributor()
        token: Token = distributor.token()
        return distributor.claimed(account), token.balance(account)


def explain_root(
    root: Digest, epoch: int, stories: Sequence[Story], *, points_per_epoch: int, epoch_budget: int
) -> Points | None:
    """The points behind a contribution root: the settlement of some of the auditors' tallies.

    Each auditor wrote its own count into its event file; which of them the proposer held is not told, so
    every choice is tried. There are a handful of auditors.
    """
    tallies = [_tally(story, epoch) for story in stories if epoch in story.tallies]
    for size in range(len(tallies), 0, -1):
        for chosen in combinations(tallies, size):
            shares = settle(chosen, {}, points_per_epoch=points_per_epoch, epoch_budget=epoch_budget)
            paid = [share for share in shares if share.points]
            if merkle.root([merkle.leaf(share.account, share.points) for share in paid]) == root:
                return {share.account.hex(): share.points for share in paid}
    return None


def points_of(rows: Sequence[EpochRow], account: str) -> int:
    """An account's points over all epochs that could be explained."""
    return sum(row.points.get(account, 0) for row in rows if row.points)


def _tally(story: Story, epoch: int) -> Tally:
    counted = {Account.from_hex(account): points for account, points in story.tallies[epoch].items()}
    nobody = NodeId(bytes(32))
    account = Account.from_hex(story.account)
    return Tally(
        node=nobody,
        account=account,
        epoch=epoch,
        points=tuple(sorted(counted.items())),
        evidence_root=Digest(bytes(32)),
    )
