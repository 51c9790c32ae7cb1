"""The store of contribution messages: what it keeps, returns and allows to sign."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.swarm import Identity, make_chain_manifest

from sapo_protocol import merkle
from sapo_protocol.contributions import Approval, Proposal, Share, Tally, page_digest
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.identifiers import ContentId
from sapo_verification.admission.contribution_store import ContributionStore

MANIFEST = make_chain_manifest()
ALICE, BOB, CAROL = Identity(1), Identity(2), Identity(3)
Message = Tally | Proposal | Approval
KINDS = {Tally: Kind.TALLY, Proposal: Kind.PROPOSAL, Approval: Kind.APPROVAL}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.sqlite"


@pytest.fixture
def contributions(path: Path) -> ContributionStore:
    return ContributionStore(path, MANIFEST.swarm_id)


def tally(author: Identity, epoch: int = 4, points: int = 5) -> Tally:
    return Tally(
        node=author.node,
        account=author.account,
        epoch=epoch,
        points=((CAROL.account, points),),
        evidence_root=merkle.EMPTY_ROOT,
    )


def proposal(author: Identity, *tallies: ContentId, epoch: int = 4) -> Proposal:
    return Proposal(
        node=author.node,
        account=author.account,
        epoch=epoch,
        tallies=tallies,
        shares=(Share(CAROL.account, 5, 9),),
    )


def approval(author: Identity, of: ContentId, epoch: int = 4) -> Approval:
    return Approval(node=author.node, account=author.account, epoch=epoch, proposal=of, signature=bytes(65))


def keep(contributions: ContributionStore, author: Identity, message: Message) -> tuple[ContentId, bytes]:
    """Store a message signed by its author; return its id and envelope."""
    kind = KINDS[type(message)]
    envelope = seal(kind, MANIFEST.swarm_id, message.to_payload(), author.seed)
    contributions.add(envelope.content_id, kind, message, envelope.to_bytes())
    return envelope.content_id, envelope.to_bytes()


def test_stored_contributions_are_returned_also_after_a_restart(
    contributions: ContributionStore, path: Path
) -> None:
    first, _ = keep(contributions, ALICE, tally(ALICE))
    proposed, _ = keep(contributions, BOB, proposal(BOB, first))
    keep(contributions, ALICE, approval(ALICE, proposed))
    keep(contributions, BOB, approval(BOB, ContentId(bytes(32))))
    for each in (contributions, ContributionStore(path, MANIFEST.swarm_id)):  # also after a restart
        assert each.tally(first) == tally(ALICE)
        assert each.proposal(proposed) == proposal(BOB, first)
        assert each.proposals(4) == {proposed: proposal(BOB, first)}
        assert each.approvals(4, proposed) == [approval(ALICE, proposed)]
        assert each.has(first)


def test_ids_of_other_kinds_and_epochs_are_not_found(contributions: ContributionStore) -> None:
    first, _ = keep(contributions, ALICE, tally(ALICE))
    assert (contributions.proposal(first), contributions.tally(ContentId(bytes(32)))) == (None, None)
    assert (contributions.tallies(5), contributions.proposals(4), contributions.approvals(4, first)) == (
        {},
        {},
        [],
    )
    assert not contributions.has(ContentId(bytes(32)))


def test_of_two_tallies_of_an_auditor_the_one_with_the_smaller_id_counts(tmp_path: Path) -> None:
    honest, other = tally(ALICE, points=5), tally(ALICE, points=6)
    kept = []
    for name, order in (("a", (honest, other)), ("b", (other, honest))):
        contributions = ContributionStore(tmp_path / name, MANIFEST.swarm_id)
        ids = [keep(contributions, ALICE, message)[0] for message in order]
        keep(contributions, BOB, tally(BOB))
        kept.append(contributions.tallies(4))
        assert min(ids) in kept[-1]
        assert len(kept[-1]) == 2
    assert kept[0] == kept[1]


def test_an_author_has_two_places_per_kind_epoch_and_turn(contributions: ContributionStore) -> None:
    """One is honest, the second proves that the first is not, and more would fill the disk."""
    messages = [tally(ALICE, points=points) for points in (1, 2, 3)]
    for message, has_room in zip(messages, (True, True, False), strict=True):
        envelope = seal(Kind.TALLY, MANIFEST.swarm_id, message.to_payload(), ALICE.seed)
        assert contributions.has_room(envelope.content_id, Kind.TALLY, message) is has_room
        keep(contributions, ALICE, message)
    others = (
        tally(BOB, points=3),
        tally(ALICE, epoch=5),
        proposal(ALICE),
        approval(ALICE, ContentId(bytes(32))),
    )
    for other in others:
        assert contributions.has_room(ContentId(bytes(32)), KINDS[type(other)], other)
    for number in (1, 2):
        keep(contributions, ALICE, replace(proposal(ALICE, ContentId(bytes([number]) * 32)), turn=4))
    third = replace(proposal(ALICE), turn=4)
    assert not contributions.has_room(ContentId(b"\x03" * 32), Kind.PROPOSAL, third)
    assert contributions.has_room(ContentId(b"\x03" * 32), Kind.PROPOSAL, replace(third, turn=5))
    contributions.note_posted(
        4, ContentId(b"\x03" * 32), is_final=True
    )  # needed by accounts that claim its points
    assert contributions.has_room(ContentId(b"\x03" * 32), Kind.PROPOSAL, third)


def test_a_tally_that_the_posted_proposal_names_is_stored_beside_two_others(
    contributions: ContributionStore,
) -> None:
    """Otherwise its author could keep a node from checking the posting."""
    named = tally(ALICE, points=3)
    content_id = seal(Kind.TALLY, MANIFEST.swarm_id, named.to_payload(), ALICE.seed).content_id
    for points in (1, 2):
        keep(contributions, ALICE, tally(ALICE, points=points))
    posted, _ = keep(contributions, BOB, proposal(BOB, content_id))
    unposted, _ = keep(contributions, BOB, proposal(BOB, ContentId(b"\x04" * 32)))
    assert contributions.lacks_tallies(posted)
    assert not contributions.has_room(content_id, Kind.TALLY, named)
    contributions.note_posted(4, posted, is_final=False)
    assert contributions.has_room(content_id, Kind.TALLY, named)
    assert not contributions.has_room(ContentId(b"\x04" * 32), Kind.TALLY, named)
    keep(contributions, ALICE, named)
    assert not contributions.lacks_tallies(posted)
    contributions.note_posted(4, unposted, is_final=False)
    assert not contributions.has_room(content_id, Kind.TALLY, named)


def test_only_timely_tallies_of_authors_with_a_single_tally_are_settled(
    contributions: ContributionStore,
) -> None:
    def receive(author: Identity, points: int, seconds: float) -> ContentId:
        message = tally(author, points=points)
        envelope = seal(Kind.TALLY, MANIFEST.swarm_id, message.to_payload(), author.seed)
        data = envelope.to_bytes()
        contributions.add(envelope.content_id, Kind.TALLY, message, data, received_seconds=seconds)
        return envelope.content_id

    early = receive(ALICE, 1, 10.0)
    receive(BOB, 2, 12.0)
    assert set(contributions.settled_tallies(4, before_seconds=11.0)) == {early}
    assert len(contributions.settled_tallies(4, before_seconds=12.0)) == 2
    receive(BOB, 3, 20.0)
    assert set(contributions.settled_tallies(4, before_seconds=30.0)) == {early}


def test_old_epochs_are_dropped_except_those_of_the_newest_postings(contributions: ContributionStore) -> None:
    others: list[ContentId] = []
    for epoch in (4, 5, 6):
        first = keep(contributions, ALICE, tally(ALICE, epoch))[0]
        keep(contributions, BOB, tally(BOB, epoch))
        taken = keep(contributions, ALICE, proposal(ALICE, first, epoch=epoch))[0]
        others.append(keep(contributions, BOB, proposal(BOB, first, epoch=epoch))[0])
        assert contributions.proposal(others[-1]) is not None
        keep(contributions, BOB, approval(BOB, taken, epoch))
        keep(contributions, CAROL, approval(CAROL, ContentId(bytes(32)), epoch))
        if epoch != 5:
            contributions.note_posted(epoch, taken, is_final=True)
    contributions.forget(before_epoch=6)
    left = [(len(contributions.tallies(e)), len(contributions.proposals(e))) for e in (4, 5, 6)]
    assert left == [(1, 1), (0, 0), (2, 2)]
    assert all(contributions.proposal(id_) is None for id_ in others[:2])
    assert contributions.proposal(others[2]) is not None
    taken = next(iter(contributions.proposals(4)))
    assert [approval.account for approval in contributions.approvals(4, taken)] == [BOB.account]
    contributions.forget(before_epoch=6)
    assert len(contributions.envelopes(since_epoch=0)) == 3 + 6
    contributions.forget(before_epoch=4 + 1025)
    assert contributions.proposals(4) == {}
    assert len(contributions.proposals(6)) == 1  # the last final epoch proves everybody's points


def test_pages_of_the_last_final_posting_are_kept_during_rejected_postings(
    contributions: ContributionStore,
) -> None:
    """They prove everybody's points, however many later postings are challenged away."""
    pages = {epoch: encode(((CAROL.account, 5, epoch),)) for epoch in range(4, 40)}
    for epoch, page in pages.items():
        told = replace(
            proposal(ALICE, ContentId(bytes(32)), epoch=epoch), shares=(), pages=(page_digest(page),)
        )
        named = keep(contributions, ALICE, told)[0]
        contributions.add_pages([page])
        contributions.note_posted(epoch, named, is_final=epoch == 5)
    contributions.forget(before_epoch=40)
    kept = contributions.pages([page_digest(page) for page in pages.values()])
    assert kept == (pages[5], pages[38], pages[39])
    contributions.forget(before_epoch=2_000)
    assert contributions.pages([page_digest(pages[5])]) == (pages[5],)
    assert len(contributions.proposals(5)) == 1


