"""Known test networks: on every other chain coins are assumed to be money."""

from collections.abc import Mapping
from typing import Final

from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc

TEST_NETWORKS: Final[Mapping[int, str]] = {
    DEFAULT_CHAIN_ID: "the embedded chain",
    1337: "a development chain",
    31337: "a development chain",
    97: "BNB Smart Chain Testnet",
    300: "ZKsync Sepolia",
    5003: "Mantle Sepolia",
    10200: "Gnosis Chiado",
    17000: "Holesky",
    43113: "Avalanche Fuji",
    59141: "Linea Sepolia",
    80002: "Polygon Amoy",
    84532: "Base Sepolia",
    421614: "Arbitrum Sepolia",
    534351: "Scroll Sepolia",
    560048: "Hoodi",
    685685: "Gensyn Testnet",
    11155111: "Sepolia",
    11155420: "OP Sepolia",
}
"""An allow list, since no list of main networks can be complete."""


def agreed_chain_id(rpc: Rpc, *, costs_money: bool = False) -> int:
    """Return the id of the chain that all endpoints serve.

    Args:
        costs_money: accept chains that are not known test networks.

    Raises:
        LedgerError: no endpoint answers, they serve different chains, or coins may be money on this one.
    """
    chain_id = rpc.chain_id()
    if chain_id not in TEST_NETWORKS and not costs_money:
        raise LedgerError(
            f"chain {chain_id} is not a known test network: its coins may be money",
            hint="give the RPC address of a test network, since these contracts are not audited; to pay for"
            " a deployment on this chain, add --i-know-this-costs-money",
        )
    return chain_id
