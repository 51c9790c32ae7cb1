"""The store of proofs: hard evidence once, only against the equivocator, never against the own account."""

from pathlib import Path
from typing import Any

import pytest
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_certificates, make_manifest, moment
from support.verdicts import reason_of

from sapo_protocol.constants import MAX_GROUP_BYTES, PROOF_EPOCHS
from sapo_protocol.equivocation import prove_equivocation
from sapo_protocol.errors import LocalProtocolError, Reason
from sapo_verification.admission.equivocations import MAX_PROOFS, ProofStore
from sapo_verification.admission.rollouts import Admission, SlotTaken
from sapo_verification.reputation.evidence import BAN_EPOCHS, Evidence, Reputation
from sapo_verification.reputation.penalties import HARD

MANIFEST = make_manifest()
NOW = moment(MANIFEST)
ALICE, BOB, STRANGER = (Identity(number) for number in range(1, 4))


def contents(author: Identity, **changes: Any) -> tuple[bytes, bytes]:
    """Return two different contents of an author for one slot."""
    one, other = (author.message(MANIFEST, completions=(b"%d" % n,), **changes) for n in range(2))
    return one, other


def proof(author: Identity = ALICE, **changes: Any) -> bytes:
    """Return a message that proves an equivocation."""
    return prove_equivocation(*contents(author, **changes), MANIFEST.swarm_id).to_envelope().to_bytes()


class ProofHarness:
    """Bob's proofs, certificates and reputation."""

    def __init__(self, path: Path | str = ":memory:", max_proofs: int = MAX_PROOFS) -> None:
        self.reputation = Reputation(path)
        certificates = make_certificates(MANIFEST, ALICE, BOB)
        self.store = ProofStore(
            manifest=MANIFEST,
            certificates=certificates,
            reputation=self.reputation,
            own=BOB.account,
            path=path,
            max_proofs=max_proofs,
        )

    def evidence(self, who: Identity) -> Evidence:
        return self.reputation.evidence(who.account, EPOCH)


GUILTY = Evidence(0.0, HARD, 1, EPOCH)
INNOCENT = Evidence(epoch=EPOCH)


def test_a_proof_counts_once_as_hard_evidence() -> None:
    harness = ProofHarness()
    assert harness.store.admit(proof(), NOW).account == ALICE.account
    assert reason_of(harness.store.admit, proof(), NOW) is Reason.SEEN
    assert reason_of(harness.store.admit, proof(slot=7), NOW) is Reason.SEEN, "one of an epoch says it all"
    assert harness.evidence(ALICE) == GUILTY
    assert harness.reputation.is_banned(ALICE.account, EPOCH + BAN_EPOCHS - 1)
    assert not harness.reputation.is_banned(ALICE.account, EPOCH + BAN_EPOCHS)
    assert harness.evidence(BOB) == INNOCENT
    assert harness.store.messages() == (proof(),)


def test_proofs_of_different_epochs_count_separately() -> None:
    harness = ProofHarness()
    harness.store.admit(proof(epoch=EPOCH - 1), NOW)
    harness.store.admit(proof(), NOW)
    assert harness.evidence(ALICE).audits == 2


def test_a_restart_validates_proofs_again_and_does_not_count_them_again(tmp_path: Path) -> None:
    before = ProofHarness(tmp_path / "db")
    before.store.admit(proof(), NOW)
    before.store.admit(proof(epoch=EPOCH - 1), NOW)
    later = NOW + PROOF_EPOCHS * EPOCH_SECONDS
    after = ProofHarness(tmp_path / "db")
    assert after.store.restore(later) == 1
    assert reason_of(after.store.admit, proof(), NOW) is Reason.SEEN
    assert after.store.messages() == (proof(),)
    assert after.evidence(ALICE) == before.evidence(ALICE)
    emptied = ProofStore(MANIFEST, make_certificates(MANIFEST, ALICE), after.reputation, BOB.account)
    emptied.admit(proof(), NOW)
    assert after.evidence(ALICE) == before.evidence(ALICE), "nor does a lost store"


