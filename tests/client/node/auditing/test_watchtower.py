"""One pass of a watchtower performs all of its duties, even if the chain does not answer one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from support.auditor_harness import CROWD
from support.ledger import CHALLENGE_SECONDS, DEPLOYER, make_root, sign
from support.witness import EARNED, NODE, Witness

from sapo_client.ledger.errors import LedgerUnavailable, NotYet
from sapo_client.ledger.leaf_questions import LeafQuestions


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    opened = Witness(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No endpoint gives out the list of questions about anything: it costs more gas than they allow."""

    async def refuse(*_: object) -> NoReturn:
        raise NotYet("the chain refuses to say: out of gas", hint="try another RPC address")

    monkeypatch.setattr(LeafQuestions, "of_final", refuse)
    monkeypatch.setattr(LeafQuestions, "of_live", refuse)


async def test_unreadable_questions_prevent_no_challenge(witness: Witness, unreadable: None) -> None:
    witness.post_truth(98, {})
    witness.contracts.finalise()
    witness.post_lie(99, EARNED)
    witness.wait(CHALLENGE_SECONDS / 2)
    await witness.tower.look()
    assert await witness.queued() == {"challenge": 1}
    assert witness.said("challenge") == [{"epoch": 99}]
    await witness.tower.look()
    refusal = "the chain refuses to say: out of gas"
    assert witness.said("questions_unread") == [{"epoch": 98, "error": refusal}], "once for each epoch"


async def test_unreadable_questions_do_not_delay_a_true_posting(witness: Witness, unreadable: None) -> None:
    """The contract itself refuses to make final what a question is open about."""
    witness.post_truth(98, {})
    witness.contracts.finalise()
    witness.post_truth(99, EARNED)
    witness.wait(30 * CHALLENGE_SECONDS)  # whosever turn it is to pay
    await witness.tower.look()
    assert await witness.queued() == {"finalise": 1}
    assert [event["epoch"] for event in witness.said("questions_unread")] == [98, 99]


async def test_a_posting_that_a_node_cannot_explain_is_left_to_others(witness: Witness) -> None:
    """No message about it has arrived: it is neither proved false nor made final, however long it waits."""
    root = make_root(99)
    witness.contracts.post(root, sign(root, witness.contracts.domain))
    for _ in range(2):
        witness.wait(30 * CHALLENGE_SECONDS)
        await witness.tower.look()
        assert await witness.queued() == {}
    assert witness.said("posting_doubted") == [{"epoch": 99}], "once"


async def test_an_outage_in_one_task_is_reported_after_the_others_have_run(
    witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> NoReturn:
        raise LedgerUnavailable(["http://node"], "time-out")

    monkeypatch.setattr(LeafQuestions, "newest_final", away)
    witness.post_lie(99, {})
    witness.wait(CHALLENGE_SECONDS / 2)
    with pytest.raises(LedgerUnavailable):
        await witness.tower.look()
    assert await witness.queued() == {"challenge": 1}


@pytest.mark.parametrize(
    ("seconds", "queued"),
    [
        (-1, {}),
        (0, {}),
        (CHALLENGE_SECONDS - 1, {"challenge": 1}),
        (CHALLENGE_SECONDS, {"question": 1}),
    ],
)
async def test_a_lapsed_question_is_refunded_without_a_recall(
    witness: Witness, seconds: int, queued: dict[str, int]
) -> None:
    """Nobody shows the leaves of the last final epoch: it is recalled in time, or not at all.

    It is recalled once, whatever the number of questions, and first by those whose turn comes earlier.
    """
    contracts, chain, token = witness.contracts, witness.contracts.chain, witness.contracts.token
    verifier = contracts.verifier
    contracts.settle(98, {NODE.account: 3})
    [final] = contracts.history.newest(1)
    chain.send(DEPLOYER, token.address, token.approve(verifier.address, 2 * verifier.question_bond()))
    for account in (NODE.account, CROWD[1].account):
        chain.send(DEPLOYER, verifier.address, verifier.ask_final([final], account))
    last = max(question.deadline_seconds for question in verifier.questions(final.name).values())
    chain.now_seconds = last + seconds
    await witness.tower.look()
    assert await witness.queued() == queued


@pytest.mark.parametrize("step", ["has_equivocated", "challenge"])
async def test_two_signatures_are_remembered_during_an_outage(
    witness: Witness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The endpoint is away when the node asks whether they were punished, or what it has to send."""
    witness.sign_twice(99)

    async def away(*_: object) -> NoReturn:
        raise LedgerUnavailable(["http://node"], "time-out")

    with monkeypatch.context() as outage:
        outage.setattr(witness.ledger, step, away)
        await witness.tower.look()
        witness.wait(CHALLENGE_SECONDS / 2)  # whosever turn it is to pay
        with pytest.raises(LedgerUnavailable):
            await witness.tower.look()
    assert await witness.queued() == {}
    for _ in range(2):
        await witness.tower.look()
        assert await witness.queued() == {"challenge": 1}
    assert witness.said("challenge") == [{"epoch": 99}], "told once"
