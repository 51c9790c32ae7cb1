"""Envelopes: one signature, one swarm, one role; any other bytes are refused without further effect."""

from dataclasses import replace
from functools import partial
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import damaged, fixed
from support.swarm import Identity, make_manifest
from support.verdicts import reason_of

from sapo_protocol import ed25519
from sapo_protocol.constants import MAX_ENVELOPE_BYTES
from sapo_protocol.decoding import Value
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope, open_payload, parse_envelope, seal, signed_bytes
from sapo_protocol.errors import LocalProtocolError, Reason
from sapo_protocol.identifiers import SwarmId

SWARM = make_manifest().swarm_id
ALICE = Identity(1)
kinds = st.sampled_from(list(Kind))
FIELDS: dict[int, Value] = {0: 1, 1: int(Kind.ROLLOUT), 2: bytes(SWARM), 3: b"payload", 4: bytes(64)}


@given(kinds, fixed(SwarmId), st.binary(max_size=100))
def test_an_envelope_is_parsed_from_its_bytes(kind: Kind, swarm: SwarmId, payload: bytes) -> None:
    envelope = seal(kind, swarm, payload, ALICE.seed)
    back = parse_envelope(envelope.to_bytes(), swarm, also=kind)
    assert back == envelope == SignedEnvelope(kind, swarm, payload, envelope.signature)
    assert back.is_signed_by(ALICE.node)
    assert not back.is_signed_by(Identity(2).node)
    assert open_payload(back, kind) == payload


@given(kinds, kinds, fixed(SwarmId), st.binary(max_size=40))
def test_a_signature_counts_for_one_kind_and_swarm(a: Kind, b: Kind, other: SwarmId, payload: bytes) -> None:
    envelope = seal(a, SWARM, payload, ALICE.seed)
    for forged in (replace(envelope, kind=b), replace(envelope, swarm_id=other)):
        same = forged == envelope
        assert forged.is_signed_by(ALICE.node) == same
        assert (forged.content_id == envelope.content_id) == same
    assert reason_of(partial(parse_envelope, also=a), envelope.to_bytes(), other) is (
        None if other == SWARM else Reason.WRONG_SWARM
    )
    assert reason_of(open_payload, envelope, b) is (None if a == b else Reason.WRONG_KIND)


def test_signed_bytes_of_a_worked_example() -> None:
    envelope = seal(Kind.ROLLOUT, SWARM, b"payload", ALICE.seed)
    signed = b"sapo/1/rollout\x00" + SWARM + b"payload"
    assert signed_bytes(Kind.ROLLOUT, SWARM, b"payload") == signed
    assert envelope.content_id == sha256(signed).digest()
    assert envelope.signature == ed25519.sign(ALICE.seed, signed)
    assert envelope.to_bytes() == encode({**FIELDS, 4: envelope.signature})
    assert [kind.tag for kind in Kind] == [
        b"sapo/1/certificate",
        b"sapo/1/rollout",
        b"sapo/1/tally",
        b"sapo/1/proposal",
        b"sapo/1/approval",
        b"sapo/1/equivocation",
        b"sapo/1/commitment",
    ]


@given(kinds, kinds)
def test_a_commitment_is_accepted_only_on_its_own_topic(kind: Kind, also: Kind) -> None:
    data = seal(kind, SWARM, b"payload", ALICE.seed).to_bytes()
    is_known = kind is not Kind.COMMITMENT or also is Kind.COMMITMENT
    assert reason_of(partial(parse_envelope, also=also), data, SWARM) is (
        None if is_known else Reason.RESERVED
    )
    assert reason_of(parse_envelope, data, SWARM) is (Reason.RESERVED if kind is Kind.COMMITMENT else None)


def test_two_signatures_over_one_content_have_one_id() -> None:
    envelope = seal(Kind.ROLLOUT, SWARM, b"payload", ALICE.seed)
    assert replace(envelope, signature=bytes(64)).content_id == envelope.content_id


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(MAX_ENVELOPE_BYTES + 1), Reason.OVERSIZE),
        (b"", Reason.NOT_CANONICAL),
        (encode(FIELDS) + b"\x00", Reason.NOT_CANONICAL),
        (encode(5), Reason.SCHEMA),
        (encode((1, 2)), Reason.SCHEMA),
        (encode({}), Reason.SCHEMA),
        (encode({key: FIELDS[key] for key in range(4)}), Reason.SCHEMA),
        (encode({**FIELDS, 24: 0}), Reason.SCHEMA),
        (encode({**FIELDS, 5: 0}), Reason.RESERVED),
        (encode({**FIELDS, 23: 0}), Reason.RESERVED),
        (encode({**FIELDS, 0: b"1"}), Reason.SCHEMA),
        (encode({**FIELDS, 0: 0}), Reason.WRONG_VERSION),
        (encode({**FIELDS, 0: 2}), Reason.WRONG_VERSION),
        (encode({**FIELDS, 1: 0}), Reason.WRONG_KIND),
        (encode({**FIELDS, 1: 24}), Reason.WRONG_KIND),
        (encode({**FIELDS, 1: 23}), Reason.RESERVED),
        (encode({**FIELDS, 1: 23, 2: bytes(32)}), Reason.WRONG_SWARM),
        (encode({**FIELDS, 1: "rollout"}), Reason.SCHEMA),
        (encode({**FIELDS, 2: bytes(31)}), Reason.SCHEMA),
        (encode({**FIELDS, 2: bytes(32)}), Reason.WRONG_SWARM),
        (encode({**FIELDS, 3: "payload"}), Reason.SCHEMA),
        (encode({**FIELDS, 4: bytes(63)}), Reason.OUT_OF_BOUNDS),
        (encode({**FIELDS, 4: bytes(65)}), Reason.OUT_OF_BOUNDS),
        (encode({**FIELDS, 4: 0}), Reason.SCHEMA),
        (encode(FIELDS), None),
    ],
)
def test_each_fault_has_its_reason(data: bytes, reason: Reason | None) -> None:
    assert reason_of(parse_envelope, data, SWARM) is reason


@given(st.binary(max_size=300) | damaged(encode(FIELDS)))
def test_any_bytes_are_an_envelope_or_refused(data: bytes) -> None:
    if reason_of(parse_envelope, data, SWARM) is None:
        assert parse_envelope(data, SWARM).to_bytes() == data


def test_the_largest_envelope_fits_and_no_larger_is_sealed() -> None:
    frame = len(seal(Kind.ROLLOUT, SWARM, bytes(MAX_ENVELOPE_BYTES - 200), ALICE.seed).to_bytes())
    room = MAX_ENVELOPE_BYTES - (frame - (MAX_ENVELOPE_BYTES - 200))
    largest = seal(Kind.ROLLOUT, SWARM, bytes(room), ALICE.seed)
    assert len(largest.to_bytes()) == MAX_ENVELOPE_BYTES
    assert parse_envelope(largest.to_bytes(), SWARM) == largest
    with pytest.raises(LocalProtocolError):
        seal(Kind.ROLLOUT, SWARM, bytes(room + 1), ALICE.seed)
