"""An auditor's tally that is late or deviates from the counted ones is reported."""

from __future__ import annotations

from support.contributions import sealed_by, tally_of
from support.swarm import Identity, make_chain_manifest

from sapo_client.node.auditing.scrutiny import TallyScrutiny, scrutinise
from sapo_protocol.contributions import Proposal, Tally, settle
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.admission.contribution_store import ContributionStore

MANIFEST = make_chain_manifest()
AUDITORS = tuple(sorted((Identity(number) for number in range(1, 6)), key=lambda each: each.account))
WORKER, OTHER = (Identity(number).account for number in (50, 51))
EPOCH = 3
HONEST = ({WORKER: 5, OTHER: 2}, {WORKER: 6, OTHER: 2}, {WORKER: 6, OTHER: 3})


def keep(store: ContributionStore, author: Identity, message: Tally | Proposal, at: float) -> ContentId:
    data = sealed_by(author, MANIFEST, message)
    envelope = parse_envelope(data, MANIFEST.swarm_id)
    store.add(envelope.content_id, envelope.kind, message, data, received_seconds=at)
    return envelope.content_id


def settled(store: ContributionStore) -> Proposal:
    """Return the proposal of the first auditor over three tallies, which the store holds."""
    tallies = [tally_of(a, EPOCH, points) for a, points in zip(AUDITORS, HONEST, strict=False)]
    ids = [keep(store, a, tally, at=100.0) for a, tally in zip(AUDITORS, tallies, strict=False)]
    shares = settle(tallies, {}, points_per_epoch=100, epoch_budget=1000)
    return Proposal(AUDITORS[0].node, AUDITORS[0].account, EPOCH, tuple(sorted(ids)), shares)


def test_a_tally_after_the_proposal_is_late_and_its_distance_is_counted() -> None:
    store = ContributionStore(":memory:", MANIFEST.swarm_id)
    proposal = settled(store)
    root = proposal.root(keep(store, AUDITORS[0], proposal, at=110.0))
    ghost = Identity(60).account
    lies: dict[Account, int] = {ghost: 90, WORKER: 4, OTHER: 3}  # 90 too many, 1 too few, within
    keep(store, AUDITORS[3], tally_of(AUDITORS[3], EPOCH, lies), at=111.0)
    keep(store, AUDITORS[4], tally_of(AUDITORS[4], EPOCH, HONEST[0]), at=109.0)  # true, and not needed
    assert scrutinise(store, root) == TallyScrutiny(
        counted=tuple(auditor.account for auditor in AUDITORS[:3]),
        late=(AUDITORS[3].account,),
        apart={AUDITORS[3].account: 91},
    )


def test_without_the_proposal_or_one_of_its_tallies_nothing_is_reported() -> None:
    complete, empty = (ContributionStore(":memory:", MANIFEST.swarm_id) for _ in range(2))
    proposal = settled(complete)
    root = proposal.root(keep(complete, AUDITORS[0], proposal, at=110.0))
    assert scrutinise(empty, root) is None
    keep(empty, AUDITORS[0], proposal, at=110.0)
    assert scrutinise(empty, root) is None
    assert scrutinise(complete, root) == TallyScrutiny(
        tuple(auditor.account for auditor in AUDITORS[:3]), (), {}
    )
