"""Admission: every reason by real messages, and invariance under order, copies and flipped bits."""

from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import bit_flips, damaged
from support.swarm import (
    EPOCH,
    EPOCH_SECONDS,
    Identity,
    make_admission,
    make_certificates,
    make_chain_manifest,
    make_manifest,
    moment,
)
from support.verdicts import outcome_of, reason_of, verdict_of

from sapo_protocol.constants import MAX_ENVELOPE_BYTES
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.errors import Reason, Verdict
from sapo_protocol.identifiers import Digest
from sapo_verification.admission.rollouts import MAX_SEEN, Admission
from sapo_verification.reputation.penalties import verdict
from sapo_verification.types import AdmittedRollout

MANIFEST = make_manifest()
OTHER_SWARM = make_chain_manifest()
NOW = moment(MANIFEST)
ALICE, BOB, MALLORY, STRANGER = (Identity(number) for number in range(1, 5))
ALICES_SECOND_KEY = Identity(1, key=1)


BOOK = make_certificates(MANIFEST, ALICE, BOB, MALLORY, ALICES_SECOND_KEY)
"""Shared, because admission only reads it."""


def admission(max_seen: int = MAX_SEEN) -> Admission:
    return Admission(MANIFEST, BOOK, max_seen)


def signed_by(signer: Identity, author: Identity = ALICE, **changes: object) -> bytes:
    """Return a rollout of one identity signed by another."""
    return signer.seal(MANIFEST, author.rollout(**changes)).to_bytes()


def framed(**fields: object) -> bytes:
    """Return a genuine envelope with fields of its frame replaced."""
    envelope = ALICE.seal(MANIFEST, ALICE.rollout())
    frame = {
        "version": 1,
        "kind": int(Kind.ROLLOUT),
        "swarm": bytes(MANIFEST.swarm_id),
        "payload": envelope.payload,
        "signature": envelope.signature,
    }
    return encode(dict(enumerate({**frame, **fields}.values())))  # type: ignore[arg-type]


GENUINE = ALICE.message(MANIFEST)


@dataclass(frozen=True)
class Case:
    """A message and the rule that refuses it; messages in ``before`` are admitted first."""

    reason: Reason | None
    message: bytes
    now: float = NOW
    before: tuple[bytes, ...] = ()


