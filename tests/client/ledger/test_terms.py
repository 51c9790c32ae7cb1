"""The terms of manifest and contracts, and the treasury behind them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from eth_utils import to_checksum_address
from support.ledger import (
    DEPLOYER,
    POINTS_CAP,
    TOKENS_PER_POINT,
    Contracts,
    address,
    deploy_contracts,
    found,
    make_plan,
)
from support.swarm import make_suite

from sapo_client.errors import SapoError
from sapo_client.founding.defaults import MIN_CHALLENGE_SECONDS, clock_of
from sapo_client.founding.deployer import Deployer
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.artifact import load
from sapo_client.ledger.contract import EpochLedgerContract, Registry
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.history import History
from sapo_client.ledger.terms import Treasury, read_treasury, require_contracts, require_terms
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.terms.audits import AuditTerms

A = address(DEPLOYER)


@pytest.fixture
def contracts(tmp_path: Path) -> Iterator[Contracts]:
    made = found(tmp_path / "chain.sqlite")
    yield made
    made.chain.close()


def manifest_of(contracts: Contracts, points_cap: int = POINTS_CAP) -> Manifest:
    limits = Limits(slots_per_epoch=32, max_completions=8, points_per_epoch=points_cap)
    return replace(contracts.manifest(suite=make_suite()), limits=limits)


def test_contracts_of_one_deployment_have_the_terms_of_their_manifest(contracts: Contracts) -> None:
    require_terms(contracts.ledger, manifest_of(contracts))


def test_where_one_account_in_four_is_audited_the_cap_is_four_times_the_limit(contracts: Contracts) -> None:
    plain = manifest_of(contracts, POINTS_CAP // 4)
    sampled = replace(plain, version=2, audits=AuditTerms(samples=4, one_in=4))
    assert sampled.points_cap == POINTS_CAP
    require_terms(contracts.ledger, sampled)


@pytest.mark.parametrize("cap", [POINTS_CAP - 1, POINTS_CAP + 1])
def test_another_cap_is_refused(contracts: Contracts, cap: int) -> None:
    with pytest.raises(LedgerError, match=f"{POINTS_CAP} points per epoch, the manifest {cap}"):
        require_terms(contracts.ledger, manifest_of(contracts, cap))


def test_genuine_code_with_other_addresses_is_refused(contracts: Contracts) -> None:
    """Anyone may deploy the ledger's code with immutables of his own, such as another vault."""
    rpc, ledger = contracts.chain.rpc, contracts.ledger
    genuine = rpc.ask(lambda web3: bytes(web3.eth.get_code(to_checksum_address(ledger.address))))
    vault, forged = bytes(contracts.vault.address), bytes(deploy_contracts(contracts.chain).vault.address)
    assert vault in genuine
    receipt = _create(contracts, genuine.replace(vault, forged))
    assert receipt.created is not None
    false = EpochLedgerContract(rpc, receipt.created)
    assert false.is_deployed()
    assert false.vault().address == Account(forged)
    with pytest.raises(LedgerError, match="do not fit together"):
        require_terms(false, manifest_of(contracts))


def test_a_registry_of_another_ledger_is_refused(contracts: Contracts) -> None:
    """Who registered there would earn points and could claim none."""
    rpc, manifest = contracts.chain.rpc, manifest_of(contracts)
    require_contracts(contracts.registry, contracts.ledger, manifest)
    others = deploy_contracts(contracts.chain).registry
    earlier = _create(contracts, load("NodeRegistry", 1).deployed).created
    assert earlier is not None
    for registry in (others, Registry(rpc, earlier)):
        with pytest.raises(LedgerError, match="does not enrol"):
            require_contracts(registry, contracts.ledger, manifest)


def _create(contracts: Contracts, code: bytes) -> tx.Receipt:
    """Put some code on the chain as it is: PUSH3 size, DUP1, PUSH1 start, copy, return."""
    size = len(code).to_bytes(3, "big")
    init = bytes.fromhex(f"62{size.hex()}80600d6000396000f3") + code
    return Deployer(DEPLOYER).send(contracts.chain.rpc, tx.Call(None, init))


def test_a_treasury_is_read_from_the_chain(contracts: Contracts) -> None:
    history = History(contracts.ledger)
    before = read_treasury(contracts.distributor, history.recent(24))
    held = make_plan().reward_tokens
    assert before == Treasury(held, owed=0, tokens_per_point=TOKENS_PER_POINT, points_per_epoch=0.0)
    assert before.epochs_left is None
    contracts.settle(1, {A: 7})
    contracts.settle(4, {A: 12})
    granted = read_treasury(contracts.distributor, history.recent(24))
    assert granted == Treasury(held, 12 * TOKENS_PER_POINT, TOKENS_PER_POINT, points_per_epoch=3.0)
    assert history.recent(1) == [history.last()]


def test_the_duration_of_a_treasury_is_reported() -> None:
    rich = Treasury(tokens=1000, owed=100, tokens_per_point=3, points_per_epoch=10)
    assert rich.epochs_left == 30
    assert rich.in_words(86_400) == "about 30.0 days at this rate (30 epochs)"
    assert (rich.covers(333), rich.covers(334)) == (True, False)
    assert replace(rich, points_per_epoch=0).in_words(60) == "nothing was granted lately"
    assert "empty" in replace(rich, owed=1001).in_words(60)
    assert replace(rich, owed=1001).epochs_left == 0


@pytest.mark.parametrize(
    ("chain_id", "epoch", "window", "found"),
    [
        (31337, None, None, (600, 60)),
        (31337, 60, None, (60, 6)),
        (31337, 60, 59, (60, 59)),
        (11155111, None, None, (7200, 3600)),
        (11155111, 3600, None, (3600, 1800)),
        (11155111, 3600, MIN_CHALLENGE_SECONDS, (3600, 600)),
        (5, 86_400, None, (86_400, 43_200)),
    ],
)
def test_the_window_of_a_public_chain_is_long_enough_for_a_challenge(
    chain_id: int, epoch: int | None, window: int | None, found: tuple[int, int]
) -> None:
    assert clock_of(chain_id, epoch, window) == found


@pytest.mark.parametrize(
    ("chain_id", "epoch", "window"),
    [(11155111, 600, None), (11155111, 3600, 599), (11155111, 3600, 3600), (31337, 60, 60), (31337, 60, 600)],
)
def test_a_window_that_is_too_short_or_too_long_is_refused(
    chain_id: int, epoch: int, window: int | None
) -> None:
    with pytest.raises(SapoError, match="postings could be challenged"):
        clock_of(chain_id, epoch, window)
