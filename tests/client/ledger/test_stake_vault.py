"""The rules of ``StakeVault``, on the embedded chain."""

from functools import partial

import pytest
from support.ledger import (
    ALICE,
    AUDITOR_BOND,
    AUDITORS,
    BOB,
    CHALLENGE_SECONDS,
    DEPLOYER,
    EPOCH_SECONDS,
    Contracts,
    address,
    refused_as,
)

from sapo_client.ledger.records import Stake

A, B = address(ALICE), address(BOB)
AUDITOR = AUDITORS[0]


@pytest.fixture
def rich(contracts: Contracts) -> Contracts:
    """Alice holds a thousand units, which the vault may take."""
    token = contracts.token
    contracts.chain.send(DEPLOYER, token.address, token.transfer(A, 1_000))
    contracts.chain.send(ALICE, token.address, token.approve(contracts.vault.address, 1_000))
    return contracts


def test_the_exit_outlasts_every_challenge_by_more_than_an_epoch(contracts: Contracts) -> None:
    assert contracts.vault.exit_seconds() > CHALLENGE_SECONDS + EPOCH_SECONDS
    assert contracts.vault.stake(address(AUDITOR)) == Stake(AUDITOR_BOND, 0, 0)


def test_a_deposit_is_credited_to_the_named_account(rich: Contracts) -> None:
    vault = rich.vault
    send = partial(rich.chain.send, ALICE, vault.address)
    send(vault.deposit(B, 600))
    send(vault.deposit(A, 400))
    assert (vault.bonded(A), vault.bonded(B)) == (400, 600)
    assert rich.token.balance(vault.address) == 1_000 + len(AUDITORS) * AUDITOR_BOND
    assert refused_as(lambda: send(vault.request_exit(401))) == "NotThatMuchBonded"
    assert refused_as(lambda: send(vault.deposit(A, 0))) == "NothingDeposited"
    assert refused_as(lambda: send(vault.deposit(A, 1))) == "ERC20InsufficientAllowance"


def test_a_bond_leaves_after_the_delay(rich: Contracts) -> None:
    chain, vault = rich.chain, rich.vault
    chain.send(ALICE, vault.address, vault.deposit(A, 1_000))
    assert refused_as(lambda: chain.send(ALICE, vault.address, vault.withdraw())) == "NothingExiting"
    chain.send(ALICE, vault.address, vault.request_exit(300))
    asked = chain.engine.head.timestamp
    assert vault.stake(A) == Stake(700, 300, asked + vault.exit_seconds())
    chain.now_seconds = asked + vault.exit_seconds() - 1
    assert refused_as(lambda: chain.send(ALICE, vault.address, vault.withdraw())) == "ExitTooEarly"
    chain.now_seconds = asked + vault.exit_seconds()
    assert refused_as(lambda: chain.send(BOB, vault.address, vault.withdraw())) == "NothingExiting"
    chain.send(ALICE, vault.address, vault.withdraw())
    assert vault.stake(A) == Stake(700, 0, asked + vault.exit_seconds())
    assert rich.token.balance(A) == 300


def test_a_second_exit_restarts_the_delay_of_the_first(rich: Contracts) -> None:
    chain, vault = rich.chain, rich.vault
    chain.send(ALICE, vault.address, vault.deposit(A, 1_000))
    chain.send(ALICE, vault.address, vault.request_exit(300))
    chain.now_seconds = chain.engine.head.timestamp + vault.exit_seconds() - 1
    chain.send(ALICE, vault.address, vault.request_exit(200))
    again = chain.engine.head.timestamp
    assert vault.stake(A) == Stake(500, 500, again + vault.exit_seconds())
    chain.now_seconds = again + 1
    assert refused_as(lambda: chain.send(ALICE, vault.address, vault.withdraw())) == "ExitTooEarly"


def test_only_the_verifier_slashes(contracts: Contracts) -> None:
    vault = contracts.vault
    for sender in (DEPLOYER, AUDITOR, ALICE):
        slash = vault.slash(address(AUDITOR), address(sender))
        assert refused_as(partial(contracts.chain.send, sender, vault.address, slash)) == "OnlySlasher"
    assert vault.bonded(address(AUDITOR)) == AUDITOR_BOND
