"""Gas of the ledger's transactions; it is the same on every machine. `pytest -s` prints the figures."""

import math
from hashlib import sha256

import pytest
from support.ledger import ALICE, NOW_SECONDS, Contracts, address, deploy_contracts, make_root, node_key, sign

from sapo_protocol.identifiers import Account

LATER = NOW_SECONDS + 10**9


def test_registration_stays_within_its_budget(contracts: Contracts) -> None:
    costs = [contracts.register(ALICE, node_key(n), LATER).gas_used for n in (1, 2, 3, 4)]
    print("\nregister, first to fourth node:", costs)
    assert max(costs) <= 120_000


def test_an_epoch_stays_within_its_budget(contracts: Contracts) -> None:
    postings, endings = [], []
    for epoch in range(3):
        words = 2**191 + epoch  # full ones, as digests are
        root = make_root(epoch, base_root=contracts.base_root, total=100 + epoch, archive=words)
        postings.append(contracts.post(root, sign(root, contracts.domain)).gas_used)
        endings.append(contracts.finalise().gas_used)
    print("\npost with three signatures:", postings, "finalise:", endings)
    assert max(post + finalise for post, finalise in zip(postings, endings, strict=True)) <= 150_000


@pytest.mark.parametrize(
    ("accounts", "first_budget", "again_budget"), [(16, 95_000, 65_000), (100_000, 100_000, 75_000)]
)
def test_a_claim_stays_within_its_budget(
    contracts: Contracts, accounts: int, first_budget: int, again_budget: int
) -> None:
    contracts = deploy_contracts(contracts.chain, epoch_budget_points=2**32 - 1)
    a = address(ALICE)
    others = {Account(sha256(b"%d" % number).digest()[:20]): 9 for number in range(1, accounts)}
    tree = contracts.settle(0, {**others, a: 7})
    first = contracts.claim(a, 7, tree.proof(a)).gas_used
    tree = contracts.settle(1, {**others, a: 9})
    again = contracts.claim(a, 9, tree.proof(a)).gas_used
    depth = len(tree.proof(a))
    print(f"\nclaim among {accounts:,} accounts, {depth} siblings: first {first}, again {again}")
    assert depth >= math.log2(accounts)
    assert first <= first_budget
    assert again <= again_budget
