"""`sapo ledger` and `sapo doctor` in a swarm whose gate asks for an attestation of every account."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.auditor_harness import AUDITORS, WORKERS, AuditorHarness, agree
from support.eas import ATTESTERS
from support.eas_world import AttestedWorld
from support.ledger import address

from sapo_client.account import bonds
from sapo_client.account.ledger_commands import status
from sapo_client.cli.checks import Check
from sapo_client.cli.checks_network import check_chain
from sapo_client.errors import SapoError
from sapo_verification.jail.checkers import CheckerPool

WHOM = [str(address(attester)) for attester in ATTESTERS]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AttestedWorld]:
    with AttestedWorld.running(tmp_path) as created:
        created.chain.now_seconds = time.time()  # the commands use the machine's clock
        yield created


async def _in_thread(command: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return await trio.to_thread.run_sync(lambda: command(*arguments, **options))


def _doctor(harness: AuditorHarness) -> Check:
    [found] = [
        check for check in check_chain(harness.config(), harness.manifest) if check.name == "attestation"
    ]
    return found


async def test_status_and_doctor_report_attesters_and_attestations(world: AttestedWorld) -> None:
    harness = AuditorHarness(world, WORKERS[0], CheckerPool(world.manifest.suite))
    account, config = harness.identity.account, harness.config()
    shown = await _in_thread(status, config)
    assert (shown["attestations"], shown["counts for"], shown["attesters to ask"]) == (
        0,
        0.0,
        ", ".join(WHOM),
    )
    assert await _in_thread(_doctor, harness) == Check(
        "attestation",
        "fail",
        f"{account} has no attestation: nothing that it makes counts",
        f"ask {WHOM[0]} or {WHOM[1]} to attest it; the attestation counts from the next epoch on",
    )
    world.eas.attest(ATTESTERS[0], account)
    shown = await _in_thread(status, config)
    assert (shown["attestations"], shown["counts for"], shown["attesters to ask"]) == (1, 1.0, None)
    assert await _in_thread(_doctor, harness) == Check("attestation", "ok", f"{account} is attested")


@pytest.mark.parametrize("command", [bonds.bond, bonds.leave])
async def test_a_bond_of_an_account_is_refused_under_an_attestation_gate(
    world: AttestedWorld, command: Callable[..., dict[str, Any]]
) -> None:
    harness = AuditorHarness(world, WORKERS[0], CheckerPool(world.manifest.suite))
    with pytest.raises(SapoError, match="of this swarm need an attestation, not a bond") as told:
        await _in_thread(command, harness.config(), None, agree)
    assert told.value.hint == f"ask {WHOM[0]} or {WHOM[1]} to attest {harness.identity.account}"


async def test_an_auditor_bond_is_accepted_under_an_attestation_gate(world: AttestedWorld) -> None:
    config = AuditorHarness(world, AUDITORS[0], CheckerPool(world.manifest.suite)).config()
    assert (await _in_thread(bonds.bond, config, None, agree))["done"] == "nothing, for the bond suffices"
    with pytest.raises(SapoError, match="an attestation, not a bond"):
        await _in_thread(bonds.bond, config, None, agree, account=True)
