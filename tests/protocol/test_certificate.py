"""Certificates: both signatures, one swarm, one registry, a bounded time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import certificates, damaged
from support.swarm import GENESIS_SECONDS, Identity, make_chain_manifest, make_manifest
from support.verdicts import reason_of

from sapo_protocol import secp256k1
from sapo_protocol.certificate import Certificate, open_certificate, parse_certificate
from sapo_protocol.constants import MAX_CERTIFICATE_SECONDS
from sapo_protocol.decoding import Value
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest

MANIFEST = make_manifest()
ALICE, MALLORY = Identity(1), Identity(2)
GENUINE = parse_certificate(ALICE.certificate(MANIFEST).payload)


def sealed(certificate: Certificate, signer: Identity = ALICE) -> SignedEnvelope:
    """Return a certificate with any content under a node's signature."""
    return seal(Kind.CERTIFICATE, MANIFEST.swarm_id, certificate.to_payload(), signer.seed)


def reason(envelope: SignedEnvelope, manifest: Manifest = MANIFEST) -> Reason | None:
    return reason_of(open_certificate, envelope, manifest.binding_domain)


@given(certificates())
def test_a_certificate_is_parsed_from_its_payload(certificate: Certificate) -> None:
    assert parse_certificate(certificate.to_payload()) == certificate


@pytest.mark.parametrize("manifest", [MANIFEST, make_chain_manifest()], ids=["no chain", "chain"])
def test_an_issued_certificate_opens(manifest: Manifest) -> None:
    envelope = ALICE.certificate(manifest)
    opened = open_certificate(envelope, manifest.binding_domain)
    assert opened == Certificate(
        node=ALICE.node,
        account=ALICE.account,
        not_before_seconds=GENESIS_SECONDS,
        not_after_seconds=GENESIS_SECONDS + 86_400,
        account_signature=opened.account_signature,
    )
    binding = NodeBinding(ALICE.node, manifest.swarm_id, GENESIS_SECONDS, GENESIS_SECONDS + 86_400)
    assert secp256k1.recover(binding.digest(manifest.binding_domain), opened.account_signature) == (
        ALICE.account
    )


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        (sealed(GENUINE), None),
        (sealed(GENUINE, MALLORY), Reason.BAD_SIGNATURE),
        (sealed(replace(GENUINE, node=MALLORY.node)), Reason.BAD_SIGNATURE),
        (sealed(replace(GENUINE, node=MALLORY.node), MALLORY), Reason.CERTIFICATE_MALFORMED),
        (sealed(replace(GENUINE, account=MALLORY.account)), Reason.CERTIFICATE_MALFORMED),
        (sealed(replace(GENUINE, not_before_seconds=0)), Reason.OUT_OF_BOUNDS),
        (sealed(replace(GENUINE, not_before_seconds=GENESIS_SECONDS - 1)), Reason.CERTIFICATE_MALFORMED),
        (sealed(replace(GENUINE, not_after_seconds=GENESIS_SECONDS + 1)), Reason.CERTIFICATE_MALFORMED),
        (sealed(replace(GENUINE, account_signature=bytes(65))), Reason.CERTIFICATE_MALFORMED),
        (sealed(replace(GENUINE, account_signature=bytes(64))), Reason.OUT_OF_BOUNDS),
        (seal(Kind.ROLLOUT, MANIFEST.swarm_id, GENUINE.to_payload(), ALICE.seed), Reason.WRONG_KIND),
    ],
)
def test_each_fault_has_its_reason(envelope: SignedEnvelope, expected: Reason | None) -> None:
    assert reason(envelope) is expected


def test_a_certificate_is_valid_in_one_swarm_and_one_registry() -> None:
    elsewhere = make_chain_manifest()
    moved = seal(Kind.CERTIFICATE, elsewhere.swarm_id, GENUINE.to_payload(), ALICE.seed)
    assert reason(moved, elsewhere) is Reason.CERTIFICATE_MALFORMED
    other_registry = make_chain_manifest(registry=Account(b"\x07" * 20))
    assert reason(ALICE.certificate(elsewhere), other_registry) is Reason.CERTIFICATE_MALFORMED


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, Reason.OUT_OF_BOUNDS),
        (1, None),
        (MAX_CERTIFICATE_SECONDS, None),
        (MAX_CERTIFICATE_SECONDS + 1, Reason.OUT_OF_BOUNDS),
        (-1, Reason.OUT_OF_BOUNDS),
    ],
)
def test_the_duration_of_a_certificate_is_bounded(length: int, expected: Reason | None) -> None:
    certificate = replace(GENUINE, not_after_seconds=GENESIS_SECONDS + length)
    assert reason_of(parse_certificate, certificate.to_payload()) is expected


def test_a_certificate_is_valid_from_its_first_second_until_before_its_last() -> None:
    certificate = replace(GENUINE, not_before_seconds=10, not_after_seconds=20)
    assert [certificate.covers(now) for now in (9.9, 10, 19.9, 20)] == [False, True, True, False]


@given(st.binary(max_size=300) | damaged(GENUINE.to_payload()))
def test_any_bytes_are_a_certificate_or_refused(payload: bytes) -> None:
    if reason_of(parse_certificate, payload) is None:
        assert parse_certificate(payload).to_payload() == payload


@given(damaged(GENUINE.to_payload()))
def test_no_edit_keeps_both_signatures_valid(payload: bytes) -> None:
    """The node may sign anything; the account's consent is to one node, swarm and time."""
    envelope = seal(Kind.CERTIFICATE, MANIFEST.swarm_id, payload, ALICE.seed)
    assert (reason(envelope) is None) == (payload == GENUINE.to_payload())


@pytest.mark.parametrize("key", range(5))
def test_every_field_is_required(key: int) -> None:
    fields: dict[int, Value] = {
        0: bytes(ALICE.node),
        1: bytes(ALICE.account),
        2: GENUINE.not_before_seconds,
        3: GENUINE.not_after_seconds,
        4: GENUINE.account_signature,
    }
    assert encode(fields) == GENUINE.to_payload()
    del fields[key]
    assert reason_of(parse_certificate, encode(fields)) is Reason.SCHEMA
