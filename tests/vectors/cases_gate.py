"""The gate: whose messages count where a bond or an attestation is asked for, and what is known (R5.6).

In epoch 3 Alice has the smallest bond that there is, Bob has none, Mallory more than a whole one. Where an
attestation is asked for, the same numbers count attestations.
"""

from collections.abc import Iterator
from typing import Any

from vectors.cases_equivocation import proof
from vectors.raw import cbor
from vectors.world import ALICE, BOB, EPOCH, MALLORY, MANIFESTS, STRANGER, Bonds, Case, Message, frame, one

from sapo_protocol.envelope import parse_envelope

GATE = MANIFESTS["bond gate"]
BONDS: Bonds = ((EPOCH, {ALICE.account: 1, MALLORY.account: 2 * 10**20}),)


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield from _rollouts()
    yield from _order()
    yield from _epochs()
    yield from _certificates()
    yield from _attested()
    yield _case("a proof against an account without a bond", None, proof(BOB, GATE), topic="equivocations")


def _case(name: str, rule: str | None, data: bytes, bonds: Bonds = BONDS, **options: Any) -> Case:
    return one(name, rule, data, manifest="bond gate", bonds=bonds, **options)


def _rollouts() -> Iterator[Case]:
    yield _case("a rollout with the smallest bond", None, ALICE.rollout(GATE))
    yield _case("a rollout without a bond", "R5.6", BOB.rollout(GATE))
    yield _case("a rollout with two bonds", None, MALLORY.rollout(GATE), certificates=("mallory",))
    yield _case("a bond of zero", "R5.6", ALICE.rollout(GATE), bonds=((EPOCH, {ALICE.account: 0}),))
    yield _case("nobody has a bond", "R5.6", ALICE.rollout(GATE), bonds=((EPOCH, {}),))
    yield _case("no bonds are known", None, BOB.rollout(GATE), bonds=())
    opened = MANIFESTS["open gate"]
    yield one("an open gate", None, BOB.rollout(opened), manifest="open gate", bonds=BONDS)


def _attested() -> Iterator[Case]:
    gate, bonds = MANIFESTS["eas gate"], ((EPOCH, {ALICE.account: 1, MALLORY.account: 2}),)

    def case(name: str, rule: str | None, data: bytes, **options: Any) -> Case:
        return one(name, rule, data, manifest="eas gate", **{"bonds": bonds, **options})

    yield case("a rollout with an attestation", None, ALICE.rollout(gate))
    yield case("a rollout with two attestations", None, MALLORY.rollout(gate), certificates=("mallory",))
    yield case("a rollout without an attestation", "R5.6", BOB.rollout(gate))
    yield case("no attestations are known", None, BOB.rollout(gate), bonds=())
    introduced = {"topic": "certificates", "certificates": ()}
    yield case("a certificate with an attestation", None, ALICE.certificate(gate), **introduced)
    yield case("a certificate without an attestation", "R5.6", BOB.certificate(gate), **introduced)
    auditors = (BOB.account.hex(),)
    certificate = BOB.certificate(gate)
    yield case(
        "an auditor's certificate without an attestation", None, certificate, auditors=auditors, **introduced
    )


def _order() -> Iterator[Case]:
    yield _case("without a bond and not introduced", "R5.6", STRANGER.rollout(GATE))
    yield _case("with a bond and not introduced", "R5.1", MALLORY.rollout(GATE))
    yield _case("without a bond and in a slot beyond", "R5.6", BOB.rollout(GATE, f3=32))
    yield _case("without a bond and too late", "R3.2", BOB.rollout(GATE, f2=0))
    yield _case("without a bond and forged", "R5.6", frame(GATE, payload=cbor(BOB.fields())))
    yield _case("with a bond and forged", "R7.1", frame(GATE, payload=cbor(ALICE.fields())))


def _epochs() -> Iterator[Case]:
    before: Bonds = ((EPOCH - 1, {BOB.account: 1}),)
    yield _case("a bond of the epoch before", None, BOB.rollout(GATE), bonds=before)
    yield _case("none in the epoch before", "R5.6", ALICE.rollout(GATE), bonds=before)
    both: Bonds = (*before, *BONDS)
    yield _case("a bond that has left", "R5.6", BOB.rollout(GATE), bonds=both)
    yield _case("a bond that had not left", None, BOB.rollout(GATE, f2=EPOCH - 1), bonds=both)
    yield _case("a bond that has come", None, ALICE.rollout(GATE), bonds=both)
    yield _case("a bond that had not come", "R5.6", ALICE.rollout(GATE, f2=EPOCH - 1), bonds=both)
    yield _case("only later bonds are known", None, BOB.rollout(GATE, f2=EPOCH - 1))
    far: Bonds = ((EPOCH - 2, {BOB.account: 1}), *BONDS)
    yield _case("two epochs before", None, BOB.rollout(GATE, f2=EPOCH - 1), bonds=far)


def _certificates() -> Iterator[Case]:
    def case(name: str, rule: str | None, data: bytes, **options: Any) -> Case:
        return _case(name, rule, data, topic="certificates", certificates=(), **options)

    yield case("a certificate with a bond", None, ALICE.certificate(GATE))
    yield case("a certificate without a bond", "R5.6", BOB.certificate(GATE))
    auditors = (BOB.account.hex(),)
    yield case("an auditor's certificate without a bond", None, BOB.certificate(GATE), auditors=auditors)
    yield case("a certificate of nobody knows", None, BOB.certificate(GATE), bonds=())
    forged = frame(GATE, kind=1, payload=parse_envelope(BOB.certificate(GATE), GATE.swarm_id).payload)
    yield case("a forged certificate without a bond", "R5.6", forged)
    messages = (
        Message("R5.6", BOB.certificate(GATE), "certificates"),
        Message("R5.6", BOB.rollout(GATE)),
        Message(None, ALICE.certificate(GATE), "certificates"),
        Message(None, ALICE.rollout(GATE)),
    )
    yield Case("who may be introduced", messages, manifest="bond gate", certificates=(), bonds=BONDS)
