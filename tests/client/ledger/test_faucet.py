"""The faucet and the token, on the embedded chain."""

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

from sapo_client.founding.contracts import fund
from sapo_protocol.identifiers import Account

DAY_SECONDS = 24 * 3600
TOKEN = 10**18


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


def test_a_dry_faucet_says_so(chain: ServedChain) -> None:
    dry = deploy_contracts(chain, faucet_tokens=0, faucet_wei=0)
    assert refused_as(lambda: _drip(dry, address(ALICE))) == "Empty"


def test_a_faucet_gives_what_it_has_left(chain: ServedChain) -> None:
    low = deploy_contracts(chain, faucet_tokens=30 * TOKEN, faucet_wei=0)
    _drip(low, address(ALICE))
    assert low.token.balance(address(ALICE)) == 30 * TOKEN
