"""`sapo ledger payout`: the address that claims are paid to, and the delay of a change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from support.auditor_harness import WORKERS, AuditorHarness, World, agree, refuse
from support.ledger import STRANGER, address
from support.nodes import until

from sapo_client.account.payouts import payout
from sapo_client.errors import SapoError
from sapo_client.ledger.records import PayoutAddress
from sapo_protocol.identifiers import Account
from sapo_verification.jail.checkers import CheckerPool

ALICE, BOB = WORKERS
THIRD = address(STRANGER)
DELAY_SECONDS = 7 * 24 * 3600


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AuditorHarness]:
    world = World.create(tmp_path)
    yield AuditorHarness(world, ALICE, CheckerPool(world.manifest.suite), audits=False)
    world.chain.close()


def payout_state(harness: AuditorHarness) -> tuple[Account, tuple[Account, int]]:
    paying = harness.world.contracts.distributor
    return paying.payout(ALICE.account), paying.payout_change(ALICE.account)


def test_the_first_address_takes_effect_at_once_and_later_ones_after_a_delay(harness: AuditorHarness) -> None:
    config, chain = harness.config(), harness.world.chain
    nobody = Account(bytes(20)), 0
    assert payout(config, str(BOB.account), agree) == {
        "account": str(ALICE.account), "claims go to": str(BOB.account), "announced": None, "from": None,
    }  # fmt: skip
    assert payout_state(harness) == (BOB.account, nobody)
    with pytest.raises(SapoError, match="already"):
        payout(config, BOB.account.hex(), agree)

    chain.now_seconds = time.time() + 60  # announced by today's clock, as the command reads it
    answer = payout(config, str(THIRD), agree)
    effective = chain.engine.head.timestamp + DELAY_SECONDS
    assert payout_state(harness) == (BOB.account, (THIRD, effective))
    assert (answer["claims go to"], answer["announced"]) == (str(BOB.account), str(THIRD))
    with pytest.raises(SapoError, match="from 2"):
        payout(config, str(THIRD), agree)
    assert payout_state(harness) == (BOB.account, (THIRD, effective))


def test_an_announced_address_is_applied(harness: AuditorHarness) -> None:
    config, chain = harness.config(), harness.world.chain
    payout(config, str(BOB.account), agree)
    payout(config, str(THIRD), agree)  # by the test chain's clock, years ago
    chain.now_seconds = chain.engine.head.timestamp + DELAY_SECONDS
    answer = payout(config, str(THIRD), agree)
    assert (answer["claims go to"], answer["announced"]) == (str(THIRD), None)
    assert payout_state(harness) == (THIRD, (Account(bytes(20)), 0))


async def test_a_repeated_payout_request_announces_nothing_once_the_chain_has_it(
    harness: AuditorHarness,
) -> None:
    submit = partial(harness.ledger.set_payout, BOB.account, instead_of=PayoutAddress(ALICE.account))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.ledger.run)
        for _ in range(2):
            await submit()
            await until(lambda: not harness.ledger.status().pending)
        nursery.cancel_scope.cancel()
    assert harness.ledger.status().confirmed == 1
    assert payout_state(harness) == (BOB.account, (Account(bytes(20)), 0))


def test_without_consent_claims_stay_with_their_address(harness: AuditorHarness) -> None:
    with pytest.raises(SapoError, match="nothing was signed"):
        payout(harness.config(), str(BOB.account), refuse)
    assert payout_state(harness) == (ALICE.account, (Account(bytes(20)), 0))
    assert payout(harness.config(), str(THIRD), agree)["claims go to"] == str(THIRD), "nothing was queued"


@pytest.mark.parametrize("text", ["", "0x12", "zz" * 20, "12" * 21])
def test_an_invalid_account_is_refused(harness: AuditorHarness, text: str) -> None:
    with pytest.raises(SapoError, match="is not an account"):
        payout(harness.config(), text, refuse)
