"""One pass of a watchtower performs all of its duties, even if the chain does not answer one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support.auditor_harness import CROWD, FOUR_AUDITORS
from support.contributions import sealed_by, tally_of
from support.ledger import (
    CHALLENGE_SECONDS,
    DEPLOYER,
    POINTS_CAP,
    Contracts,
    found,
    keys,
    settled,
    sign,
)

from sapo_client.ledger.errors import LedgerUnavailable, NotYet
from sapo_client.ledger.leaf_questions import LeafQuestions
from sapo_client.ledger.service import LedgerClient
from sapo_client.node.auditing.watchtower import LedgerWatchtower, WatchtowerParts
from sapo_client.observe.events import EventLog, read_events
from sapo_protocol import secp256k1
from sapo_protocol.contributions import Approval, Proposal, Share, Tally
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import parse_contribution

AUTHOR, NODE = FOUR_AUDITORS[0], CROWD[0]
EARNED = {NODE.account: 3, CROWD[1].account: 1}


class Witness:
    """A node's watchtower over real contracts, and what the node holds of the auditors' messages."""

    def __init__(self, folder: Path) -> None:
        self.contracts: Contracts = found(folder / "chain.sqlite")
        self.manifest = self.contracts.manifest()
        self.contributions = ContributionStore(folder / "contributions.sqlite", self.manifest.swarm_id)
        self.ledger = LedgerClient(
            manifest=self.manifest,
            account=keys(NODE.number),
            rpc_urls=[self.contracts.chain.url],
            outbox_path=folder / "outbox.sqlite",
            clock=lambda: self.contracts.chain.now_seconds,
        )
        self._events = folder / "events.jsonl"
        self._log = EventLog(self._events)
        self.tower = LedgerWatchtower(
            WatchtowerParts(
                manifest=self.manifest,
                account=NODE.account,
                auditors=self.contracts.ledger.auditors()[0].of,
                ledger=self.ledger,
                contributions=self.contributions,
                events=self._log,
                clock=lambda: self.contracts.chain.now_seconds,
            )
        )

    def close(self) -> None:
        """Close what was opened."""
        self.ledger.close()
        self._log.close()
        self.contracts.chain.close()

    def hold(self, message: Tally | Proposal | Approval) -> ContentId:
        """Store an auditor's message; return its content id."""
        author = next(auditor for auditor in FOUR_AUDITORS if auditor.account == message.account)
        data = sealed_by(author, self.manifest, message)
        envelope = parse_envelope(data, self.manifest.swarm_id)
        content = parse_contribution(envelope)
        self.contributions.add(envelope.content_id, envelope.kind, content, data)
        return envelope.content_id

    def propose(self, epoch: int, shares: Sequence[Share], tallies: Sequence[ContentId]) -> ContentId:
        """Store a proposal of the first auditor; return its content id."""
        return self.hold(
            Proposal(
                node=AUTHOR.node,
                account=AUTHOR.account,
                epoch=epoch,
                tallies=tuple(sorted(tallies)),
                shares=tuple(shares),
            )
        )

    def post_truth(self, epoch: int, had: Mapping[Account, int]) -> None:
        """Post an epoch that this node explains."""
        tallies = [tally_of(auditor, epoch, EARNED) for auditor in FOUR_AUDITORS[:3]]
        self._post(self.propose(epoch, settled(tallies, had), [self.hold(tally) for tally in tallies]))

    def post_lie(self, epoch: int, had: Mapping[Account, int]) -> None:
        """Post an epoch in which an account has more than its cap."""
        most = POINTS_CAP + 1
        shares = [Share(account, most, had.get(account, 0) + most) for account in (NODE.account,)]
        kept = [Share(account, 0, count) for account, count in had.items() if account != NODE.account]
        everybody = sorted([*shares, *kept], key=lambda share: share.account)
        self._post(self.propose(epoch, everybody, [ContentId(bytes(32))]))

    def _post(self, proposal: ContentId) -> None:
        root = self.contributions.epoch_root(proposal)
        assert root is not None
        root = replace(root, base_root=self.contracts.base_root)
        self.contracts.post(root, sign(root, self.contracts.domain))

    def wait(self, seconds: float) -> None:
        """Let seconds pass since the newest block."""
        chain = self.contracts.chain
        chain.now_seconds = chain.engine.head.timestamp + seconds

    async def queued(self) -> dict[str, int]:
        """Return how many requests of each kind wait in the outbox."""
        counts = {kind: await self.ledger.pending(kind) for kind in ("challenge", "finalise", "question")}
        return {kind: count for kind, count in counts.items() if count}

    def said(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a name, without when they were written."""
        events = [event for event in read_events(self._events) if event["event"] == name]
        return [{key: value for key, value in event.items() if key in ("epoch", "error")} for event in events]


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
        (0, {"challenge": 2}),
        (CHALLENGE_SECONDS - 1, {"challenge": 2}),
        (CHALLENGE_SECONDS, {"question": 1}),
    ],
)
async def test_a_lapsed_question_is_refunded_without_a_recall(
    witness: Witness, seconds: int, queued: dict[str, int]
) -> None:
    """Nobody shows the leaves of the last final epoch: it is recalled in time, or not at all."""
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


def sign_twice(witness: Witness) -> None:
    """Hold two proposals of one turn that one auditor has signed."""
    for points in (2, 3):
        shares = (Share(NODE.account, points, points),)
        content_id = witness.propose(99, shares, [ContentId(bytes(32))])
        proposal = witness.contributions.proposal(content_id)
        assert proposal is not None
        digest = proposal.approval(content_id).digest(witness.manifest.ledger_domain)
        witness.hold(
            Approval(
                node=AUTHOR.node,
                account=AUTHOR.account,
                epoch=99,
                proposal=content_id,
                signature=secp256k1.sign(AUTHOR.secret, digest),
            )
        )


@pytest.mark.parametrize("step", ["has_equivocated", "challenge"])
async def test_two_signatures_are_remembered_during_an_outage(
    witness: Witness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The endpoint is away when the node asks whether they were punished, or what it has to send."""
    sign_twice(witness)

    async def away(*_: object) -> NoReturn:
        raise LedgerUnavailable(["http://node"], "time-out")

    with monkeypatch.context() as outage:
        outage.setattr(witness.ledger, step, away)
        with pytest.raises(LedgerUnavailable):
            await witness.tower.look()
    assert await witness.queued() == {}
    for _ in range(2):
        await witness.tower.look()
        assert await witness.queued() == {"challenge": 1}
    assert witness.said("challenge") == [{"epoch": 99}], "told once"
