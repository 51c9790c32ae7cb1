"""Admission of contributions: the auditors' ones, complete; all others are refused."""

import pytest
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_certificates, make_manifest, moment
from support.verdicts import ruling_of

from sapo_protocol.contributions import Approval, Proposal, Tally
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.identifiers import ContentId, Digest
from sapo_protocol.rules import Rule
from sapo_verification.admission.contributions import AdmittedContribution, ContributionAdmission

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


def gate(known: frozenset[ContentId] = frozenset(), auditor: Identity = ALICE) -> ContributionAdmission:
    """Return an admission that knows Alice and Bob, one of them as an auditor."""
    store = make_certificates(MANIFEST, ALICE, BOB)
    return ContributionAdmission(MANIFEST, store, known.__contains__, lambda: (auditor.account,))


@pytest.mark.parametrize("kind", CONTRIBUTIONS)
def test_an_auditors_contribution_is_admitted_whole(kind: Kind) -> None:
    content = CONTRIBUTIONS[kind]
    envelope = seal(kind, MANIFEST.swarm_id, content.to_payload(), ALICE.seed)
    message = envelope.to_bytes()
    admitted = AdmittedContribution(envelope.content_id, kind, content, message)
    assert gate().admit(message, NOW) == admitted
    assert ruling_of(gate(frozenset((envelope.content_id,))).admit, message, NOW) is Rule.CONTRIBUTION_NEW
    assert ruling_of(gate(auditor=BOB).admit, message, NOW) is Rule.AUTHOR_AUDITS
    assert ruling_of(gate().admit, message, NOW - EPOCH_SECONDS) is Rule.CONTRIBUTION_EPOCH_OVER


def test_other_kinds_are_refused() -> None:
    for message in (ALICE.message(MANIFEST), ALICE.certificate(MANIFEST).to_bytes()):
        assert ruling_of(gate().admit, message, NOW) is Rule.TOPIC_KIND
