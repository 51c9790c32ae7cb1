"""Proofs of equivocation: valid ones, invalid ones, and one message per pair."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import bit_flips, damaged
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_chain_manifest, make_manifest, moment
from support.verdicts import outcome_of, reason_of

from sapo_protocol.constants import MAX_GROUP_BYTES, PROOF_EPOCHS
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope, enclose, parse_envelope, seal
from sapo_protocol.equivocation import (
    EquivocationProof,
    open_proof,
    place_of,
    prove_equivocation,
    require_timely,
)
from sapo_protocol.errors import LocalProtocolError, Reason

MANIFEST = make_manifest()
SWARM = MANIFEST.swarm_id
ALICE, BOB, MALLORY = (Identity(number) for number in range(1, 4))
ALICES_SECOND_KEY = Identity(1, key=1)
ONE, OTHER = ALICE.message(MANIFEST), ALICE.message(MANIFEST, completions=(b"9",))
PROOF = prove_equivocation(ONE, OTHER, SWARM)
MESSAGE = PROOF.to_envelope().to_bytes()


def opened(data: bytes) -> EquivocationProof:
    """Return the proof in a message with genuine signatures."""
    proof = open_proof(parse_envelope(data, SWARM))
    proof.require_signatures()
    return proof


def pair(*messages: bytes) -> bytes:
    """Return any messages in the form of a proof."""
    return enclose(Kind.EQUIVOCATION, SWARM, encode(dict(enumerate(messages)))).to_bytes()


def ascending(*messages: bytes) -> bytes:
    """Return the same, in the order that a proof has."""
    return pair(*sorted(messages, key=lambda data: parse_envelope(data, SWARM).content_id))


def forged(*changes: dict[str, object]) -> list[bytes]:
    """Return Alice's rollouts under Mallory's signature."""
    return [MALLORY.seal(MANIFEST, ALICE.rollout(**change)).to_bytes() for change in changes]


@pytest.mark.parametrize("pair_", [(ONE, OTHER), (OTHER, ONE)])
def test_a_proof_has_one_encoding(pair_: tuple[bytes, bytes]) -> None:
    proof = prove_equivocation(*pair_, SWARM)
    assert proof == opened(MESSAGE) == PROOF
    assert proof.to_envelope().to_bytes() == MESSAGE
    assert (proof.place, proof.account) == ((EPOCH, ALICE.account, 0), ALICE.account)
    assert {place_of(rollout) for rollout in proof.rollouts} == {proof.place}
    assert {envelope.to_bytes() for envelope in proof.envelopes} == {ONE, OTHER}


def test_two_keys_of_an_account_can_equivocate() -> None:
    other = ALICES_SECOND_KEY.message(MANIFEST)
    assert opened(ascending(ONE, other)).account == ALICE.account


def resigned() -> bytes:
    """Return Alice's first content under another signature."""
    envelope = parse_envelope(ONE, SWARM)
    return replace(envelope, signature=MALLORY.seal(MANIFEST, ALICE.rollout()).signature).to_bytes()


SLOT_1 = ALICE.message(MANIFEST, slot=1)
CASES = {
    "one content twice": (Reason.OUT_OF_BOUNDS, pair(ONE, ONE)),
    "one content under two signatures": (Reason.OUT_OF_BOUNDS, pair(ONE, resigned())),
    "the wrong order": (
        Reason.OUT_OF_BOUNDS,
        pair(*(envelope.to_bytes() for envelope in reversed(PROOF.envelopes))),
    ),
    "two slots": (Reason.OUT_OF_BOUNDS, ascending(ONE, SLOT_1)),
    "two epochs": (Reason.OUT_OF_BOUNDS, ascending(ONE, ALICE.message(MANIFEST, epoch=EPOCH - 1))),
    "two accounts": (Reason.OUT_OF_BOUNDS, ascending(ONE, BOB.message(MANIFEST))),
    "one forged": (Reason.BAD_SIGNATURE, ascending(ONE, *forged({"completions": (b"9",)}))),
    "both forged": (Reason.BAD_SIGNATURE, ascending(*forged({}, {"completions": (b"9",)}))),
    "a certificate": (Reason.WRONG_KIND, pair(ONE, ALICE.certificate(MANIFEST).to_bytes())),
    "a proof": (Reason.WRONG_KIND, pair(ONE, MESSAGE)),
    "another swarm's": (Reason.WRONG_SWARM, pair(ONE, ALICE.message(make_chain_manifest()))),
    "garbage": (Reason.NOT_CANONICAL, pair(ONE, b"\xff")),
    "one alone": (Reason.SCHEMA, pair(ONE)),
    "three": (Reason.RESERVED, pair(ONE, OTHER, SLOT_1)),
    "no bytes": (Reason.SCHEMA, enclose(Kind.EQUIVOCATION, SWARM, encode({0: 1, 1: 2})).to_bytes()),
    "a signature of its own": (
        Reason.BAD_SIGNATURE,
        seal(Kind.EQUIVOCATION, SWARM, PROOF.to_envelope().payload, MALLORY.seed).to_bytes(),
    ),
    "a rollout": (Reason.WRONG_KIND, ONE),
}


@pytest.mark.parametrize("name", CASES)
def test_each_fault_has_its_reason(name: str) -> None:
    reason, message = CASES[name]
    assert reason_of(opened, message) is reason


def test_an_invalid_proof_cannot_be_created() -> None:
    for other in (ONE, resigned(), SLOT_1, BOB.message(MANIFEST), b"", MESSAGE):
        with pytest.raises(LocalProtocolError, match="prove nothing"):
            prove_equivocation(ONE, other, SWARM)


def test_two_groups_of_full_size_do_not_fit_one_message() -> None:
    full = (b"x" * (MAX_GROUP_BYTES // 8),) * 8
    one = ALICE.message(MANIFEST, completions=full)
    other = ALICE.message(MANIFEST, completions=(*full[:-1], b"y" * len(full[-1])))
    with pytest.raises(LocalProtocolError, match="does not fit"):
        prove_equivocation(one, other, SWARM).to_envelope()
    almost = prove_equivocation(ONE, one, SWARM)
    assert opened(almost.to_envelope().to_bytes()) == almost


def test_no_flipped_bit_leaves_another_proof() -> None:
    for changed in bit_flips(MESSAGE):
        assert isinstance(outcome_of(opened, changed), Reason)


@given(damaged(MESSAGE), st.binary(max_size=100))
def test_any_bytes_are_a_proof_or_refused(changed: bytes, noise: bytes) -> None:
    assert isinstance(outcome_of(opened, noise), Reason)
    assert (outcome_of(opened, changed) == PROOF) == (changed == MESSAGE)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_no_signature_made_without_the_key_gives_a_proof(payload: bytes, signature: bytes) -> None:
    envelope = SignedEnvelope(Kind.ROLLOUT, SWARM, payload, signature.ljust(64, b"\0")[:64])
    assert isinstance(outcome_of(opened, pair(ONE, envelope.to_bytes())), Reason)


def test_a_proof_is_admitted_as_long_as_it_has_consequences() -> None:
    last = moment(MANIFEST, EPOCH + PROOF_EPOCHS)
    assert reason_of(require_timely, PROOF, MANIFEST, moment(MANIFEST)) is None
    assert reason_of(require_timely, PROOF, MANIFEST, last) is None
    assert reason_of(require_timely, PROOF, MANIFEST, last + EPOCH_SECONDS) is Reason.EPOCH_PAST
    assert reason_of(require_timely, PROOF, MANIFEST, moment(MANIFEST, EPOCH - 1)) is Reason.EPOCH_FUTURE