CASES = {
    "genuine": Case(None, GENUINE),
    "genuine, of the epoch before": Case(None, ALICE.message(MANIFEST, epoch=EPOCH - 1)),
    "genuine, with a policy tag": Case(None, ALICE.message(MANIFEST, policy_tag=Digest(bytes(32)))),
    "genuine, last slot and largest group": Case(
        None, ALICE.message(MANIFEST, slot=31, completions=(b"7",) * 8)
    ),
    "genuine, another account's same slot": Case(None, GENUINE, before=(BOB.message(MANIFEST),)),
    "genuine, the slot of another epoch": Case(
        None, GENUINE, before=(ALICE.message(MANIFEST, epoch=EPOCH - 1),)
    ),
    "too large": Case(Reason.OVERSIZE, bytes(MAX_ENVELOPE_BYTES + 1)),
    "empty": Case(Reason.NOT_CANONICAL, b""),
    "a byte more": Case(Reason.NOT_CANONICAL, GENUINE + b"\x00"),
    "a byte less": Case(Reason.NOT_CANONICAL, GENUINE[:-1]),
    "JSON": Case(Reason.NOT_CANONICAL, b'{"answer": "7"}'),
    "a frame with a field more": Case(Reason.RESERVED, framed(reward=1)),
    "a payload with a field more": Case(
        Reason.SCHEMA,
        seal(
            Kind.ROLLOUT, MANIFEST.swarm_id, encode({**dict.fromkeys(range(6), 0), 24: 1}), ALICE.seed
        ).to_bytes(),
    ),
    "a payload that is no CBOR": Case(Reason.NOT_CANONICAL, framed(payload=b"\xff")),
    "a short signature": Case(Reason.OUT_OF_BOUNDS, framed(signature=bytes(63))),
    "more completions than the swarm allows": Case(
        Reason.OUT_OF_BOUNDS, ALICE.message(MANIFEST, completions=(b"7",) * 9)
    ),
    "another version": Case(Reason.WRONG_VERSION, framed(version=2)),
    "an unknown kind": Case(Reason.WRONG_KIND, framed(kind=24)),
    "a reserved kind": Case(Reason.RESERVED, framed(kind=23)),
    "a certificate": Case(Reason.WRONG_KIND, ALICE.certificate(MANIFEST).to_bytes()),
    "a rollout relabelled as a certificate": Case(Reason.WRONG_KIND, framed(kind=int(Kind.CERTIFICATE))),
    "another swarm": Case(Reason.WRONG_SWARM, ALICE.message(OTHER_SWARM)),
    "an old epoch": Case(Reason.EPOCH_PAST, ALICE.message(MANIFEST, epoch=EPOCH - 2)),
    "a genuine message, late": Case(Reason.EPOCH_PAST, GENUINE, NOW + 2 * EPOCH_SECONDS),
    "a coming epoch": Case(Reason.EPOCH_FUTURE, ALICE.message(MANIFEST, epoch=EPOCH + 1)),
    "the last of all epochs": Case(Reason.EPOCH_FUTURE, ALICE.message(MANIFEST, epoch=2**64 - 1)),
    "the same again": Case(Reason.SEEN, GENUINE, before=(GENUINE,)),
    "the same content under a wrong signature": Case(Reason.SEEN, signed_by(BOB), before=(GENUINE,)),
    "nobody's": Case(Reason.CERTIFICATE_UNKNOWN, STRANGER.message(MANIFEST)),
    "a known node in a stranger's account": Case(
        Reason.CERTIFICATE_UNKNOWN, ALICE.message(MANIFEST, account=BOB.account)
    ),
    "a slot beyond the quota": Case(Reason.SLOT_OVER_QUOTA, ALICE.message(MANIFEST, slot=32)),
    "a family that the suite lacks": Case(Reason.UNKNOWN_FAMILY, ALICE.message(MANIFEST, family=3)),
    "another's signature": Case(Reason.BAD_SIGNATURE, signed_by(MALLORY)),
    "the signature of the account's other key": Case(Reason.BAD_SIGNATURE, signed_by(ALICES_SECOND_KEY)),
    "no signature": Case(Reason.BAD_SIGNATURE, framed(signature=bytes(64))),
    "an old message in a new frame": Case(
        Reason.BAD_SIGNATURE,
        framed(
            payload=ALICE.rollout().to_payload(),
            signature=ALICE.seal(OTHER_SWARM, ALICE.rollout()).signature,
        ),
    ),
    "a second content": Case(
        Reason.EQUIVOCATION, ALICE.message(MANIFEST, completions=(b"9",)), before=(GENUINE,)
    ),
    "a second content of the account's other key": Case(
        Reason.EQUIVOCATION, ALICES_SECOND_KEY.message(MANIFEST), before=(GENUINE,)
    ),
    "a second content for another family": Case(
        Reason.EQUIVOCATION, ALICE.message(MANIFEST, family=1), before=(GENUINE,)
    ),
    "a second content that somebody forged": Case(
        Reason.BAD_SIGNATURE, signed_by(MALLORY, completions=(b"9",)), before=(GENUINE,)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_message_has_its_reason(case: Case) -> None:
    gate = admission()
    for earlier in case.before:
        gate.admit(earlier, NOW)
    assert reason_of(gate.admit, case.message, case.now) is case.reason


def test_expired_certificates() -> None:
    store = make_certificates(MANIFEST)
    store.admit(ALICE.certificate(MANIFEST, not_after=int(NOW) + 5).to_bytes(), NOW)
    gate = Admission(MANIFEST, store)
    assert reason_of(gate.admit, GENUINE, NOW + 5) is Reason.CERTIFICATE_EXPIRED
    assert reason_of(gate.admit, GENUINE, NOW + 4) is None


def test_every_reason_of_the_stages_before_forwarding_was_reached() -> None:
    reached = {case.reason for case in CASES.values()} | {Reason.CERTIFICATE_EXPIRED}
    elsewhere = {
        Reason.FLOOD,
        Reason.NOT_AN_AUDITOR,
        Reason.TERMS_UNKNOWN,
    }  # the transport's and the ledger's
    of_certificates = {Reason.CERTIFICATE_MALFORMED}
    of_islands = {Reason.WRONG_ISLAND, Reason.NO_BOND}  # and of the gate
    of_contributions = {Reason.NOT_ITS_TURN, Reason.CONTRIBUTION_QUOTA}
    before = {reason for reason in Reason if verdict(reason) is not Verdict.ACCEPT}
    assert reached - {None} == before - elsewhere - of_certificates - of_contributions - of_islands


def test_the_admitted_rollout_has_all_its_fields() -> None:
    rollout = ALICE.rollout()
    envelope = ALICE.seal(MANIFEST, rollout)
    admitted = admission().admit(GENUINE, NOW)
    assert admitted == AdmittedRollout(envelope.content_id, rollout)
    assert admitted.account == ALICE.account


FAULTS = [
    Reason.OVERSIZE,
    Reason.NOT_CANONICAL,
    Reason.WRONG_SWARM,
    Reason.EPOCH_PAST,
    Reason.CERTIFICATE_UNKNOWN,
    Reason.SLOT_OVER_QUOTA,
    Reason.UNKNOWN_FAMILY,
    Reason.BAD_SIGNATURE,
    Reason.EQUIVOCATION,
]
"""Faults in the order of their checks."""


def faulty(*faults: Reason) -> bytes:
    """Return a message with all of these faults, to a node that admitted Alice's slot 0."""
    author = STRANGER if Reason.CERTIFICATE_UNKNOWN in faults else ALICE
    changes: dict[str, object] = {"completions": (b"9",)}
    if Reason.EPOCH_PAST in faults:
        changes["epoch"] = 0
    if Reason.UNKNOWN_FAMILY in faults:
        changes["family"] = 200
    changes["slot"] = 999 if Reason.SLOT_OVER_QUOTA in faults else int(Reason.EQUIVOCATION not in faults)
    envelope = author.seal(
        OTHER_SWARM if Reason.WRONG_SWARM in faults else MANIFEST, author.rollout(**changes)
    )
    if Reason.BAD_SIGNATURE in faults:
        envelope = replace(envelope, signature=bytes(64))
    padding = MAX_ENVELOPE_BYTES if Reason.OVERSIZE in faults else int(Reason.NOT_CANONICAL in faults)
    return envelope.to_bytes() + bytes(padding)


@pytest.mark.parametrize("faults", [*combinations(FAULTS, 1), *combinations(FAULTS, 2)], ids=" + ".join)
def test_the_cheapest_check_comes_first(faults: tuple[Reason, ...]) -> None:
    gate = admission()
    gate.admit(GENUINE, NOW)
    assert reason_of(gate.admit, faulty(*faults), NOW) is faults[0]


def test_no_single_flipped_bit_is_accepted() -> None:
    message = ALICE.message(MANIFEST, policy_tag=Digest(b"\x05" * 32))
    gate = admission()
    verdicts = {verdict_of(gate.admit, flipped, NOW) for flipped in bit_flips(message)}
    assert verdicts == {Verdict.IGNORE, Verdict.REJECT}
    assert verdict_of(gate.admit, message, NOW) is Verdict.ACCEPT


@given(damaged(GENUINE), st.binary(max_size=200))
def test_changed_messages_and_noise_are_rejected(changed: bytes, noise: bytes) -> None:
    gate = admission()
    assert verdict_of(gate.admit, noise, NOW) is Verdict.REJECT
    assert (verdict_of(gate.admit, changed, NOW) is Verdict.ACCEPT) == (changed == GENUINE)


@given(damaged(ALICE.rollout(completions=(b"7", b"8", b"9")).to_payload()))
def test_any_signed_payload_gets_a_verdict(payload: bytes) -> None:
    """Mutations behind the signature reach the deeper stages."""
    message = seal(Kind.ROLLOUT, MANIFEST.swarm_id, payload, ALICE.seed).to_bytes()
    outcome = outcome_of(admission().admit, message, NOW)
    if isinstance(outcome, AdmittedRollout):
        assert outcome.rollout.to_payload() == payload
        assert outcome.rollout.node == ALICE.node
    else:
        assert verdict(outcome) is not Verdict.ACCEPT


@given(damaged(GENUINE), st.floats(0, 4e9), st.floats(0, 4e9))
def test_a_rejected_message_is_never_accepted_later(message: bytes, then: float, now: float) -> None:
    if verdict_of(admission().admit, message, then) is Verdict.REJECT:
        assert verdict_of(admission().admit, message, now) is not Verdict.ACCEPT


rollout_changes = st.fixed_dictionaries(
    {
        "slot": st.integers(0, 31),
        "family": st.integers(0, 2),
        "completions": st.lists(st.text(max_size=9).map(str.encode), min_size=1, max_size=8).map(tuple),
    }
)


@given(rollout_changes)
def test_a_replay_in_another_swarm_is_refused(changes: dict[str, object]) -> None:
    elsewhere = make_admission(OTHER_SWARM, ALICE)
    envelope = ALICE.seal(MANIFEST, ALICE.rollout(**changes))
    assert reason_of(elsewhere.admit, envelope.to_bytes(), NOW) is Reason.WRONG_SWARM
    relabelled = replace(envelope, swarm_id=OTHER_SWARM.swarm_id).to_bytes()
    assert reason_of(elsewhere.admit, relabelled, NOW) is Reason.BAD_SIGNATURE
    assert reason_of(elsewhere.admit, ALICE.message(OTHER_SWARM, **changes), NOW) is None


@given(
    st.dictionaries(st.tuples(st.sampled_from([ALICE, BOB]), st.integers(0, 7)), rollout_changes, max_size=8),
    st.data(),
)
def test_order_and_copies_do_not_matter_to_honest_traffic(
    traffic: dict[tuple[Identity, int], dict[str, object]], data: st.DataObject
) -> None:
    messages = [
        who.message(MANIFEST, **{**changes, "slot": slot}) for (who, slot), changes in traffic.items()
    ]
    arrivals = data.draw(st.permutations(messages + data.draw(_some(messages))))
    gate, heard = admission(), set[bytes]()
    for message in arrivals:
        assert reason_of(gate.admit, message, NOW) is (Reason.SEEN if message in heard else None)
        heard.add(message)


def test_a_forged_copy_does_not_shadow_the_genuine_message() -> None:
    gate = admission()
    for forged in (framed(signature=bytes(64)), signed_by(MALLORY), signed_by(MALLORY, completions=(b"9",))):
        assert reason_of(gate.admit, forged, NOW) is Reason.BAD_SIGNATURE
    assert gate.admit(GENUINE, NOW).rollout == ALICE.rollout()


def test_a_message_refused_temporarily_is_accepted_later() -> None:
    store = make_certificates(MANIFEST, BOB)
    gate = Admission(MANIFEST, store)
    assert reason_of(gate.admit, GENUINE, NOW - EPOCH_SECONDS) is Reason.EPOCH_FUTURE
    assert reason_of(gate.admit, GENUINE, NOW) is Reason.CERTIFICATE_UNKNOWN
    store.admit(ALICE.certificate(MANIFEST).to_bytes(), NOW)
    assert gate.admit(GENUINE, NOW).rollout == ALICE.rollout()


def test_memory_is_bounded_and_evicts_the_oldest_first() -> None:
    gate = admission(max_seen=4)
    sent = [ALICE.message(MANIFEST, slot=slot) for slot in range(10)]
    for message in sent:
        gate.admit(message, NOW)
    assert [reason_of(gate.admit, message, NOW) for message in sent[6:]] == [Reason.SEEN] * 4
    assert reason_of(gate.admit, sent[0], NOW) is None


def test_more_slots_than_memory_holds_are_never_used_twice() -> None:
    gate = admission(max_seen=4)
    for slot in range(10):
        gate.admit(ALICE.message(MANIFEST, slot=slot), NOW)
    for slot in range(10):
        second = ALICE.message(MANIFEST, slot=slot, completions=(b"9",))
        assert _reason(gate, second) is Reason.EQUIVOCATION


def test_floods_of_refused_messages_leave_nothing_behind() -> None:
    gate = admission(max_seen=2)
    gate.admit(GENUINE, NOW)
    for number in range(20):
        assert verdict(_reason(gate, signed_by(MALLORY, completions=(b"%d" % number,)))) is Verdict.REJECT
        assert _reason(gate, ALICE.message(MANIFEST, completions=(b"%d" % number,))) is Reason.EQUIVOCATION
    assert _reason(gate, GENUINE) is Reason.SEEN


def _reason(gate: Admission, message: bytes) -> Reason:
    reason = reason_of(gate.admit, message, NOW)
    assert reason is not None
    return reason


def _some(messages: list[bytes]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.sampled_from(messages), max_size=4) if messages else st.just([])
