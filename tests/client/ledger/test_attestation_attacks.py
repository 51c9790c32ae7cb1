"""Attackers of a gate that asks for an attestation, on the real Ethereum Attestation Service."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.eas import ATTESTERS, Eas, deploy_eas, deploy_resolver, schema_with, set_revocation
from support.ledger import ALICE, BOB, Contracts, address, found

from sapo_client.ledger.attestations import AttestationHistory, require_service
from sapo_client.ledger.transactions import Refused
from sapo_protocol.identifiers import Account
from sapo_protocol.terms.gate import EasGate

A, B = address(ALICE), address(BOB)
FIRST, SECOND = ATTESTERS


@pytest.fixture
def contracts(tmp_path: Path) -> Iterator[Contracts]:
    made = found(tmp_path / "chain.sqlite")
    yield made
    made.chain.close()


@pytest.fixture
def eas(contracts: Contracts) -> Eas:
    """The service, a second after the gate's block."""
    deployed = deploy_eas(contracts.chain)
    contracts.chain.now_seconds += 1
    return deployed


def counted(eas: Eas, gate: EasGate | None = None) -> Mapping[Account, int]:
    """Return the attestations that count in the last block."""
    history = AttestationHistory(eas.chain.rpc, gate or eas.gate())
    return dict(history.at(eas.chain.engine.head.block_number))


def later(eas: Eas) -> None:
    """Let the next transaction's block be a second younger."""
    eas.chain.now_seconds += 1


def test_an_attestation_is_neither_forged_nor_passed_on(eas: Eas) -> None:
    """Bob has no attestation: he attests himself, refers to Alice's, and signs in an attester's name."""
    uid = eas.attest(FIRST, A)
    eas.attest(BOB, B)
    eas.attest(BOB, B, refers_to=uid)
    schema, data, signature, _, deadline = eas.signed_for(BOB, B)
    with pytest.raises(Refused):
        eas.attest_by_delegation(BOB, (schema, data, signature, FIRST.address, deadline))
    assert counted(eas) == {A: 1}


def test_a_signed_attestation_serves_once_and_for_its_account_alone(eas: Eas) -> None:
    """Whoever holds an attester's signature may send it, once, and for nobody else."""
    schema, data, signature, attester, deadline = request = eas.signed_for(FIRST, A)
    for_bob = (BOB.address, *data[1:])
    with pytest.raises(Refused):
        eas.attest_by_delegation(BOB, (schema, for_bob, signature, attester, deadline))
    uid = eas.attest_by_delegation(BOB, request)
    with pytest.raises(Refused):
        eas.attest_by_delegation(BOB, request)
    assert counted(eas) == {A: 1}
    later(eas)
    eas.revoke(FIRST, uid)
    with pytest.raises(Refused):
        eas.attest_by_delegation(BOB, request)
    assert counted(eas) == {}


def test_an_attestation_that_ended_does_not_come_back(eas: Eas) -> None:
    """The same attester attests again with an end; when it is over, the revoked one does not count either."""
    uid = eas.attest(FIRST, A)
    later(eas)
    eas.revoke(FIRST, uid)
    later(eas)
    end = int(eas.chain.now_seconds) + 10
    eas.attest(FIRST, A, expiration_seconds=end, refers_to=uid)
    assert counted(eas) == {A: 1}
    eas.chain.now_seconds = float(end)
    eas.attest(BOB, B)  # a block
    assert counted(eas) == {}
    with pytest.raises(Refused):
        eas.revoke(FIRST, uid)


def test_one_attester_revokes_nothing_of_another(eas: Eas) -> None:
    uid = eas.attest(FIRST, A)
    for other in (SECOND, BOB, ALICE):
        with pytest.raises(Refused):
            eas.revoke(other, uid)
    assert counted(eas) == {A: 1}


def test_the_owner_of_a_schemas_resolver_keeps_an_attester_from_revoking(eas: Eas) -> None:
    """So a founder is told of a resolver, and of a schema whose attestations cannot be revoked."""
    resolver = deploy_resolver(eas)
    resolved = replace(eas.gate(), schema=schema_with(eas, resolver, revocable=True))
    uid = eas.attest(FIRST, A, schema=resolved.schema)
    later(eas)
    with pytest.raises(Refused):  # the owner allows no revocation yet
        eas.revoke(FIRST, uid, schema=resolved.schema)
    assert counted(eas, resolved) == {A: 1}
    assert require_service(eas.chain.rpc, resolved).concerns == (
        f"the contract {resolver} resolves the schema: its owner can refuse attestations, and can keep"
        " attesters from revoking them",
    )
    set_revocation(eas, resolver, allowed=True)
    eas.revoke(FIRST, uid, schema=resolved.schema)
    assert counted(eas, resolved) == {}


def test_a_schema_without_revocation_keeps_an_account_for_ever(eas: Eas) -> None:
    lasting = replace(eas.gate(), schema=schema_with(eas, None, revocable=False))
    uid = eas.attest(FIRST, A, schema=lasting.schema, revocable=False)
    with pytest.raises(Refused):
        eas.revoke(FIRST, uid, schema=lasting.schema)
    assert counted(eas, lasting) == {A: 1}
    assert require_service(eas.chain.rpc, lasting).concerns == (
        "attestations of the schema cannot be revoked: an account counts until they expire",
    )
    assert require_service(eas.chain.rpc, eas.gate()).concerns == ()


def test_a_thief_of_an_attesters_key_makes_attestations_that_cannot_be_revoked(eas: Eas) -> None:
    """In every schema the attester chooses that for each attestation: only another manifest ends it."""
    uid = eas.attest(FIRST, B, revocable=False)
    with pytest.raises(Refused):
        eas.revoke(FIRST, uid)
    assert counted(eas) == {B: 1}
    assert counted(eas, eas.gate([SECOND])) == {}