def test_a_second_content_found_by_admission_becomes_a_proof() -> None:
    harness, gate = ProofHarness(), Admission(MANIFEST, make_certificates(MANIFEST, ALICE))
    first, second = contents(ALICE)
    admitted = gate.admit(first, NOW)
    with pytest.raises(SlotTaken) as raised:
        gate.admit(second, NOW)
    assert raised.value.first == admitted.content_id
    assert harness.store.prove(first, second, NOW) == proof()
    assert harness.store.prove(first, second, NOW) is None, "it is known now"
    assert harness.evidence(ALICE) == GUILTY


def test_one_content_received_again_is_no_equivocation() -> None:
    """A node that lost its memory may prove it again, and so may a changed signature."""
    gate = Admission(MANIFEST, make_certificates(MANIFEST, ALICE))
    first, _ = contents(ALICE)
    gate.admit(first, NOW)
    assert reason_of(gate.admit, first, NOW) is Reason.SEEN
    with pytest.raises(LocalProtocolError):
        ProofHarness().store.prove(first, first, NOW)


def test_a_node_makes_no_proof_against_its_own_account() -> None:
    harness = ProofHarness()
    assert harness.store.prove(*contents(BOB), NOW) is None
    assert (len(harness.store), harness.evidence(BOB)) == (0, INNOCENT)
    harness.store.admit(proof(BOB), NOW)  # a valid proof of another node: it is forwarded
    assert (harness.store.messages(), harness.evidence(BOB)) == ((proof(BOB),), INNOCENT)


def test_groups_too_large_for_a_proof_count_where_both_were_received() -> None:
    harness = ProofHarness()
    full = (b"x" * (MAX_GROUP_BYTES // 8),) * 8
    one, other = (
        ALICE.message(MANIFEST, completions=(*full[:-1], bytes([n]) * len(full[-1]))) for n in (65, 66)
    )
    assert harness.store.prove(one, other, NOW) is None
    assert harness.store.prove(one, other, NOW) is None
    assert (len(harness.store), harness.evidence(ALICE)) == (0, GUILTY)


@pytest.mark.parametrize(
    ("message", "now", "reason"),
    [
        (proof(STRANGER), NOW, Reason.CERTIFICATE_UNKNOWN),
        (proof(slot=32), NOW, Reason.SLOT_OVER_QUOTA),
        (proof(epoch=EPOCH + 1), NOW, Reason.EPOCH_FUTURE),
        (proof(), NOW + (PROOF_EPOCHS + 1) * EPOCH_SECONDS, Reason.EPOCH_PAST),
        (contents(ALICE)[0], NOW, Reason.WRONG_KIND),
        (b"\xff", NOW, Reason.NOT_CANONICAL),
    ],
)
def test_each_fault_has_its_reason_and_no_penalty(message: bytes, now: float, reason: Reason) -> None:
    harness = ProofHarness()
    assert reason_of(harness.store.admit, message, now) is reason
    assert (len(harness.store), harness.evidence(ALICE)) == (0, INNOCENT)


def test_forged_proofs_do_not_penalise_the_named_account() -> None:
    harness = ProofHarness()
    mallory = Identity(9)
    one, other = (mallory.seal(MANIFEST, ALICE.rollout(completions=(b"%d" % n,))).to_bytes() for n in (1, 2))
    message = prove_equivocation(one, other, MANIFEST.swarm_id).to_envelope().to_bytes()
    assert reason_of(harness.store.admit, message, NOW) is Reason.BAD_SIGNATURE
    genuine = prove_equivocation(contents(ALICE)[0], other, MANIFEST.swarm_id)
    assert reason_of(harness.store.admit, genuine.to_envelope().to_bytes(), NOW) is Reason.BAD_SIGNATURE
    assert harness.evidence(ALICE) == INNOCENT


def test_the_book_is_bounded_and_forgets() -> None:
    harness = ProofHarness(max_proofs=2)
    messages = [proof(epoch=epoch) for epoch in range(EPOCH + 1)]
    for message in messages:
        harness.store.admit(message, NOW)
    assert harness.store.messages() == tuple(messages[-2:])
    harness.store.forget(EPOCH + PROOF_EPOCHS)
    assert harness.store.messages() == (messages[-1],)
