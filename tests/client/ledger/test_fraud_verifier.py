"""The rules of ``FraudVerifier``, on the embedded chain: what convicts, whom it costs, and what does not."""

from dataclasses import replace

import pytest
from eth_account.signers.local import LocalAccount
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledger import (
    ALICE,
    AUDITOR_BOND,
    AUDITORS,
    BOB,
    POINTS_CAP,
    QUORUM,
    STRANGER,
    Contracts,
    Tree,
    address,
    make_root,
    refused_as,
    sign,
)

from sapo_client.ledger.fraud import (
    ContributionSum,
    CumulativeDecrease,
    CumulativeSum,
    Equivocation,
    FraudProof,
    OverCap,
    Unearned,
)
from sapo_client.ledger.records import Stake
from sapo_protocol import merkle
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest

A, B = address(ALICE), address(BOB)
BURNED = Account.from_hex("0x000000000000000000000000000000000000dEaD")
HALF = AUDITOR_BOND // 2


def statement(epoch: int, points: dict[Account, int], before: dict[Account, int] | None = None) -> EpochRoot:
    """The honest root of an epoch's points on top of what was granted before."""
    before = before or {}
    cumulative = {a: before.get(a, 0) + points.get(a, 0) for a in {*before, *points}}
    root = make_root(epoch, total=sum(points.values()), cumulative_root=Tree(cumulative).root)
    return replace(root, base_root=Tree(before).root, contribution_root=Tree(points).root)


def posted(contracts: Contracts, root: EpochRoot) -> EpochRoot:
    contracts.post(root, sign(root, contracts.domain))
    return root


def leaves(points: dict[Account, int]) -> tuple[tuple[Account, int], ...]:
    return tuple(sorted(points.items()))


def equivocation(
    contracts: Contracts, a: EpochRoot, b: EpochRoot, signer: LocalAccount = AUDITORS[0]
) -> Equivocation:
    (of_a,), (of_b,) = (sign(root, contracts.domain, [signer]) for root in (a, b))
    return Equivocation(0, a, b, of_a, of_b)


def refusal(contracts: Contracts, proof: FraudProof) -> str | None:
    return refused_as(lambda: contracts.prove(proof))


def is_rejected(contracts: Contracts, root: EpochRoot) -> bool:
    """Whether a posting is gone for ever, its signers slashed, and half of their bonds the prover's."""
    vault, token = contracts.vault, contracts.token
    stakes = [vault.stake(address(auditor)) for auditor in AUDITORS]
    assert stakes == [Stake(0, 0, 0)] * QUORUM + [Stake(AUDITOR_BOND, 0, 0)]
    assert token.balance(B) == QUORUM * HALF
    assert token.balance(BURNED) == QUORUM * (AUDITOR_BOND - HALF)
    assert token.balance(vault.address) == AUDITOR_BOND
    again = refused_as(lambda: contracts.post(root, sign(root, contracts.domain)))
    return contracts.ledger.live() is None and again == "RootRejected"


def test_an_account_over_its_cap(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1, B: 3}
    root = posted(contracts, statement(0, points))
    contracts.prove(OverCap(A, POINTS_CAP + 1, Tree(points).proof(A)))
    assert is_rejected(contracts, root)
    assert contracts.ledger.next_epoch() == 0


def test_an_account_within_its_cap_convicts_nobody(contracts: Contracts) -> None:
    points = {A: POINTS_CAP, B: 3}
    posted(contracts, statement(0, points))
    proof = Tree(points).proof(A)
    assert refusal(contracts, OverCap(A, POINTS_CAP, proof)) == "WithinCap"
    assert refusal(contracts, OverCap(A, POINTS_CAP + 1, proof)) == "WrongLeaves"
    assert refusal(contracts, OverCap(B, 2**256 - 1, proof)) == "WrongLeaves"


@pytest.mark.parametrize("total", [9, 11])
def test_points_that_do_not_add_up(contracts: Contracts, total: int) -> None:
    points = {A: 7, B: 3}
    root = posted(contracts, replace(statement(0, points), total=total))
    contracts.prove(ContributionSum(leaves(points)))
    assert is_rejected(contracts, root)


def test_points_that_add_up_convict_nobody(contracts: Contracts) -> None:
    points = {A: 7, B: 3, address(STRANGER): 1}
    posted(contracts, statement(0, points))
    assert refusal(contracts, ContributionSum(leaves(points))) == "SumMatches"
    assert refusal(contracts, ContributionSum(leaves(points)[:2])) == "WrongLeaves"
    assert refusal(contracts, ContributionSum(())) == "WrongLeaves"
    first, second, third = leaves(points)
    assert (
        refusal(contracts, ContributionSum((second, first, third))) == "SumMatches"
    )  # a swap changes nothing
    assert refusal(contracts, CumulativeSum(leaves(points))) == "SumMatches"


