"""The rules of ``FraudVerifier``, on the embedded chain: valid proofs with penalties, and invalid ones."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256

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
    deploy_contracts,
    make_root,
    refused_as,
    sign,
    sum_of,
    with_sum,
)

from sapo_client.ledger.fraud import (
    AccountPlaces,
    Balance,
    Equivocation,
    FraudProof,
    OverCap,
)
from sapo_client.ledger.records import Stake
from sapo_protocol import merkle
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.merkle import Place

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


def places(
    account: Account, before: dict[Account, int], points: dict[Account, int], after: dict[Account, int]
) -> AccountPlaces:
    """An account's places in the trees over these values."""
    return AccountPlaces(account, *(Tree(values).place(account) for values in (before, points, after)))


def equivocation(
    contracts: Contracts, a: EpochRoot, b: EpochRoot, signer: LocalAccount = AUDITORS[0]
) -> Equivocation:
    (of_a,), (of_b,) = (sign(root, contracts.domain, [signer]) for root in (a, b))
    return Equivocation(0, a, b, of_a, of_b)


def refusal(contracts: Contracts, proof: FraudProof) -> str | None:
    return refused_as(lambda: contracts.prove(proof))


def sent(contracts: Contracts, data: bytes) -> int:
    """The gas of a call of the verifier."""
    return contracts.chain.send(BOB, contracts.verifier.address, data).gas_used


def neighbours(account: Account) -> list[Account]:
    """Accounts that part from one at each of its bits, the last one first."""
    number = int.from_bytes(account, "big")
    return [Account((number ^ 1 << bit).to_bytes(20, "big")) for bit in range(160)]


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
    contracts.prove(OverCap(A, Tree(points).place(A)))
    assert is_rejected(contracts, root)
    assert contracts.ledger.next_epoch() == 0


def test_an_account_within_its_cap_is_no_proof(contracts: Contracts) -> None:
    points = {A: POINTS_CAP, B: 3}
    posted(contracts, statement(0, points))
    place = Tree(points).place(A)
    assert refusal(contracts, OverCap(A, place)) == "WithinCap"
    for forged in (
        replace(place, value=POINTS_CAP + 1),
        replace(place, value=2**64 - 1),
        replace(place, proof=()),
        replace(place, proof=(*place.proof, Digest(bytes(32)))),
        replace(Tree(points).place(B), value=POINTS_CAP + 1),
    ):
        assert refusal(contracts, OverCap(A, forged)) in ("WrongLeaves", "BadPath")
    # a value of more bits than a leaf holds, a path longer than an account
    assert refusal(contracts, OverCap(A, replace(place, value=POINTS_CAP + 2**64))) == "ValueTooLarge"
    assert refusal(contracts, OverCap(A, replace(place, proof=(Digest(bytes(32)),) * 161))) == "BadPath"


@pytest.mark.parametrize("wrong", [-1, 1, 2**64 - 1])
def test_roots_that_end_with_another_sum_are_not_posted(contracts: Contracts, wrong: int) -> None:
    first = {A: 7, B: 3}
    posted(contracts, statement(0, first))
    contracts.finalise()
    honest = statement(1, {A: 1}, first)
    for root in (
        replace(honest, total=(honest.total + wrong) % 2**32),
        replace(honest, contribution_root=Tree({A: (1 + wrong) % 2**64}).root),
        replace(honest, cumulative_root=with_sum(honest.cumulative_root, (11 + wrong) % 2**64)),
        replace(honest, cumulative_root=Tree({A: (8 + wrong) % 2**64, B: 3}).root),
    ):
        assert refused_as(partial(posted, contracts, root)) in ("WrongSum", "OverBudget")
    posted(contracts, honest)


def test_leaves_whose_sum_overflows_have_no_valid_path(contracts: Contracts) -> None:
    """In 64 bits they add up to the total. Nobody has a place in such a tree, so nobody can claim from it."""
    points = {A: 2**64 - 1, B: 11}
    tree = Tree(points)
    assert sum_of(tree.root) == 10
    posted(contracts, replace(statement(0, points), total=10))
    for account in points:
        assert refusal(contracts, OverCap(account, tree.place(account))) == "BadPath"
    contracts.finalise()
    assert refused_as(lambda: contracts.claim(B, 11, tree.proof(B))) == "BadPath"


