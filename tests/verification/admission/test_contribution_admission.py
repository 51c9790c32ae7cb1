"""Admission of contributions: the auditors' ones, complete; all others are refused."""

from dataclasses import replace

import pytest
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_certificates, make_manifest, moment
from support.verdicts import ruling_of

from sapo_protocol.contributions import Approval, Proposal, Tally
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import ContentId, Digest
from sapo_protocol.rules import Rule
from sapo_protocol.settlement import turn_count
from sapo_protocol.terms.auditors import Auditors
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import AdmittedContribution, AuditorSet, ContributionAdmission

MANIFEST = make_manifest()
NOW = moment(MANIFEST)
OVER = EPOCH - 1
ALICE, BOB = Identity(1), Identity(2)

CONTRIBUTIONS: dict[Kind, Tally | Proposal | Approval] = {
    Kind.TALLY: Tally(
        node=ALICE.node,
        account=ALICE.account,
        epoch=OVER,
        points=((BOB.account, 3),),
        evidence_root=Digest(bytes(32)),
    ),
    Kind.PROPOSAL: Proposal(
        node=ALICE.node, account=ALICE.account, epoch=OVER, tallies=(ContentId(bytes(32)),), shares=()
    ),
    Kind.APPROVAL: Approval(
        node=ALICE.node, account=ALICE.account, epoch=OVER, proposal=ContentId(bytes(32)), signature=bytes(65)
    ),
}


def gate(*auditors: Identity, known: ContributionStore | None = None) -> ContributionAdmission:
    """Return an admission that knows Alice and Bob, and Alice as the auditor if nobody is named."""
    certificates = make_certificates(MANIFEST, ALICE, BOB)
    accounts = tuple(sorted(identity.account for identity in auditors or (ALICE,)))
    store = known or ContributionStore(":memory:", MANIFEST.swarm_id)
    return ContributionAdmission(MANIFEST, certificates, store, lambda: AuditorSet(Auditors(accounts)))


def sealed(kind: Kind, content: Tally | Proposal | Approval) -> bytes:
    return seal(kind, MANIFEST.swarm_id, content.to_payload(), ALICE.seed).to_bytes()


@pytest.mark.parametrize("kind", CONTRIBUTIONS)
def test_an_auditors_contribution_is_admitted_with_all_its_fields(kind: Kind) -> None:
    content = CONTRIBUTIONS[kind]
    envelope = seal(kind, MANIFEST.swarm_id, content.to_payload(), ALICE.seed)
    message = envelope.to_bytes()
    admitted = AdmittedContribution(envelope.content_id, kind, content)
    assert gate().admit(message, NOW) == admitted
    store = ContributionStore(":memory:", MANIFEST.swarm_id)
    store.add(envelope.content_id, kind, content, message)
    assert ruling_of(gate(known=store).admit, message, NOW) is Rule.CONTRIBUTION_NEW
    assert ruling_of(gate(BOB).admit, message, NOW) is Rule.AUTHOR_AUDITS
    assert ruling_of(gate().admit, message, NOW - EPOCH_SECONDS) is Rule.CONTRIBUTION_EPOCH_OVER


def refused(admission: ContributionAdmission, message: bytes) -> Rule | None:
    """Return the rule with which a message is refused, or None if it is admitted."""
    ruling = ruling_of(admission.admit, message, NOW)
    return ruling if isinstance(ruling, Rule) else None


@pytest.mark.parametrize("kind", CONTRIBUTIONS)
def test_contributions_that_are_late_or_too_many_are_refused(kind: Kind) -> None:
    """One auditor could otherwise fill every disk: with old epochs, or with many messages of one."""
    content, message = CONTRIBUTIONS[kind], sealed(kind, CONTRIBUTIONS[kind])
    late = epoch_start_seconds(MANIFEST, OVER + 17)
    admission = gate()
    assert ruling_of(admission.admit, message, late) is Rule.CONTRIBUTION_IN_TIME
    assert admission.admit(message, late - 0.01).content == content
    store = ContributionStore(":memory:", MANIFEST.swarm_id)
    for number in (1, 2):
        store.add(ContentId(bytes([number]) * 32), kind, content, message)
    assert ruling_of(gate(known=store).admit, message, NOW) is Rule.CONTRIBUTION_ROOM


def test_proposals_and_approvals_count_only_in_the_turn_of_their_proposer() -> None:
    proposal, approval = CONTRIBUTIONS[Kind.PROPOSAL], CONTRIBUTIONS[Kind.APPROVAL]
    assert isinstance(proposal, Proposal)
    assert isinstance(approval, Approval)
    place = sorted((ALICE.account, BOB.account)).index(ALICE.account)
    own = (place - OVER) % 2
    both = gate(ALICE, BOB)
    for turn, ruling in ((own, None), (own + 2, None), (1 - own, Rule.PROPOSERS_TURN)):
        message = sealed(Kind.PROPOSAL, replace(proposal, turn=turn))
        assert refused(both, message) is ruling
    turns = turn_count(MANIFEST)
    for turn, ruling in ((turns - 1, None), (turns, Rule.TURN_EXISTS)):
        assert refused(gate(), sealed(Kind.APPROVAL, replace(approval, turn=turn))) is ruling
        assert refused(gate(), sealed(Kind.PROPOSAL, replace(proposal, turn=turn))) is ruling


def test_other_kinds_are_refused() -> None:
    for message in (ALICE.message(MANIFEST), ALICE.certificate(MANIFEST).to_bytes()):
        assert ruling_of(gate().admit, message, NOW) is Rule.TOPIC_KIND
