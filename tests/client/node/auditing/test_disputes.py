"""Proofs from stored contributions: the contract accepts each kind, and none against a correct posting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.auditor_harness import AUDITORS, CROWD
from support.ledger import POINTS_CAP, Contracts, found, keys, refused_as, sign
from support.swarm import make_manifest

from sapo_client.ledger.fraud import Balance, FraudProof, OverCap
from sapo_client.ledger.records import EpochRecord
from sapo_client.ledger.service import LedgerClient
from sapo_client.node.auditing.disputes import Dispute, find_fraud, posted_trees
from sapo_client.node.auditing.watchtower import LedgerWatchtower, WatchtowerParts
from sapo_client.observe.events import EventLog, read_events
from sapo_protocol.contributions import Proposal, Share
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.envelope import Kind, parse_envelope, seal
from sapo_protocol.identifiers import ContentId
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import parse_contribution

A, B, C, D = sorted(identity.account for identity in CROWD)
FIRST = (Share(A, 3, 3), Share(B, 1, 1), Share(C, 2, 2))
SECOND = (Share(A, 1, 4), Share(B, 0, 1), Share(C, 4, 6), Share(D, 2, 2))


class Book:
    """Stored contributions, and the contracts to which their proposals are posted."""

    def __init__(self, contracts: Contracts, path: Path) -> None:
        self.contracts = contracts
        self.contributions = ContributionStore(path, make_manifest().swarm_id)

    def propose(self, epoch: int, shares: tuple[Share, ...]) -> EpochRoot:
        """Store a proposal and return its root."""
        author = AUDITORS[0]
        proposal = Proposal(
            node=author.node,
            account=author.account,
            epoch=epoch,
            tallies=(ContentId(bytes(32)),),
            shares=shares,
        )
        envelope = seal(Kind.PROPOSAL, make_manifest().swarm_id, proposal.to_payload(), author.seed)
        self.contributions.add(envelope.content_id, Kind.PROPOSAL, proposal, envelope.to_bytes())
        return proposal.root(envelope.content_id)

    def post(self, root: EpochRoot) -> Dispute:
        """Post a root on top of the final one, whatever is false in it; return the dispute about it."""
        root = replace(root, base_root=self.contracts.base_root)
        self.contracts.post(root, sign(root, self.contracts.domain))
        record = self.contracts.history.last()
        last = record.root if record else None
        return Dispute(root, last, POINTS_CAP)

    def fraud(self, dispute: Dispute) -> FraudProof | None:
        """Return the proof that the stored contributions hold."""
        return find_fraud(dispute, posted_trees(dispute, self.contributions))


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    contracts = found(tmp_path / "chain.sqlite")
    yield Book(contracts, tmp_path / "contributions.sqlite")
    contracts.chain.close()


def over_cap(book: Book) -> EpochRoot:
    most = POINTS_CAP + 1
    return book.propose(1, (Share(A, most, 3 + most), *SECOND[1:]))


def a_wrong_total(book: Book) -> EpochRoot:
    return replace(book.propose(1, SECOND), total=8)


def more_than_granted(book: Book) -> EpochRoot:
    return book.propose(1, (*SECOND[:3], Share(D, 2, 50)))


def a_dropped_account(book: Book) -> EpochRoot:
    return book.propose(1, (SECOND[0], Share(C, 4, 7), SECOND[3]))


def moved_points(book: Book) -> EpochRoot:
    return book.propose(1, (SECOND[0], Share(B, 0, 0), Share(C, 4, 7), SECOND[3]))


def shifted_points(book: Book) -> EpochRoot:
    told = book.propose(1, SECOND)
    kept = (Share(A, 1, 5), Share(B, 0, 1), Share(C, 4, 5), Share(D, 2, 2))
    return replace(told, cumulative_root=book.propose(1, kept).cumulative_root)


def a_foreign_cumulative_root(book: Book) -> EpochRoot:
    other = book.propose(1, (*SECOND[:3], Share(D, 3, 3)))
    return replace(book.propose(1, SECOND), cumulative_root=other.cumulative_root)


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        (over_cap, OverCap),
        (a_dropped_account, Balance),
        (moved_points, Balance),
        (shifted_points, Balance),
    ],
)
def test_each_false_posting_is_found_and_rejected_by_a_proof(
    book: Book, lie: Callable[[Book], EpochRoot], kind: type
) -> None:
    assert book.fraud(book.post(book.propose(0, FIRST))) is None
    book.contracts.finalise()
    proof = book.fraud(book.post(lie(book)))
    assert isinstance(proof, kind)
    assert proof is not None
    book.contracts.prove(proof)
    assert book.contracts.ledger.live() is None


@pytest.mark.parametrize("lie", [a_wrong_total, more_than_granted, a_foreign_cumulative_root])
def test_a_false_sum_is_not_posted(book: Book, lie: Callable[[Book], EpochRoot]) -> None:
    book.post(book.propose(0, FIRST))
    book.contracts.finalise()
    assert refused_as(lambda: book.post(lie(book))) == "WrongSum"


def test_a_true_posting_is_not_accused(book: Book) -> None:
    for epoch, shares in enumerate((FIRST, SECOND)):
        assert book.fraud(book.post(book.propose(epoch, shares))) is None
        book.contracts.finalise()


class Overtaken(LedgerClient):
    """A chain on which a posting becomes final between two requests of a watchtower."""

    on_chain: Contracts

    async def last_record(self) -> EpochRecord | None:
        if self.on_chain.ledger.live() is not None:
            self.on_chain.finalise()
        return await super().last_record()


async def test_a_posting_that_becomes_final_meanwhile_is_not_accused(book: Book, tmp_path: Path) -> None:
    contracts, manifest, alice = book.contracts, book.contracts.manifest(), CROWD[0]
    book.post(book.propose(0, FIRST))
    ledger = Overtaken(
        manifest=manifest,
        account=keys(alice.number),
        rpc_urls=[contracts.chain.url],
        outbox_path=tmp_path / "outbox.sqlite",
    )
    ledger.on_chain = contracts
    with EventLog(tmp_path / "events.jsonl") as events:
        parts = WatchtowerParts(
            manifest=manifest,
            account=alice.account,
            auditors=contracts.ledger.auditors()[0].of,
            ledger=ledger,
            contributions=book.contributions,
            events=events,
            clock=lambda: contracts.chain.now_seconds,
        )
        await LedgerWatchtower(parts).look()
    assert contracts.ledger.next_epoch() == 1
    assert list(read_events(tmp_path / "events.jsonl")) == []
    assert await ledger.pending() == 0


def test_a_node_that_missed_the_last_settlement_can_show_all_leaves(book: Book, tmp_path: Path) -> None:
    """A proposal lists what it adds to, too."""
    book.post(book.propose(0, FIRST))
    book.contracts.finalise()
    dispute = book.post(book.propose(1, SECOND))
    late = ContributionStore(tmp_path / "late.sqlite", make_manifest().swarm_id)
    for data in book.contributions.envelopes(1):
        envelope = parse_envelope(data, make_manifest().swarm_id)
        late.add(envelope.content_id, envelope.kind, parse_contribution(envelope), data)
    assert late.proposals(0) == {}
    theirs, own = (posted_trees(dispute, store) for store in (book.contributions, late))
    for account in (A, B, C, D):
        assert own.places(account) == theirs.places(account) is not None


def test_without_published_leaves_there_is_no_proof(book: Book, tmp_path: Path) -> None:
    dispute = book.post(book.propose(0, (Share(A, POINTS_CAP + 1, POINTS_CAP + 1),)))
    deaf = ContributionStore(tmp_path / "deaf.sqlite", make_manifest().swarm_id)
    assert find_fraud(dispute, posted_trees(dispute, deaf)) is None
    assert isinstance(book.fraud(dispute), OverCap)