def test_an_account_that_loses_points(contracts: Contracts) -> None:
    first = {A: 7, B: 3}
    posted(contracts, statement(0, first))
    contracts.finalise()
    moved = Tree({A: 9, B: 2})
    root = posted(contracts, replace(statement(1, {A: 1}, first), cumulative_root=moved.root))
    contracts.prove(Balance(places(B, first, {A: 1}, moved.points)))
    assert is_rejected(contracts, root)


def test_an_account_that_is_dropped(contracts: Contracts) -> None:
    first, after = {A: 7, B: 3}, {A: 11}
    posted(contracts, statement(0, first))
    contracts.finalise()
    root = posted(contracts, replace(statement(1, {A: 1}, first), cumulative_root=Tree(after).root))
    contracts.prove(Balance(places(B, first, {A: 1}, after)))
    assert is_rejected(contracts, root)


def test_an_account_that_gets_what_another_earned(contracts: Contracts) -> None:
    first, second, shifted = {A: 7, B: 3}, {A: 1, B: 2}, {A: 9, B: 4}
    posted(contracts, statement(0, first))
    contracts.finalise()
    root = posted(contracts, replace(statement(1, second, first), cumulative_root=Tree(shifted).root))
    contracts.prove(Balance(places(A, first, second, shifted)))
    assert is_rejected(contracts, root)


def test_an_account_with_its_earned_balance_is_no_proof(contracts: Contracts) -> None:
    first, second, after = {A: 7, B: 3}, {A: 1, B: 2}, {A: 8, B: 5}
    posted(contracts, statement(0, first))
    contracts.finalise()
    posted(contracts, statement(1, second, first))
    for account in (A, B, address(STRANGER), Account(bytes(20)), Account(b"\xff" * 20)):
        honest = places(account, first, second, after)
        assert refusal(contracts, Balance(honest)) == "Balanced"
        nobody = Place(Account(bytes(20)), 0, honest.before.proof)
        for forged in (
            replace(honest, before=nobody),
            replace(honest, points=Tree({B: 2}).place(account)),
            replace(honest, before=Tree({A: 6, B: 4}).place(account)),
            replace(honest, after=replace(honest.after, value=honest.after.value + 1)),
            replace(honest, before=Tree(first).place(A if account != A else B)),
        ):
            if forged != honest:
                assert refusal(contracts, Balance(forged)) in ("WrongLeaves", "BadPath", "Balanced")
    absent = replace(Tree(first).place(A), holder=Account(bytes(20)))
    forged = replace(places(A, first, second, after), before=absent)
    assert refusal(contracts, Balance(forged)) == "BadPath"  # nobody's leaf has no value


def test_without_a_live_posting_proofs_are_refused(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1}
    place = Tree(points).place(A)
    proofs: list[FraudProof] = [
        OverCap(A, place),
        Balance(AccountPlaces(A, place, place, place)),
    ]
    assert [refusal(contracts, proof) for proof in proofs] == ["NothingLive"] * len(proofs)
    posted(contracts, statement(0, points))
    contracts.finalise()  # nobody watched
    assert [refusal(contracts, proof) for proof in proofs] == ["NothingLive"] * len(proofs)


def test_a_posting_can_be_challenged_until_it_is_final(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1}
    root = posted(contracts, statement(0, points))
    contracts.chain.now_seconds = contracts.chain.engine.head.timestamp + 10_000
    contracts.prove(OverCap(A, Tree(points).place(A)))
    assert is_rejected(contracts, root)


def test_another_root_can_follow_a_rejected_one(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1}
    posted(contracts, statement(0, points))
    contracts.prove(OverCap(A, Tree(points).place(A)))
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


def test_signing_two_roots_of_one_epoch_slashes_only_the_signer(contracts: Contracts) -> None:
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


