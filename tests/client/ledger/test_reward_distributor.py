"""The rules of ``RewardDistributor``, on the embedded chain."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledger import (
    ALICE,
    BOB,
    DEPLOYER,
    NOW_SECONDS,
    POINTS_CAP,
    STRANGER,
    TOKENS_PER_POINT,
    Contracts,
    ServedChain,
    Tree,
    address,
    deploy_contracts,
    keys,
    make_root,
    node_key,
    refused_as,
    sign,
    sum_of,
)

from sapo_protocol import merkle
from sapo_protocol.identifiers import Account, Digest

A, B = address(ALICE), address(BOB)
NEWCOMER = keys(4)
PAYOUT_DELAY_SECONDS = 7 * 24 * 3600


def test_a_claim_pays_the_account_for_any_sender(contracts: Contracts) -> None:
    tree = contracts.settle(0, {A: 7, B: 3})
    contracts.claim(A, 7, tree.proof(A), signer=BOB)
    assert contracts.token.balance(A) == 7 * TOKENS_PER_POINT
    assert contracts.token.balance(B) == 0
    assert contracts.distributor.claimed(A) == 7


def test_a_later_claim_pays_the_difference(contracts: Contracts) -> None:
    tree = contracts.settle(0, {A: 7})
    contracts.claim(A, 7, tree.proof(A))
    tree = contracts.settle(1, {A: 12, B: 1})
    contracts.claim(A, 12, tree.proof(A))
    assert contracts.token.balance(A) == 12 * TOKENS_PER_POINT


def test_a_claim_pays_once(contracts: Contracts) -> None:
    tree = contracts.settle(0, {A: 7, B: 3})
    contracts.claim(A, 7, tree.proof(A))
    assert refused_as(lambda: contracts.claim(A, 7, tree.proof(A))) == "NothingToClaim"


def test_a_wrong_proof_is_refused(contracts: Contracts) -> None:
    tree = contracts.settle(0, {A: 7, B: 3})
    for account, cumulative, proof in (
        (A, 8, tree.proof(A)),
        (A, 7, tree.proof(B)),
        (A, 7, ()),
        (B, 7, tree.proof(A)),
        (A, 7, (*tree.proof(A), Digest(bytes(32)))),
    ):
        refusal = refused_as(partial(contracts.claim, account, cumulative, proof))
        assert refusal == "WrongProof"


def test_an_inner_node_of_the_tree_is_not_accepted_as_leaf(contracts: Contracts) -> None:
    tree = contracts.settle(0, {A: 7, B: 3})
    leaf = merkle.sum_leaf(B, 3)
    inside = Account(leaf[:20])  # what a second preimage would be built from, were nodes not tagged
    value = int.from_bytes(leaf[20:28], "big")
    assert refused_as(lambda: contracts.claim(inside, value, ())) == "WrongProof"
    assert refused_as(lambda: contracts.claim(A, 7 + 2**64, tree.proof(A))) == "ValueTooLarge"
    assert refused_as(lambda: contracts.claim(A, 7, [bytes(32)] * 161)) == "BadPath"


def test_a_proof_of_an_earlier_root_is_refused(contracts: Contracts) -> None:
    old = contracts.settle(0, {A: 7, B: 3})
    contracts.settle(1, {A: 9, B: 4})
    assert refused_as(lambda: contracts.claim(A, 7, old.proof(A))) == "WrongProof"


def test_a_lower_cumulative_value_pays_nothing(contracts: Contracts) -> None:
    tree = contracts.settle(0, {A: 7, B: 3})
    contracts.claim(A, 7, tree.proof(A))
    lower = contracts.settle(1, {A: 5, B: 5})
    assert refused_as(lambda: contracts.claim(A, 5, lower.proof(A))) == "NothingToClaim"
    assert contracts.distributor.claimed(A) == 7


def test_only_final_roots_are_paid(contracts: Contracts) -> None:
    tree = Tree({A: 7})
    root = make_root(0, total=7, cumulative_root=tree.root)
    contracts.post(root, sign(root, contracts.domain))
    assert refused_as(lambda: contracts.claim(A, 7, tree.proof(A))) == "WrongProof"
    contracts.finalise()
    contracts.claim(A, 7, tree.proof(A))
    assert contracts.distributor.claimed(A) == 7


def test_only_the_ledger_grants(contracts: Contracts) -> None:
    paying = contracts.distributor
    data = paying.grant(Tree({A: 7}).root, 7, 1)
    assert refused_as(lambda: contracts.chain.send(ALICE, paying.address, data)) == "OnlyLedger"


def test_no_more_points_are_paid_than_were_granted(contracts: Contracts) -> None:
    # A dishonest quorum gives another account what was paid to the first one.
    tree = contracts.settle(0, {A: 7, B: 3})
    contracts.claim(A, 7, tree.proof(A))
    tree = contracts.settle(1, {B: 10})
    assert refused_as(lambda: contracts.claim(B, 10, tree.proof(B))) == "OverGranted"


def test_no_account_is_paid_more_than_its_cap_per_epoch_in_any_order_of_claims(
    contracts: Contracts,
) -> None:
    """Leaves that a quorum keeps to itself give its accounts no more than they could have been granted."""
    most = 3 * POINTS_CAP
    tree = contracts.settle(2, {A: most, B: most + 1})
    contracts.claim(A, most, tree.proof(A))
    assert refused_as(lambda: contracts.claim(B, most + 1, tree.proof(B))) == "OverCap"
    tree = contracts.settle(3, {A: most + POINTS_CAP + 1, B: most + 1})
    assert refused_as(lambda: contracts.claim(A, most + POINTS_CAP + 1, tree.proof(A))) == "OverCap"
    contracts.claim(B, most + 1, tree.proof(B))
    tree = contracts.settle(4, {A: most + POINTS_CAP + 1, B: most + 1})
    contracts.claim(A, most + POINTS_CAP + 1, tree.proof(A))
    assert (contracts.distributor.claimed(A), contracts.distributor.claimed(B)) == (most + 17, most + 1)


def test_a_claim_from_a_recalled_root_does_not_block_earlier_earnings(contracts: Contracts) -> None:
    """A quorum hides a root in which A has one point, and claims it for A before the root is recalled."""
    chain, token, verifier = contracts.chain, contracts.token, contracts.verifier
    for epoch in range(3):  # A earns its cap, and claims nothing
        contracts.settle(epoch, {A: (epoch + 1) * POINTS_CAP})
    earned = 3 * POINTS_CAP
    hidden = contracts.settle(3, {A: 1, B: earned - 1})
    contracts.claim(A, 1, hidden.proof(A))
    [final] = contracts.history.newest(1)
    chain.send(DEPLOYER, token.address, token.approve(verifier.address, verifier.question_bond()))
    chain.send(DEPLOYER, verifier.address, verifier.ask_final([final], A))
    chain.now_seconds = chain.engine.head.timestamp + verifier.answer_seconds()
    chain.send(BOB, verifier.address, verifier.recall([final], A))
    for epoch in range(4, 7):  # it goes on earning its cap, and is paid
        earned += POINTS_CAP
        tree = contracts.settle(epoch, {A: earned})
        contracts.claim(A, earned, tree.proof(A))
    assert contracts.distributor.claimed(A) == earned


@pytest.mark.parametrize("waited", [1, 3])
def test_a_newcomer_is_paid_no_more_than_its_cap_per_epoch_since_it_registered(
    contracts: Contracts, waited: int
) -> None:
    """Fifty epochs that A left unclaimed, given to an account that registered just now."""
    left, newcomer = 50 * POINTS_CAP, address(NEWCOMER)
    contracts.settle(49, {A: left})
    tree = contracts.settle(50, {A: left - 1, newcomer: 1})
    assert refused_as(lambda: contracts.claim(newcomer, 1, tree.proof(newcomer))) == "OverCap"
    contracts.register(NEWCOMER, node_key(1), NOW_SECONDS + 10**9)
    most = waited * POINTS_CAP
    tree = contracts.settle(50 + waited, {A: left - most - 1, newcomer: most + 1})
    assert refused_as(lambda: contracts.claim(newcomer, most + 1, tree.proof(newcomer))) == "OverCap"
    contracts.register(NEWCOMER, node_key(2), NOW_SECONDS + 10**9)  # registering again changes nothing
    assert contracts.distributor.max_claimable(newcomer) == most
    most += POINTS_CAP
    tree = contracts.settle(51 + waited, {A: left - most, newcomer: most})
    contracts.claim(newcomer, most, tree.proof(newcomer))
    assert contracts.distributor.max_claimable(newcomer) == 0


def test_no_more_tokens_are_paid_than_were_funded(chain: ServedChain) -> None:
    poor = deploy_contracts(chain, reward_tokens=10 * TOKENS_PER_POINT)
    tree = poor.settle(0, {A: 8, B: 3})
    poor.claim(A, 8, tree.proof(A))
    assert refused_as(lambda: poor.claim(B, 3, tree.proof(B))) == "ERC20InsufficientBalance"
    assert poor.token.balance(poor.distributor.address) == 2 * TOKENS_PER_POINT


def test_claims_are_paid_to_the_payout_address(contracts: Contracts) -> None:
    chain, paying, c = contracts.chain, contracts.distributor, address(STRANGER)
    assert paying.payout(A) == A
    tree = contracts.settle(0, {A: 7})
    chain.send(ALICE, paying.address, paying.set_payout(B))  # the first one at once
    assert paying.payout(A) == B
    contracts.claim(A, 7, tree.proof(A))
    assert (contracts.token.balance(A), contracts.token.balance(B)) == (0, 7 * TOKENS_PER_POINT)

    chain.send(ALICE, paying.address, paying.set_payout(c))  # every other after its delay
    assert paying.payout(A) == B
    announced = chain.engine.head.timestamp
    chain.now_seconds = announced + PAYOUT_DELAY_SECONDS - 1
    apply = paying.apply_payout(A)
    assert refused_as(lambda: chain.send(BOB, paying.address, apply)) == "PayoutTooEarly"
    chain.now_seconds = announced + PAYOUT_DELAY_SECONDS
    chain.send(BOB, paying.address, apply)
    assert paying.payout(A) == c
    assert refused_as(lambda: chain.send(BOB, paying.address, apply)) == "NoPayoutChange"
    assert paying.claimed(A) == 7


def test_a_later_announcement_replaces_the_earlier(contracts: Contracts) -> None:
    chain, paying = contracts.chain, contracts.distributor
    for payout in (B, address(STRANGER), A):
        chain.send(ALICE, paying.address, paying.set_payout(payout))
    chain.now_seconds = chain.engine.head.timestamp + PAYOUT_DELAY_SECONDS
    chain.send(BOB, paying.address, paying.apply_payout(A))
    assert paying.payout(A) == A


def test_the_zero_address_is_no_payout_address(contracts: Contracts) -> None:
    paying = contracts.distributor
    data = paying.set_payout(Account(bytes(20)))
    assert refused_as(lambda: contracts.chain.send(ALICE, paying.address, data)) == "EmptyPayout"


accounts = st.binary(min_size=20, max_size=20).map(Account)
points = st.dictionaries(accounts, st.integers(1, 2**40), min_size=1, max_size=33)


@given(points=points, data=st.data())
@settings(max_examples=25)
def test_protocol_and_contract_compute_the_same_tree(
    shared: Contracts, points: dict[Account, int], data: st.DataObject
) -> None:
    tree = Tree(points)
    account = data.draw(st.sampled_from(sorted(points)))
    computed = shared.distributor.root_of(account, points[account], tree.proof(account))
    assert computed == tree.root
    assert sum_of(tree.root) == sum(points.values())