def test_contributions_of_recent_epochs_are_returned_in_order(contributions: ContributionStore) -> None:
    sent = {epoch: keep(contributions, ALICE, tally(ALICE, epoch))[1] for epoch in (6, 4, 5)}
    assert contributions.envelopes(since_epoch=5) == (sent[5], sent[6])


def test_only_contributions_that_fit_a_response_are_read(contributions: ContributionStore) -> None:
    """A request of no bytes asks for them: reading sixty megabytes took two thirds of a second."""
    for epoch in range(4, 40):
        keep(contributions, ALICE, tally(ALICE, epoch))
    every = contributions.envelopes(since_epoch=10)
    read: list[tuple[bytes, ...]] = []

    def noted(_cursor: object, row: tuple[bytes, ...]) -> tuple[bytes, ...]:
        read.append(row)
        return row

    contributions._connection.row_factory = noted
    assert contributions.newest(10, len(every[-1])) == every[-1:]
    assert len(read) == 2
    for first in (0, 1, 7, 29, 30):
        assert contributions.newest(10, sum(map(len, every[first:]))) == every[first:]
    assert contributions.newest(10, 10**9) == every


def test_a_message_is_kept_once(contributions: ContributionStore) -> None:
    keep(contributions, ALICE, tally(ALICE))
    keep(contributions, ALICE, tally(ALICE))
    assert len(contributions.envelopes(since_epoch=0)) == 1
