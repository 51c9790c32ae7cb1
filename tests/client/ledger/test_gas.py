"""What the ledger's transactions cost; gas is the same on every machine. `pytest -s` prints the figures."""

import pytest
from support.ledger import ALICE, NOW_SECONDS, Contracts, address, make_root, node_key, sign

from sapo_protocol.identifiers import Account

LATER = NOW_SECONDS + 10**9


def test_registration_stays_within_its_budget(contracts: Contracts) -> None:
    costs = [contracts.register(ALICE, node_key(n), LATER).gas_used for n in (1, 2, 3, 4)]
    print("\nregister, first to fourth node:", costs)
    assert max(costs) <= 120_000


def test_an_epoch_stays_within_its_budget(contracts: Contracts) -> None:
    postings, endings = [], []
    for epoch in range(3):
        words = 2**255 + epoch  # full ones, as digests are
        root = make_root(epoch, base_root=contracts.base_root, total=100 + epoch, archive=words)
        postings.append(contracts.post(root, sign(root, contracts.domain)).gas_used)
        endings.append(contracts.finalise().gas_used)
    print("\npost with three signatures:", postings, "finalise:", endings)
    assert max(post + finalise for post, finalise in zip(postings, endings, strict=True)) <= 150_000


@pytest.mark.parametrize(
    ("depth", "first_budget", "again_budget"), [(4, 95_000, 65_000), (10, 100_000, 70_000)]
)
def test_a_claim_stays_within_its_budget(
    contracts: Contracts, depth: int, first_budget: int, again_budget: int
) -> None:
    a = address(ALICE)
    others = {Account(number.to_bytes(20, "big")): 1 for number in range(1, 2**depth)}
    tree = contracts.settle(0, {**others, a: 7}, total=900)
    first = contracts.claim(a, 7, tree.proof(a)).gas_used
    tree = contracts.settle(1, {**others, a: 9}, total=2)
    again = contracts.claim(a, 9, tree.proof(a)).gas_used
    print(f"\nclaim among {2**depth} accounts: first {first}, again {again}")
    assert len(tree.proof(a)) == depth
    assert first <= first_budget
    assert again <= again_budget