def test_a_live_posting_loses_the_signature_of_an_equivocating_auditor(contracts: Contracts) -> None:
    root, other = make_root(3), make_root(3, archive=8)
    contracts.post(root, sign(root, contracts.domain, AUDITORS))
    contracts.prove(equivocation(contracts, root, other, AUDITORS[3]))
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == root  # a quorum is left
    contracts.prove(equivocation(contracts, root, other, AUDITORS[1]))
    left = contracts.ledger.live()
    assert left == replace(live, signers=0b0101), "it waits for other signatures"
    assert refused_as(contracts.finalise) == "QuestionsOpen"
    contracts.bond(AUDITORS[1])
    posted(contracts, root)  # the statement itself was proven nothing against
    assert contracts.ledger.live() == replace(live, signers=0b0111)
    contracts.finalise()
    assert contracts.ledger.next_epoch() == 4


def test_another_epochs_posting_keeps_its_signatures(contracts: Contracts) -> None:
    root = posted(contracts, make_root(3))
    for auditor in AUDITORS:
        contracts.prove(equivocation(contracts, make_root(4), make_root(4, archive=8), auditor))
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == root


def test_without_an_equivocation_there_is_no_proof(contracts: Contracts) -> None:
    a, b, later = make_root(3), make_root(3, archive=8), make_root(4)
    two = equivocation(contracts, a, b)
    others = equivocation(contracts, a, b, AUDITORS[1])
    assert refusal(contracts, equivocation(contracts, a, a)) == "NoContradiction"
    assert refusal(contracts, equivocation(contracts, a, later)) == "NoContradiction"
    assert refusal(contracts, replace(two, signature_of_b=others.signature_of_b)) == "NoContradiction"
    assert refusal(contracts, replace(two, b=make_root(3, archive=9))) == "NoContradiction"
    assert refusal(contracts, equivocation(contracts, a, b, STRANGER)) == "NotAuditor"
    assert refusal(contracts, replace(two, signature_of_a=bytes(65))) == "ECDSAInvalidSignature"


def test_an_exiting_bond_is_slashed(contracts: Contracts) -> None:
    root, vault = make_root(3), contracts.vault
    posted(contracts, root)
    contracts.chain.send(AUDITORS[0], vault.address, vault.request_exit(AUDITOR_BOND))
    contracts.prove(equivocation(contracts, root, make_root(3, archive=8)))
    assert vault.stake(address(AUDITORS[0])) == Stake(0, 0, 0)
    assert contracts.token.balance(B) == HALF
    assert refused_as(lambda: contracts.chain.send(AUDITORS[0], vault.address, vault.withdraw())) == (
        "NothingExiting"
    )


@pytest.mark.parametrize("count", [1_025, pytest.param(100_000, marks=pytest.mark.long)])
def test_every_proof_is_small_for_any_number_of_accounts(contracts: Contracts, count: int) -> None:
    """Today's price of every challenge; before, one account more than 1,024 had none at all."""
    before = {Account(sha256(b"%d" % number).digest()[:20]): 3 for number in range(count)}
    contracts = deploy_contracts(contracts.chain, epoch_budget_points=2**32 - 1)
    first = {**before, A: 5}
    posted(contracts, statement(0, first))
    contracts.finalise()
    points, greedy = dict.fromkeys(first, 1), dict.fromkeys(first, 1) | {A: 17}
    after = {account: had + 1 for account, had in first.items()}
    shifted = {**after, A: after[A] + 2, next(iter(before)): 2}
    over = statement(1, greedy, first)
    balance = replace(statement(1, points, first), cumulative_root=Tree(shifted).root)
    for root, proof in (
        (over, OverCap(A, Tree(greedy).place(A))),
        (balance, Balance(places(A, first, points, shifted))),
    ):
        posted(contracts, root)
        size = len(contracts.verifier.prove(proof))
        gas = contracts.prove(proof).gas_used
        print(f"\n{proof.FUNCTION} among {count:,} accounts: {size:,} bytes, {gas:,} gas")
        assert size <= 10_000
        assert gas <= 500_000
        assert contracts.ledger.live() is None
        for auditor in AUDITORS[:QUORUM]:
            contracts.bond(auditor)