def test_leaves_too_large_to_add_up(contracts: Contracts) -> None:
    points = {A: 2**256 - 1, B: 11}
    root = posted(contracts, replace(statement(0, {A: 7, B: 3}), contribution_root=Tree(points).root))
    contracts.prove(ContributionSum(leaves(points)))
    assert is_rejected(contracts, root)


def test_a_cumulative_tree_that_holds_more_than_was_granted(contracts: Contracts) -> None:
    first = {A: 7, B: 3}
    posted(contracts, statement(0, first))
    contracts.finalise()
    swollen = Tree({A: 8, B: 103})
    root = posted(contracts, replace(statement(1, {A: 1}, first), cumulative_root=swollen.root))
    contracts.prove(CumulativeSum(leaves(swollen.points)))
    assert is_rejected(contracts, root)
    assert contracts.ledger.next_epoch() == 1


def test_an_honest_cumulative_tree_convicts_nobody(contracts: Contracts) -> None:
    first = {A: 7, B: 3}
    posted(contracts, statement(0, first))
    contracts.finalise()
    posted(contracts, statement(1, {A: 1}, first))
    assert refusal(contracts, CumulativeSum(leaves({A: 8, B: 3}))) == "SumMatches"
    assert refusal(contracts, CumulativeSum(leaves(first))) == "WrongLeaves"


def test_an_account_that_loses_points(contracts: Contracts) -> None:
    first = {A: 7, B: 3}
    posted(contracts, statement(0, first))
    contracts.finalise()
    moved = Tree({A: 9, B: 2})
    root = posted(contracts, replace(statement(1, {A: 1}, first), cumulative_root=moved.root))
    before = Tree(first).proof(B)
    contracts.prove(CumulativeDecrease(B, 3, before, 2, moved.proof(B)))
    assert is_rejected(contracts, root)


def test_an_account_that_keeps_its_points_convicts_nobody(contracts: Contracts) -> None:
    first = {A: 7, B: 3}
    posted(contracts, statement(0, first))
    contracts.finalise()
    posted(contracts, statement(1, {A: 1}, first))
    before, after = Tree(first).proof(B), Tree({A: 8, B: 3}).proof(B)
    assert refusal(contracts, CumulativeDecrease(B, 3, before, 3, after)) == "NoDecrease"
    assert refusal(contracts, CumulativeDecrease(B, 4, before, 3, after)) == "WrongLeaves"
    assert refusal(contracts, CumulativeDecrease(B, 3, before, 2, after)) == "WrongLeaves"


def test_an_account_that_gets_what_another_earned(contracts: Contracts) -> None:
    first, second = {A: 7, B: 3}, {A: 1, B: 2}
    posted(contracts, statement(0, first))
    contracts.finalise()
    shifted = Tree({A: 9, B: 4})
    root = posted(contracts, replace(statement(1, second, first), cumulative_root=shifted.root))
    proof = Unearned(A, 9, shifted.proof(A), leaves(first), leaves(second))
    contracts.prove(proof)
    assert is_rejected(contracts, root)


def test_an_account_that_gets_what_it_earned_convicts_nobody(contracts: Contracts) -> None:
    first, second, after = {A: 7, B: 3}, {A: 1, B: 2}, Tree({A: 8, B: 5})
    posted(contracts, statement(0, first))
    contracts.finalise()
    posted(contracts, statement(1, second, first))
    honest = Unearned(A, 8, after.proof(A), leaves(first), leaves(second))
    assert refusal(contracts, honest) == "WasEarned"
    for forged in (
        replace(honest, before=()),
        replace(honest, points=leaves({B: 2})),
        replace(honest, before=leaves({A: 6, B: 4})),
        replace(honest, cumulative=9),
        replace(honest, points=(*leaves(second), (A, 1)), cumulative=10),
    ):
        assert refusal(contracts, forged) == "WrongLeaves"


def test_proofs_want_a_live_posting(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1}
    proofs: list[FraudProof] = [
        OverCap(A, POINTS_CAP + 1, ()),
        ContributionSum(leaves(points)),
        CumulativeSum(leaves(points)),
        CumulativeDecrease(A, 2, (), 1, ()),
        Unearned(A, 2, (), (), ()),
    ]
    assert [refusal(contracts, proof) for proof in proofs] == ["NothingLive"] * len(proofs)
    posted(contracts, statement(0, points))
    contracts.finalise()  # nobody watched
    assert [refusal(contracts, proof) for proof in proofs] == ["NothingLive"] * len(proofs)


def test_a_posting_can_be_challenged_until_it_is_final(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1}
    root = posted(contracts, statement(0, points))
    contracts.chain.now_seconds = contracts.chain.engine.head.timestamp + 10_000
    contracts.prove(OverCap(A, POINTS_CAP + 1, ()))
    assert is_rejected(contracts, root)


def test_another_root_can_follow_a_rejected_one(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1}
    posted(contracts, statement(0, points))
    contracts.prove(OverCap(A, POINTS_CAP + 1, ()))
    honest = statement(0, {A: POINTS_CAP})
    assert refused_as(lambda: posted(contracts, honest)) == "TooFewSignatures"
    for auditor in AUDITORS[:QUORUM]:
        contracts.bond(auditor)
    posted(contracts, honest)
    contracts.finalise()
    record = contracts.history.record(0)
    assert record is not None
    assert record.root == honest
    assert contracts.distributor.granted_points() == POINTS_CAP


