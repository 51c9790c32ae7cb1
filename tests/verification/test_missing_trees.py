"""Requests for the groups of an account that withholds one of them are answered with nothing."""

import pytest
from support.swarm import EPOCH, Identity, make_chain_manifest
from support.verification_harness import VerificationHarness

from sapo_protocol.audits.commitment import commit, deadline_seconds
from sapo_protocol.audits.groups import GroupRequest
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.terms.audits import AuditTerms
from sapo_verification.admission.envelope_store import EnvelopeStore

MANIFEST = make_chain_manifest(version=2, audits=AuditTerms(samples=4, one_in=1))
ALICE, MALLORY = Identity(1), Identity(2)
AT = deadline_seconds(MANIFEST, EPOCH) - 1
SLOTS = MANIFEST.limits.slots_per_epoch


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Account]:
    """Return the accounts whose messages of an epoch are read, once for each time."""
    read: list[Account] = []
    of = EnvelopeStore.of

    def counted(store: EnvelopeStore, account: Account, epoch: int) -> tuple[bytes, ...]:
        read.append(account)
        return of(store, account, epoch)

    monkeypatch.setattr(EnvelopeStore, "of", counted)
    return read


def test_a_missing_tree_is_read_once_for_any_number_of_queries(reads: list[Account]) -> None:
    node = VerificationHarness((ALICE, MALLORY), MANIFEST, own=ALICE.account)
    sent = [node.admit(MALLORY, slot) for slot in range(SLOTS - 2)]
    groups = {each.rollout.slot: each.content_id for each in sent} | {SLOTS - 1: ContentId(bytes(32))}
    commitment = commit(MALLORY.node, MALLORY.account, EPOCH, groups.items())
    message = seal(Kind.COMMITMENT, MANIFEST.swarm_id, commitment.to_payload(), MALLORY.seed).to_bytes()
    sampled = node.engine.sampled
    sampled.commitments.admit(message, AT)
    request = GroupRequest(MALLORY.account, EPOCH, (0, 1, 2, 3))
    assert [sampled.open_groups(request) for _ in range(50)] == [()] * 50
    assert reads == [MALLORY.account]
    node.admit(MALLORY, SLOTS - 2)  # it may be the missing one
    assert [sampled.open_groups(request) for _ in range(50)] == [()] * 50
    assert reads == [MALLORY.account] * 2
