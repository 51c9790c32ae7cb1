"""Findings about the contracts: hidden leaves, false sums, exits, permanent postings, growing proofs."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pytest
from findings.tree import AUDITORS as IDENTITIES
from findings.tree import TREE, Points, crowd
from support.ledger import (
    AUDITOR_BOND,
    AUDITORS,
    BOB,
    EPOCH_SECONDS,
    POINTS_CAP,
    TOKENS_PER_POINT,
    Contracts,
    Tree,
    address,
    make_root,
    sign,
)

from sapo_client.ledger.transactions import Refused
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account

THIEF: Final = address(BOB)
CROWD: Final = crowd(62)
"""62 accounts at their cap: nearly the budget of an epoch."""


def root_of(contracts: Contracts, epoch: int, total: int, cumulative: Points) -> EpochRoot:
    """Return a root that grants so many points, over a tree with these values."""
    tree = Tree(dict(cumulative))
    return make_root(epoch, base_root=contracts.base_root, total=total, cumulative_root=tree.root)


def settle(contracts: Contracts, epoch: int, total: int, cumulative: Points) -> None:
    """Have three auditors sign such a root, post it and make it final."""
    root = root_of(contracts, epoch, total, cumulative)
    contracts.post(root, sign(root, contracts.domain))
    contracts.finalise()


def bonds(contracts: Contracts) -> list[int]:
    """Return what each auditor has bonded."""
    return [contracts.vault.bonded(one.account) for one in IDENTITIES]


def test_a_quorum_that_hides_its_leaves_takes_no_more_than_its_accounts_could_earn(
    contracts: Contracts,
) -> None:
    """Nobody has claimed for ten epochs when one posting of no points gives everything to one account."""
    epochs = 10
    for epoch in range(epochs):
        total = POINTS_CAP * len(CROWD)
        settle(contracts, epoch, total, dict.fromkeys(CROWD, POINTS_CAP * (epoch + 1)))
    everything = POINTS_CAP * len(CROWD) * epochs
    stolen = Tree({THIEF: everything})
    settle(contracts, epochs, 0, stolen.points)
    with suppress(Refused):
        contracts.claim(THIEF, everything, stolen.proof(THIEF))
    assert contracts.token.balance(THIEF) // TOKENS_PER_POINT <= POINTS_CAP * (epochs + 1)


def test_honest_auditors_continue_from_the_last_verifiable_epoch(contracts: Contracts) -> None:
    """A root with hidden leaves is posted on it; an account asks for its leaves, and the quorum settles."""
    settle(contracts, 0, 10, {CROWD[0]: 10})
    stolen, honest = (root_of(contracts, 1, 0, {account: 10}) for account in (THIEF, CROWD[0]))
    contracts.post(stolen, sign(stolen, contracts.domain))
    TREE.doubt(contracts, CROWD[0])
    with suppress(Refused):
        contracts.finalise()
    with suppress(Refused):
        contracts.post(honest, sign(honest, contracts.domain))
    live = contracts.ledger.live()
    assert (live.root if live else None) == honest


def test_a_false_sum_costs_no_honest_bond(contracts: Contracts) -> None:
    """A quorum grants ten points and writes five hundred; later auditors add one to that."""
    honest: dict[Account, int] = {}
    with suppress(Refused):
        settle(contracts, 0, 10, {THIEF: 500})
        honest = {THIEF: 500}
    after = {THIEF: honest.get(THIEF, 0) + 1}
    root = root_of(contracts, 1, 1, after)
    points = Tree({THIEF: 1})
    root = type(root)(
        epoch=root.epoch,
        base_root=root.base_root,
        contribution_root=points.root,
        cumulative_root=root.cumulative_root,
        total=root.total,
        archive_digest=root.archive_digest,
    )
    contracts.post(root, sign(root, contracts.domain))
    assert TREE.accuse(contracts, honest, points.points, after) == []
    assert bonds(contracts) == [AUDITOR_BOND] * 4


def test_the_exit_of_one_signer_does_not_revert_a_posting(contracts: Contracts) -> None:
    vault = contracts.vault
    contracts.chain.send(AUDITORS[3], vault.address, vault.request_exit(1))
    root = root_of(contracts, 0, 10, {THIEF: 10})
    with suppress(Refused):
        contracts.post(root, sign(root, contracts.domain, AUDITORS))
    live = contracts.ledger.live()
    assert (live.root if live else None) == root


def test_a_posting_that_is_not_finalised_does_not_block_the_next(contracts: Contracts) -> None:
    first, second = (root_of(contracts, epoch, 10, {THIEF: 10}) for epoch in (0, 1))
    contracts.post(first, sign(first, contracts.domain))
    contracts.chain.now_seconds += 20 * EPOCH_SECONDS
    with suppress(Refused):
        contracts.post(second, sign(second, contracts.domain))
    live = contracts.ledger.live()
    assert (live.root if live else None) == second


@pytest.mark.parametrize("accounts", [1_024])
def test_a_proof_fits_into_a_transaction(contracts: Contracts, accounts: int) -> None:
    """geth takes transactions of at most 128 KiB; ten thousand bytes are the bound of the specification."""
    assert len(TREE.unearned_proof(contracts, accounts)) < 10_000
