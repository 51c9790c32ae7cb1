"""`sapo ledger bond`, `exit` and `withdraw`: an auditor's bond is made, slashed, renewed and withdrawn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from support.auditor_harness import AUDITORS, WORKERS, AuditorHarness, World, agree, refuse
from support.ledger import (
    AUDITOR_BOND,
    CHALLENGE_SECONDS,
    DEPLOYER,
    EPOCH_SECONDS,
    keys,
    make_root,
    refused_as,
    sign,
)

from sapo_client.account.bonds import bond, leave, withdraw
from sapo_client.account.ledger_commands import status
from sapo_client.account.ledger_session import format_time
from sapo_client.config import Config
from sapo_client.errors import SapoError
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.fraud import Equivocation
from sapo_client.ledger.records import Stake
from sapo_client.node.runtime.statements import SignedFields
from sapo_verification.jail.checkers import CheckerPool

AUDITOR = AUDITORS[0]
EPOCH = 3
EXIT_SECONDS = CHALLENGE_SECONDS + 2 * EPOCH_SECONDS
WHOLE = 10**18


@pytest.fixture
def harness(world: World) -> AuditorHarness:
    return AuditorHarness(world, AUDITOR, CheckerPool(world.manifest.suite))


def give(world: World, tokens: int) -> None:
    token = world.contracts.token
    world.chain.send(DEPLOYER, token.address, token.transfer(AUDITOR.account, tokens))


def slash(world: World) -> None:
    """Let the auditor sign two roots for one epoch, and prove it."""
    a, b = make_root(EPOCH), make_root(EPOCH, archive=8)
    (of_a,), (of_b,) = (sign(root, world.contracts.domain, [keys(AUDITOR.number)]) for root in (a, b))
    world.contracts.prove(Equivocation(0, a, b, of_a, of_b))


def standing(*, tokens: int, bonded: int, exiting: int = 0, until: int | None = None) -> dict[str, Any]:
    return {
        "tokens": tokens / WHOLE,
        "auditor": True,
        "tokens bonded": bonded / WHOLE,
        "bond needed": AUDITOR_BOND / WHOLE,
        "bond suffices": bonded >= AUDITOR_BOND,
        "tokens exiting": exiting / WHOLE,
        "withdrawable from": None if until is None else format_time(until),
    }


def done(done: str = "as requested", **known: int) -> dict[str, Any]:
    return {"account": str(AUDITOR.account), "done": done, **standing(**known)}


def test_a_slashed_auditor_bonds_again_and_its_signature_counts_again(
    world: World, harness: AuditorHarness
) -> None:
    contracts, config = world.contracts, harness.config()
    root = make_root(EPOCH + 1)
    signatures = sign(root, contracts.domain, [keys(person.number) for person in AUDITORS[:2]])
    slash(world)
    assert contracts.vault.stake(AUDITOR.account) == Stake(0, 0, 0)
    assert refused_as(lambda: contracts.post(root, signatures)) == "TooFewSignatures"
    give(world, AUDITOR_BOND + 7)
    result = status(config)
    assert {name: result[name] for name in standing(tokens=0, bonded=0)} == standing(tokens=108, bonded=0)

    shown: list[SignedFields] = []
    assert bond(config, None, shown.extend) == done(tokens=7, bonded=AUDITOR_BOND)
    assert [(words["transaction"], words["tokens"]) for words in shown] == [
        ("SapoToken.approve", "0.000000000000000101"),
        ("StakeVault.deposit", "0.000000000000000101"),
    ]
    contracts.post(root, signatures)
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == root


def test_a_bond_is_withdrawn_after_its_delay(world: World, harness: AuditorHarness) -> None:
    config, vault = harness.config(), world.contracts.vault
    assert leave(config, 40, agree)["bond suffices"] is False
    assert leave(config, None, agree)["tokens bonded"] == 0
    until = world.chain.engine.head.timestamp + EXIT_SECONDS
    assert vault.stake(AUDITOR.account) == Stake(0, AUDITOR_BOND, until)
    world.chain.now_seconds = until
    assert withdraw(config, agree) == done(tokens=AUDITOR_BOND, bonded=0)
    assert bond(config, 100, agree) == done(tokens=1, bonded=100)
    assert bond(config, 1, agree) == done(tokens=0, bonded=AUDITOR_BOND)


def test_exiting_tokens_are_not_withdrawn_too_early(world: World, harness: AuditorHarness) -> None:
    config = harness.config()
    world.chain.now_seconds = time.time() + 60  # the command reads today's clock
    result = leave(config, 40, agree)
    until = world.chain.engine.head.timestamp + EXIT_SECONDS
    assert result == done(tokens=0, bonded=AUDITOR_BOND - 40, exiting=40, until=until)
    with pytest.raises(SapoError, match=f"can be withdrawn from {format_time(until)}") as refusal:
        withdraw(config, refuse)
    assert "again after that time" in refusal.value.hint


REFUSED: dict[str, Callable[[Config], dict[str, Any]]] = {
    "holds 0 tokens, and 0.000000000000000005 are to be": lambda config: bond(config, 5, refuse),
    "has 0.000000000000000101 tokens bonded": lambda config: leave(config, AUDITOR_BOND + 1, refuse),
    "no tokens are exiting": lambda config: withdraw(config, refuse),
    "nothing was signed": lambda config: leave(config, 1, refuse),
}


def test_an_impossible_request_is_refused_and_queues_nothing(world: World, harness: AuditorHarness) -> None:
    nonce = tx.next_nonce(world.chain.rpc, AUDITOR.account)
    for text, command in REFUSED.items():
        with pytest.raises(SapoError, match=text) as refusal:
            command(harness.config())
        assert refusal.value.hint
    assert trio.run(harness.ledger.pending) == 0
    assert tx.next_nonce(world.chain.rpc, AUDITOR.account) == nonce


def test_a_sufficient_bond_sends_no_transaction(world: World, harness: AuditorHarness) -> None:
    nonce = tx.next_nonce(world.chain.rpc, AUDITOR.account)
    kept = done("nothing, for the bond suffices", tokens=0, bonded=AUDITOR_BOND)
    assert bond(harness.config(), None, refuse) == kept
    assert tx.next_nonce(world.chain.rpc, AUDITOR.account) == nonce


def test_a_bond_of_an_account_that_is_no_auditor_is_refused(world: World) -> None:
    worker = AuditorHarness(world, WORKERS[0], CheckerPool(world.manifest.suite), audits=False)
    with pytest.raises(SapoError, match="is not an auditor of this swarm"):
        bond(worker.config(), 5, refuse)
    with pytest.raises(SapoError, match="has 0 tokens bonded"):
        leave(worker.config(), None, refuse)


def test_an_interrupted_bond_is_finished_without_a_new_transaction(
    world: World, harness: AuditorHarness
) -> None:
    """The second command signs nothing new: it finishes the transaction that the first one queued."""
    slash(world)
    give(world, 300)
    assert trio.run(harness.ledger.bond, AUDITOR_BOND)
    assert not trio.run(harness.ledger.bond, AUDITOR_BOND)
    harness.ledger.close()  # nobody sends it: the process has ended
    finished = "the bond that was requested earlier, nothing new"
    assert bond(harness.config(), None, refuse) == done(finished, tokens=199, bonded=AUDITOR_BOND)
    assert bond(harness.config(), AUDITOR_BOND, agree) == done(tokens=98, bonded=2 * AUDITOR_BOND)


def test_an_exit_after_a_slash_is_refused_and_leaves_no_queued_transaction(
    world: World, harness: AuditorHarness
) -> None:
    slash_first = lambda _: slash(world)  # noqa: E731  # between the look at the stake and the transaction
    with pytest.raises(SapoError, match="the contract refuses the exit") as refusal:
        leave(harness.config(), 40, slash_first)
    assert "sapo ledger status" in refusal.value.hint
    assert trio.run(harness.ledger.pending) == 0
