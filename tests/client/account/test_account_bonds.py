"""`sapo ledger bond`, `exit` and `withdraw` of an account, in a swarm whose gate asks for a bond."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.auditor_harness import AUDITORS, WORKERS, AuditorHarness, Funded, World, agree
from support.ledger import ACCOUNT_EXIT_SECONDS, BOND_UNIT, DEPLOYER, POINTS_CAP

from sapo_client.account import bonds
from sapo_client.account.ledger_commands import status
from sapo_client.errors import SapoError
from sapo_verification.jail.checkers import CheckerPool

WHOLE = 10**18
UNIT = BOND_UNIT // WHOLE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World.running(tmp_path, account_exit_seconds=ACCOUNT_EXIT_SECONDS) as created:
        yield created


def _with_tokens(world: World, identity: Funded, tokens: int) -> AuditorHarness:
    token = world.contracts.token
    world.chain.send(DEPLOYER, token.address, token.transfer(identity.account, tokens * WHOLE))
    return AuditorHarness(world, identity, CheckerPool(world.manifest.suite))


async def _in_thread(
    command: Callable[..., dict[str, Any]], *arguments: Any, **options: Any
) -> dict[str, Any]:
    return await trio.to_thread.run_sync(lambda: command(*arguments, **options))


async def test_an_account_bonds_partly_exits_and_withdraws(world: World) -> None:
    world.chain.now_seconds = time.time()  # the commands go by the machine's clock
    harness = _with_tokens(world, WORKERS[0], 40)
    config = harness.config()
    assert (await _in_thread(bonds.bond, config, WHOLE, agree))["counts for"] == 1 / UNIT
    told = await _in_thread(bonds.bond, config, None, agree)
    assert (told["account's tokens bonded"], told["counts for"], told["tokens"]) == (UNIT, 1.0, 40 - UNIT)
    assert (await _in_thread(bonds.bond, config, None, agree))["done"] == "nothing, for the bond suffices"
    told = await _in_thread(bonds.leave, config, 4 * WHOLE, agree)
    assert (told["account's tokens exiting"], told["points per epoch at most"]) == (
        4.0,
        POINTS_CAP * (UNIT - 4) // UNIT,
    )
    assert told["tokens bonded"] == 0.0  # the vault's, which is the auditors'
    with pytest.raises(SapoError, match="can be withdrawn from"):
        await _in_thread(bonds.withdraw, config, agree)
    with pytest.raises(SapoError, match="12 tokens bonded"):
        await _in_thread(bonds.leave, config, 13 * WHOLE, agree)


async def test_an_auditor_has_a_bond_of_each_kind(world: World) -> None:
    harness = _with_tokens(world, AUDITORS[0], 40)
    config = harness.config()
    assert (await _in_thread(bonds.bond, config, None, agree))["done"] == "nothing, for the bond suffices"
    told = await _in_thread(bonds.bond, config, 2 * WHOLE, agree, account=True)
    assert (told["bond suffices"], told["account's tokens bonded"]) == (True, 2.0)
    shown = await _in_thread(status, config)
    assert (shown["bond suffices"], shown["counts for"]) == (True, 2 / UNIT)


async def test_without_a_gate_there_is_no_bond_of_an_account(tmp_path: Path) -> None:
    world = World.create(tmp_path)
    config = AuditorHarness(world, AUDITORS[0], CheckerPool(world.manifest.suite)).config()
    with pytest.raises(SapoError, match="need no bond"):
        await _in_thread(bonds.bond, config, WHOLE, agree, account=True)
    world.chain.close()