def test_the_length_of_transactions_is_bounded_for_any_trees(contracts: Contracts) -> None:
    """An account whose neighbours part from it at every single bit, in all three trees: 160 words each.

    Nobody has the keys of such neighbours, but a quorum of liars needs none: it grants points to any address.
    Each has so many that the sums of the words are long, too. In one transaction the proof was 15,876 bytes
    and 541,080 gas.
    """
    contracts = deploy_contracts(contracts.chain, epoch_budget_points=2**32 - 1)
    around = neighbours(A)
    first, points = dict.fromkeys([A, *around], 0xFDCBA9), dict.fromkeys([A, *around], 0xEDCBA9)
    after = {account: first[account] + points[account] for account in first}
    after |= {A: after[A] - 1, around[0]: after[around[0]] + 1}
    posted(contracts, statement(0, first))
    contracts.finalise()
    posted(contracts, replace(statement(1, points, first), cumulative_root=Tree(after).root))
    proof = Balance(places(A, first, points, after))
    assert [len(place.proof) for place in (proof.places.before, proof.places.points, proof.places.after)] == [
        160
    ] * 3
    assert refused_as(lambda: sent(contracts, contracts.verifier.prove(proof))) == "WrongLeaves"
    steps = [*map(contracts.verifier.record, proof.recordings()), contracts.verifier.prove(proof)]
    costs = [(len(data), sent(contracts, data)) for data in steps]
    print(f"\nproveBalance with three full places, bytes and gas: {costs}")
    assert contracts.ledger.live() is None
    assert all(size <= 10_000 and gas <= 500_000 for size, gas in costs)
    for root, values in ((proof.recordings()[0].root, first), (proof.recordings()[1].root, points)):
        assert contracts.verifier.recorded_value(root, A) == values[A]
        assert contracts.verifier.recorded_value(root, B) is None


@pytest.mark.parametrize(
    ("lengths", "recorded", "shown"),
    [
        ((160, 160, 160), [160, 160], [160]),
        ((20, 160, 160), [160], [20, 160]),
        ((160, 60, 61), [160], [60, 61]),
        ((160, 60, 60), [], [160, 60, 60]),
    ],
)
def test_paths_too_long_for_one_transaction_are_recorded_first(
    contracts: Contracts, lengths: Sequence[int], recorded: Sequence[int], shown: Sequence[int]
) -> None:
    """The longest transaction is an answer about a final epoch, whose record is sent along."""
    word = Digest(b"\xee" * 24 + bytes(8))
    ways = [Place(A, value, (word,) * length) for value, length in enumerate(lengths, 1)]
    given = AccountPlaces(A, *ways)
    assert [len(recording.place.proof) for recording in given.recordings()] == recorded
    assert [len(place[2]) for place in given.arguments()[1:] if place[2]] == shown
    contracts.settle(0, {A: 1})
    [final] = contracts.history.newest(1)
    assert len(contracts.verifier.answer_final(final, given)) <= 10_000


SHARED_POINTS: dict[Account, int] = {}
"""What the shared ledger has granted: examples are settled on top of one another."""
accounts = st.binary(min_size=20, max_size=20).filter(any).map(Account)
"""But zero, which stands for a place without a leaf: nobody signs with it, and no token can be sent to it."""


@given(points=st.dictionaries(accounts, st.integers(1, POINTS_CAP), min_size=1, max_size=33), data=st.data())
@settings(max_examples=15)
def test_contract_and_protocol_compute_the_same_root(
    shared: Contracts, points: dict[Account, int], data: st.DataObject
) -> None:
    """An honest posting of any shape is recognised, leaf for leaf and gap for gap, and stands."""
    epoch = shared.ledger.next_epoch()
    root = statement(epoch, points, SHARED_POINTS)
    assert root.base_root == shared.base_root
    assert root.contribution_root == merkle.sum_root(sorted(points.items()))
    inside, anyone = data.draw(st.sampled_from(sorted(points))), data.draw(accounts)
    posted(shared, root)
    for account in (inside, anyone):
        assert refusal(shared, OverCap(account, Tree(points).place(account))) == "WithinCap"
    shared.finalise()
    SHARED_POINTS.update({account: SHARED_POINTS.get(account, 0) + had for account, had in points.items()})
