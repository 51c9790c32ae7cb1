"""An auditor whose bond falls short, and a treasury that cannot pay: told by every outlet, and over again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio
from eth_account import Account as EthAccount
from support.health_chain import ChainTrial, begin_with_chain
from support.health_trial import Begin, require_row
from support.ledger import ALICE, AUDITORS, DEPLOYER, QUORUM, address
from support.swarm import Identity
from trio.testing import MockClock

from sapo_client.node.auditing.funds import LOOK_SECONDS
from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Suite

OWN = Identity(1)
"""The node's identity."""

TOKEN = 10**18

OWN_AND_THREE = tuple(sorted((OWN.account, *map(address, AUDITORS[:QUORUM]))))
"""Auditors: the node, and as many others as a posting needs."""


async def told_row(on_chain: ChainTrial, code: str) -> str:
    """Wait until a reading has the finding everywhere; return its row of the page."""
    told = await on_chain.trial.until_told(code)
    assert all(told.everywhere.values()), told
    require_row(told.row())
    return told.row()


async def send(on_chain: ChainTrial, to: Account, data: bytes) -> None:
    """Let the deployer send a transaction."""
    await trio.to_thread.run_sync(partial(on_chain.chain.send, DEPLOYER, to, data))


async def test_an_auditor_whose_bond_falls_short_is_told(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    terms = {"auditors": OWN_AND_THREE, "auditor_bond": 100 * TOKEN}
    on_chain = begin_with_chain(begin, weekdays, tmp_path, terms=terms, audit=True)
    vault, token = on_chain.contracts.vault, on_chain.contracts.token
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(OWN.account)
        own = EthAccount.from_key(OWN.secret)
        leave = partial(on_chain.chain.send, own, vault.address, vault.request_exit(2 * TOKEN))
        await trio.to_thread.run_sync(leave)  # before the node sends transactions of the same account
        await on_chain.trial.start(nursery)
        await on_chain.trial.rounds(1)
        on_chain.trial.pass_by(LOOK_SECONDS)  # it knows the auditors now
        row = await told_row(on_chain, "auditor_bond")
        assert row.startswith("| `auditor_bond` | error | auditor 0xACCOUNT has N tokens bonded, and N ")
        await send(on_chain, token.address, token.approve(vault.address, 2 * TOKEN))
        await send(on_chain, vault.address, vault.deposit(OWN.account, 2 * TOKEN))
        await next_reading(on_chain)
        await on_chain.trial.until_over("auditor_bond")
        await on_chain.trial.stop()
    on_chain.chain.close()


async def test_a_treasury_that_cannot_pay_is_told(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    terms = {"reward_tokens": 0, "tokens_per_point": TOKEN}
    on_chain = begin_with_chain(begin, weekdays, tmp_path, terms=terms)
    contracts = on_chain.contracts
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(OWN.account)
        await on_chain.trial.start(nursery)
        assert "| error | the swarm's treasury holds N tokens" in await told_row(on_chain, "treasury_empty")
        await fund(on_chain, 2)
        await next_reading(on_chain)
        await on_chain.trial.until_over("treasury_empty")

        on_chain.trial.suspend(36_000)
        await on_chain.send_coins(OWN.account)  # in a block of the next epoch
        await trio.to_thread.run_sync(partial(contracts.settle, 0, {address(ALICE): 5}))
        await next_reading(on_chain)
        assert "| warning | the swarm's treasury holds N tokens" in await told_row(on_chain, "treasury_empty")
        await fund(on_chain, 3)
        await next_reading(on_chain)
        await on_chain.trial.until_over("treasury_empty")
        await on_chain.trial.stop()
    on_chain.chain.close()


async def next_reading(on_chain: ChainTrial) -> None:
    """Let time pass, after a round: several jumps in one call of the learner would end it."""
    await on_chain.trial.rounds(1)
    on_chain.trial.pass_by(LOOK_SECONDS)


async def fund(on_chain: ChainTrial, tokens: int) -> None:
    """Let the deployer send tokens to the contract that pays claims."""
    contracts = on_chain.contracts
    data = contracts.token.transfer(contracts.distributor.address, tokens * TOKEN)
    await send(on_chain, contracts.token.address, data)