def test_two_roots_of_one_epoch_cost_the_signer_alone(contracts: Contracts) -> None:
    a, b = make_root(3), make_root(3, archive=8)
    auditor = AUDITORS[0]
    contracts.prove(equivocation(contracts, a, b))
    stakes = [contracts.vault.bonded(address(other)) for other in AUDITORS]
    assert stakes == [0, AUDITOR_BOND, AUDITOR_BOND, AUDITOR_BOND]
    assert contracts.token.balance(B) == HALF
    assert contracts.token.balance(BURNED) == AUDITOR_BOND - HALF
    assert contracts.verifier.has_equivocated(address(auditor), 3, 0)
    contracts.bond(auditor)
    for again in (equivocation(contracts, b, a), equivocation(contracts, a, make_root(3, archive=9))):
        assert refusal(contracts, again) == "AlreadyProven"
    contracts.prove(equivocation(contracts, make_root(4), make_root(4, archive=8)))
    assert contracts.vault.bonded(address(auditor)) == 0


def test_a_live_posting_loses_the_signature_of_whoever_contradicts_it(contracts: Contracts) -> None:
    root, other = make_root(3), make_root(3, archive=8)
    contracts.post(root, sign(root, contracts.domain, AUDITORS))
    contracts.prove(equivocation(contracts, root, other, AUDITORS[3]))
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == root  # a quorum is left
    contracts.prove(equivocation(contracts, root, other, AUDITORS[1]))
    assert contracts.ledger.live() is None
    contracts.bond(AUDITORS[1])
    posted(contracts, root)  # the statement itself was proven nothing against
    contracts.finalise()
    assert contracts.ledger.next_epoch() == 4


def test_another_epochs_posting_keeps_its_signatures(contracts: Contracts) -> None:
    root = posted(contracts, make_root(3))
    for auditor in AUDITORS:
        contracts.prove(equivocation(contracts, make_root(4), make_root(4, archive=8), auditor))
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == root


def test_what_is_no_equivocation_convicts_nobody(contracts: Contracts) -> None:
    a, b, later = make_root(3), make_root(3, archive=8), make_root(4)
    two = equivocation(contracts, a, b)
    others = equivocation(contracts, a, b, AUDITORS[1])
    assert refusal(contracts, equivocation(contracts, a, a)) == "NoContradiction"
    assert refusal(contracts, equivocation(contracts, a, later)) == "NoContradiction"
    assert refusal(contracts, replace(two, signature_of_b=others.signature_of_b)) == "NoContradiction"
    assert refusal(contracts, replace(two, b=make_root(3, archive=9))) == "NoContradiction"
    assert refusal(contracts, equivocation(contracts, a, b, STRANGER)) == "NotAuditor"
    assert refusal(contracts, replace(two, signature_of_a=bytes(65))) == "ECDSAInvalidSignature"


def test_a_bond_on_its_way_out_is_slashed_too(contracts: Contracts) -> None:
    root, vault = make_root(3), contracts.vault
    posted(contracts, root)
    contracts.chain.send(AUDITORS[0], vault.address, vault.request_exit(AUDITOR_BOND))
    contracts.prove(equivocation(contracts, root, make_root(3, archive=8)))
    assert vault.stake(address(AUDITORS[0])) == Stake(0, 0, 0)
    assert contracts.token.balance(B) == HALF
    assert refused_as(lambda: contracts.chain.send(AUDITORS[0], vault.address, vault.withdraw())) == (
        "NothingExiting"
    )


def test_a_sum_over_a_thousand_accounts_fits_into_a_block(contracts: Contracts) -> None:
    points = {Account((2**159 + number).to_bytes(20, "big")): number % POINTS_CAP for number in range(1_024)}
    root = replace(statement(0, points), total=5)
    posted(contracts, root)
    gas = contracts.prove(ContributionSum(leaves(points))).gas_used
    print("\nsum over 1,024 accounts:", gas)
    assert gas <= 3_000_000
    assert is_rejected(contracts, root)


accounts = st.binary(min_size=20, max_size=20).map(Account)


@given(points=st.dictionaries(accounts, st.integers(1, POINTS_CAP), min_size=1, max_size=33))
@settings(max_examples=15)
def test_contract_and_protocol_root_the_same_leaves(shared: Contracts, points: dict[Account, int]) -> None:
    """An honest posting of any shape is recognised, leaf for leaf, and stands."""
    epoch = shared.ledger.next_epoch()
    root = replace(statement(epoch, points), base_root=shared.base_root)
    whole = merkle.root([merkle.leaf(account, count) for account, count in leaves(points)])
    assert root.contribution_root == Digest(whole)
    posted(shared, root)
    assert refusal(shared, ContributionSum(leaves(points))) == "SumMatches"
    shared.finalise()
