"""Questions about leaves that can be answered, on the embedded chain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_utils import keccak
from support.ledger import (
    ALICE,
    BOB,
    CHALLENGE_SECONDS,
    DEPLOYER,
    POINTS_CAP,
    TOKENS_PER_POINT,
    Contracts,
    Tree,
    address,
    ask,
    make_root,
    refused_as,
    sign,
    sum_of,
)

from sapo_client.ledger.fraud import AccountPlaces, OverCap, posting_name
from sapo_client.ledger.records import LeafQuestion
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.merkle import EMPTY_ROOT

A, B = address(ALICE), address(BOB)
BOND = POINTS_CAP * TOKENS_PER_POINT


def posted(
    contracts: Contracts, epoch: int, points: dict[Account, int], after: dict[Account, int]
) -> tuple[EpochRoot, Digest]:
    """Post a statement whose sums are right; return it and the posting's name."""
    root = make_root(epoch, base_root=contracts.base_root, total=sum(points.values()))
    root = replace(root, contribution_root=Tree(points).root, cumulative_root=Tree(after).root)
    contracts.post(root, sign(root, contracts.domain))
    live = contracts.ledger.live()
    assert live is not None
    return root, posting_name(root.digest(contracts.domain), live.posted_at_seconds)


def places(
    account: Account, before: dict[Account, int], points: dict[Account, int], after: dict[Account, int]
) -> AccountPlaces:
    return AccountPlaces(account, *(Tree(values).place(account) for values in (before, points, after)))


def test_accounts_that_ask_about_hidden_leaves_lose_nothing(contracts: Contracts) -> None:
    """Ten unclaimed epochs and a posting with a total of 0 that gives them all to the liars' account."""
    had = {A: 10 * POINTS_CAP}
    contracts.settle(9, had)
    stolen = {B: 10 * POINTS_CAP}
    root, posting = posted(contracts, 10, {}, stolen)
    assert sum_of(root.cumulative_root) == sum_of(root.base_root), "no sum is wrong"
    deadline = ask(contracts, A)
    asker = LeafQuestion(address(DEPLOYER), deadline)
    assert contracts.verifier.questions(posting) == {A: asker}
    true = places(A, had, {}, stolen)  # what the leaves say is no answer
    answer = contracts.verifier.answer(true)
    assert refused_as(lambda: contracts.chain.send(BOB, contracts.verifier.address, answer)) == "NoAnswer"
    contracts.chain.now_seconds = deadline
    assert refused_as(contracts.finalise) == "QuestionsOpen"
    before = contracts.token.balance(address(DEPLOYER))
    contracts.chain.send(BOB, contracts.verifier.address, contracts.verifier.prove_hidden(A))
    assert contracts.ledger.live() is None
    assert contracts.token.balance(address(DEPLOYER)) - before == BOND
    assert refused_as(lambda: contracts.post(root, sign(root, contracts.domain))) == "RootRejected"
    tree = Tree(had)
    contracts.claim(A, had[A], tree.proof(A))
    assert contracts.distributor.claimed(A) == had[A]


@pytest.mark.parametrize("epochs", [1, 2])
def test_an_answer_earns_the_question_bond_and_unblocks_the_posting(
    contracts: Contracts, epochs: int
) -> None:
    had = {A: 7, B: 3} if epochs == 2 else {}
    if had:
        contracts.settle(0, had)
    points = {A: 1, B: 2}
    after = {account: had.get(account, 0) + points[account] for account in points}
    _, posting = posted(contracts, 1, points, after)
    stranger = Account(b"\x77" * 20)
    for account in (A, stranger):  # an account that has nothing is shown, too
        ask(contracts, account)
        contracts.chain.send(
            BOB, contracts.verifier.address, contracts.verifier.answer(places(account, had, points, after))
        )
    assert contracts.verifier.questions(posting) == {}
    assert contracts.token.balance(B) == 2 * BOND
    contracts.finalise()
    assert contracts.ledger.next_epoch() == 2


def gas_of_reading(contracts: Contracts, posting: Digest) -> int:
    """Return the gas that a call takes which reads the open questions about a posting."""
    data = keccak(text="openQuestions(bytes32)")[:4] + posting
    call = {"to": str(contracts.verifier.address), "data": "0x" + data.hex()}
    return int(contracts.chain.request("eth_estimateGas", call)["result"], 16)


def test_a_question_answered_by_its_asker_is_removed(contracts: Contracts) -> None:
    """Every node reads the open questions, and endpoints bound the gas of a call."""
    points = {A: 1, B: 2}
    _, posting = posted(contracts, 0, points, points)
    before, shown = gas_of_reading(contracts, posting), places(A, {}, points, points)
    for _ in range(3):
        ask(contracts, A)
        assert gas_of_reading(contracts, posting) > before
        contracts.chain.send(DEPLOYER, contracts.verifier.address, contracts.verifier.answer(shown))
    assert contracts.verifier.questions(posting) == {}
    assert gas_of_reading(contracts, posting) == before


def test_a_question_about_a_rejected_posting_is_refunded(contracts: Contracts) -> None:
    points = {A: POINTS_CAP + 1}
    _, posting = posted(contracts, 0, points, points)
    ask(contracts, A)
    refund = contracts.verifier.refund(posting, A)
    assert refused_as(lambda: contracts.chain.send(BOB, contracts.verifier.address, refund)) == "NoAnswer"
    contracts.prove(OverCap(A, Tree(points).place(A)))
    before = contracts.token.balance(address(DEPLOYER))
    contracts.chain.send(BOB, contracts.verifier.address, refund)
    assert contracts.token.balance(address(DEPLOYER)) - before == BOND
    assert contracts.base_root == EMPTY_ROOT


def test_a_question_about_a_final_epoch_can_be_closed_after_two_answer_periods(contracts: Contracts) -> None:
    contracts.settle(0, {A: 7})
    chain, token, verifier = contracts.chain, contracts.token, contracts.verifier
    [final] = contracts.history.newest(1)
    chain.send(DEPLOYER, token.address, token.approve(verifier.address, BOND))
    before = token.balance(address(DEPLOYER))
    chain.send(DEPLOYER, verifier.address, verifier.ask_final([final], A))
    late = chain.engine.head.timestamp + 2 * verifier.answer_seconds()
    recall, refund = verifier.recall([final], A), verifier.refund(final.name, A)
    chain.now_seconds = late - 1
    assert refused_as(lambda: chain.send(BOB, verifier.address, refund)) == "NoAnswer"
    chain.now_seconds = late
    assert refused_as(lambda: chain.send(BOB, verifier.address, recall)) == "TooLateToRecall"
    chain.send(BOB, verifier.address, refund)
    assert (verifier.questions(final.name), token.balance(address(DEPLOYER))) == ({}, before)
    assert contracts.base_root == Tree({A: 7}).root


def test_questions_are_accepted_only_within_the_challenge_window(contracts: Contracts) -> None:
    posted(contracts, 0, {A: 1}, {A: 1})
    contracts.chain.now_seconds = contracts.chain.engine.head.timestamp + CHALLENGE_SECONDS
    data = contracts.verifier.ask(A)
    late = refused_as(lambda: contracts.chain.send(DEPLOYER, contracts.verifier.address, data))
    assert late == "TooLateToAsk"
