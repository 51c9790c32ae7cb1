"""Events of the contracts in a range of blocks, as an endpoint serves them."""

from typing import Any, Final

from eth_utils import keccak
from web3 import Web3
from web3.types import FilterParams

from sapo_client.ledger.errors import NotYet
from sapo_client.ledger.records import RegistryEvent
from sapo_protocol.identifiers import Account, NodeId

LOG_CHUNKS: Final = (1_000, 100, 10, 1)
"""Blocks per ``eth_getLogs`` request: what public endpoints allow, and fewer where those hold too many."""

_REGISTERED = keccak(text="NodeRegistered(address,bytes32,uint64)")
_EVENT_TOPICS = 3
EPOCH_FINAL: Final = keccak(
    text="EpochFinal(uint64,(uint64,bytes32,bytes32,bytes32,uint256,bytes32),uint64,uint64,bytes32,uint64)"
)


def registry_events(web3: Web3, wanted: FilterParams, last_block: int) -> tuple[RegistryEvent, ...]:
    """Return the registry's events in a block range whose last block exists.

    Raises:
        NotYet: the endpoint lacks the last block, or shows an event that the registry never emits.
    """
    _require_block(web3, last_block)
    return tuple(_event(log) for log in web3.eth.get_logs(wanted))


def event_data(web3: Web3, wanted: FilterParams, last_block: int) -> tuple[bytes, ...]:
    """Return the data of events in a block range whose last block exists.

    Raises:
        NotYet: the endpoint lacks the last block.
    """
    _require_block(web3, last_block)
    return tuple(bytes(log["data"]) for log in web3.eth.get_logs(wanted))


def _require_block(web3: Web3, number: int) -> None:
    if web3.eth.block_number < number:
        raise NotYet(f"it has no block {number} yet", hint="wait for it")


def _event(log: Any) -> RegistryEvent:
    if len(log["topics"]) != _EVENT_TOPICS:
        raise NotYet(
            "the chain shows an event of the registry that the registry never emits",
            hint="use another RPC address: this one does not serve the swarm's contracts",
        )
    kind, account, node = (bytes(topic) for topic in log["topics"])
    not_after = int.from_bytes(bytes(log["data"]), "big") if kind == _REGISTERED else 0
    return RegistryEvent(Account(account[12:]), NodeId(node), not_after)
