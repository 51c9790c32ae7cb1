"""Which accounts an auditor accuses, when, and how many: each accusation may burn a bond, and costs a fee."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.auditor_harness import AUDITORS, AuditorHarness, Funded, World
from support.ledger import ACCOUNT_EXIT_SECONDS, BOND_UNIT, GENESIS_SECONDS, POINTS_CAP

from sapo_client.node.auditing import accuser
from sapo_client.node.auditing.accuser import Accuser
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.gate import BondGate
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.equivocations import ProofStore
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.reputation.evidence import Reputation

EPOCH = 100
FINALITY_SECONDS = 12
POINT = BOND_UNIT // POINTS_CAP
"""The smallest bond that is worth a point."""

OWN = AUDITORS[0]
LIARS = tuple(Funded(number) for number in (2, 3, 4, 5))


class AccuserHarness:
    """One auditor's accuser, with a real ledger, and the proofs that it holds.

    Attributes:
        auditing: the epochs of which this account is an auditor.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        gate = BondGate(world.contracts.gate.address, BOND_UNIT, ACCOUNT_EXIT_SECONDS + FINALITY_SECONDS)
        self.manifest: Manifest = replace(world.manifest, finality_seconds=FINALITY_SECONDS, gate=gate)
        harness = AuditorHarness(world, OWN, CheckerPool(world.manifest.suite))
        self.ledger, self.log = harness.ledger, harness.node
        certificates = CertificateStore(self.manifest)
        for liar in (OWN, *LIARS):
            lasting = liar.certificate(self.manifest, GENESIS_SECONDS, GENESIS_SECONDS + 86_400)
            certificates.admit(lasting.to_bytes(), world.now())
        self.proofs = ProofStore(self.manifest, certificates, Reputation(":memory:"), Account(bytes(20)))
        self.auditing = {EPOCH - 1, EPOCH, EPOCH + 1}
        self.accuser = Accuser(
            manifest=self.manifest,
            own=OWN.account,
            auditors=lambda epoch: (OWN.account,) if epoch in self.auditing else (),
            ledger=self.ledger,
            proofs=self.proofs,
            events=harness.node.log,
            clock=world.now,
        )

    def prove(self, liar: Funded, epoch: int = EPOCH) -> tuple[object, ...]:
        """Hold a proof of two contents of one slot; return the accusation by it, as in the event."""
        one, other = (
            liar.message(self.manifest, epoch=epoch, slot=0, completions=(answer, b"x"))
            for answer in (b"1", b"2")
        )
        assert self.proofs.prove(one, other, self.world.now())
        return epoch, liar.account.hex(), self.proofs.held()[epoch, liar.account].hex()

    async def accused(self) -> list[tuple[object, ...]]:
        """Return the accusations after a look: those that are queued are those that are written as events."""
        await self.accuser.look()
        events = self.log.events("accused")
        assert await self.ledger.pending("accuse") == len(events)
        return [tuple(event[name] for name in ("epoch", "account", "proof")) for event in events]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AccuserHarness]:
    with World.running(tmp_path, workers=LIARS, account_exit_seconds=ACCOUNT_EXIT_SECONDS) as world:
        for liar in LIARS[:3]:
            world.contracts.bond_account(liar.account, POINT)
        world.turn_to(EPOCH, FINALITY_SECONDS)
        yield AccuserHarness(world)


async def test_each_proof_against_another_account_is_accused_once(harness: AccuserHarness) -> None:
    harness.prove(OWN)
    expected = [harness.prove(liar) for liar in LIARS][:3]  # the last one's bond is worth nothing
    for _ in range(2):
        assert await harness.accused() == expected


async def test_an_epoch_is_accused_of_once_the_chain_has_begun_it_and_by_its_auditors(
    harness: AccuserHarness,
) -> None:
    """The contract refuses both until then, and what is refused is not tried again."""
    present, earlier = harness.prove(LIARS[0]), harness.prove(LIARS[1], EPOCH - 1)
    harness.auditing.clear()
    assert await harness.accused() == []
    harness.auditing |= {EPOCH, EPOCH - 1}
    harness.world.turn_to(EPOCH, FINALITY_SECONDS - 1)
    assert await harness.accused() == [earlier]
    harness.world.turn_to(EPOCH, FINALITY_SECONDS)
    assert await harness.accused() == [earlier, present]


async def test_accusations_beyond_an_epochs_limit_wait_for_the_next_one(
    harness: AccuserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not made, here of an account without a bond, does not count."""
    monkeypatch.setattr(accuser, "MAX_IN_EPOCH", 2)
    _, *expected = [harness.prove(liar) for liar in (LIARS[3], *LIARS[:3])]
    for _ in range(2):
        assert await harness.accused() == expected[:2]
    harness.world.turn_to(EPOCH + 1, FINALITY_SECONDS)
    assert await harness.accused() == expected


async def test_an_accusation_without_effect_is_tried_again_in_the_next_epoch(harness: AccuserHarness) -> None:
    """An auditor whose own bond was too small for a moment accused by that proof only after a restart."""
    expected = harness.prove(LIARS[3])
    assert await harness.accused() == []
    harness.world.contracts.bond_account(LIARS[3].account, POINT)
    assert await harness.accused() == [], "one question to the chain in an epoch"
    harness.world.turn_to(EPOCH + 1, FINALITY_SECONDS)
    for _ in range(2):
        assert await harness.accused() == [expected]
