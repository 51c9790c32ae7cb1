"""The store of contribution messages: what it keeps, returns and allows to sign."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.swarm import Identity, make_chain_manifest

from sapo_protocol import merkle
from sapo_protocol.contributions import Approval, Proposal, Share, Tally
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


def test_what_is_kept_is_given_back(contributions: ContributionStore, path: Path) -> None:
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


def test_of_an_auditors_two_tallies_the_smaller_id_counts_in_whatever_order(tmp_path: Path) -> None:
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


def test_one_proposal_is_signed_per_epoch_also_after_a_restart(
    contributions: ContributionStore, path: Path
) -> None:
    one, other = ContentId(bytes(31) + b"\x01"), ContentId(bytes(31) + b"\x02")
    assert contributions.approve(4, one)
    assert not contributions.approve(4, other)
    again = ContributionStore(path, MANIFEST.swarm_id)
    assert again.approve(4, one)  # it may have died before the signature went out
    assert not again.approve(4, other)
    assert again.approve(5, other)


def test_newcomers_are_told_of_recent_epochs_in_order(contributions: ContributionStore) -> None:
    sent = {epoch: keep(contributions, ALICE, tally(ALICE, epoch))[1] for epoch in (6, 4, 5)}
    assert contributions.envelopes(since_epoch=5) == (sent[5], sent[6])


def test_a_message_is_kept_once(contributions: ContributionStore) -> None:
    keep(contributions, ALICE, tally(ALICE))
    keep(contributions, ALICE, tally(ALICE))
    assert len(contributions.envelopes(since_epoch=0)) == 1
