"""The faucet and the token, on the embedded chain."""

import pytest
from eth_abi.abi import encode as encode_abi
from eth_utils import to_checksum_address
from support.ledger import (
    ALICE,
    BOB,
    DEPLOYER,
    STRANGER,
    Contracts,
    ServedChain,
    address,
    deploy_contracts,
    refused_as,
)

from sapo_client.founding.contracts import FaucetRefusal, fund
from sapo_client.founding.deployer import Deployer
from sapo_client.ledger.artifact import load
from sapo_client.ledger.transactions import Call
from sapo_protocol.identifiers import Account

DAY_SECONDS = 24 * 3600
TOKEN = 10**18
BURNER = bytes.fromhex("6c614e205b600190038060035700600052600d6013f3")
"""Makes a contract whose code counts from 20,000 to 0, for half a million gas, when coins come."""


def _coins(chain: ServedChain, account: Account) -> int:
    return chain.rpc.ask(lambda web3: web3.eth.get_balance(to_checksum_address(account)))


def _drip(contracts: Contracts, account: Account) -> None:
    contracts.chain.send(BOB, contracts.faucet.address, contracts.faucet.drip(account))


def test_a_newcomer_without_coins_is_served_by_another(contracts: Contracts) -> None:
    newcomer = Account(bytes(19) + b"\x77")
    before = _coins(contracts.chain, newcomer)
    fund(contracts.chain.rpc, DEPLOYER, contracts.deployment.faucet, newcomer)
    assert contracts.token.balance(newcomer) == 100 * TOKEN
    assert _coins(contracts.chain, newcomer) - before == 10 * TOKEN


def test_an_address_is_served_once_a_day(contracts: Contracts) -> None:
    chain, account = contracts.chain, address(STRANGER)
    _drip(contracts, account)
    assert refused_as(lambda: _drip(contracts, account)) == "TooEarly"
    _drip(contracts, address(ALICE))
    chain.now_seconds = chain.engine.head.timestamp + DAY_SECONDS
    _drip(contracts, account)
    assert contracts.token.balance(account) == 200 * TOKEN


def test_an_empty_faucet_is_reported(chain: ServedChain) -> None:
    dry = deploy_contracts(chain, faucet_tokens=0, faucet_wei=0)
    assert refused_as(lambda: _drip(dry, address(ALICE))) == "Empty"


def test_a_low_faucet_gives_its_remaining_tokens(chain: ServedChain) -> None:
    low = deploy_contracts(chain, faucet_tokens=30 * TOKEN, faucet_wei=0)
    _drip(low, address(ALICE))
    assert low.token.balance(address(ALICE)) == 30 * TOKEN


def _create(chain: ServedChain, code: bytes) -> Account:
    created = Deployer(DEPLOYER).send(chain.rpc, Call(None, code)).created
    assert created is not None
    return created


def _faucet_of_0_1_0(contracts: Contracts) -> Account:
    """Deploy one as it was, and give it coins and tokens for two."""
    chain, token = contracts.chain, contracts.token
    terms = encode_abi(
        ["address", "uint256", "uint256"], [to_checksum_address(token.address), 100 * TOKEN, 10 * TOKEN]
    )
    faucet = _create(chain, load("Faucet", 1).bytecode + terms)
    chain.send(DEPLOYER, token.address, token.transfer(faucet, 200 * TOKEN))
    chain.send(DEPLOYER, faucet, b"", value_wei=20 * TOKEN)
    return faucet


@pytest.mark.parametrize("version", [1, 2])
def test_requests_for_contracts_are_refused_without_a_transaction(contracts: Contracts, version: int) -> None:
    """Else it would let the payer pay for all that it likes to do when it gets coins."""
    chain, newcomer = contracts.chain, address(STRANGER)
    faucet = contracts.deployment.faucet if version > 1 else _faucet_of_0_1_0(contracts)
    burner = _create(chain, BURNER)
    before = _coins(chain, address(DEPLOYER))
    with pytest.raises(FaucetRefusal, match="serves no contracts"):
        fund(chain.rpc, DEPLOYER, faucet, burner)
    assert _coins(chain, address(DEPLOYER)) == before
    fund(chain.rpc, DEPLOYER, faucet, newcomer)
    assert contracts.token.balance(newcomer) == 100 * TOKEN


def test_the_faucet_itself_serves_no_contract(contracts: Contracts) -> None:
    burner = _create(contracts.chain, BURNER)
    assert refused_as(lambda: _drip(contracts, burner)) == "HasCode"
