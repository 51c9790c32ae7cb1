"""The chain's rules: Ethereum as of Prague, except that blocks may share a second."""

from collections.abc import Iterable
from typing import Any

from eth.chains.base import Chain
from eth.db.atomic import AtomicDB
from eth.vm.forks.prague import PragueVM
from eth_utils import ValidationError

from sapo_client.ledger.chain.store import KeyValueDatabase
from sapo_protocol.identifiers import Account

GAS_LIMIT = 30_000_000
"""Ethereum's own limit for years; the largest deployment of this project needs a tenth of it."""

GENESIS_WEI = 10**24
"""A million coins per funded account: never the reason why a local swarm stops."""


class SameSecondPragueVM(PragueVM):  # type: ignore[misc]  # py-evm is outside our types
    """Prague rules for blocks that are mined when their transaction arrives.

    py-evm asks for strictly rising timestamps. With several blocks per second these would run ahead of
    the clock, and "the last block before noon" would no longer be settled when noon has come.
    """

    @classmethod
    def validate_header(cls, header: Any, parent_header: Any) -> None:
        """Refuse a header that does not follow its parent."""
        if header.block_number != parent_header.block_number + 1:
            raise ValidationError(f"block {header.block_number} follows {parent_header.block_number}")
        if header.timestamp < parent_header.timestamp:
            raise ValidationError(f"timestamp {header.timestamp} is before {parent_header.timestamp}")
        if header.gas_limit != GAS_LIMIT:
            raise ValidationError(f"gas limit {header.gas_limit} is not {GAS_LIMIT}")


def open_chain(pairs: KeyValueDatabase, chain_id: int) -> Any:
    """The py-evm chain over existing pairs."""
    return _rules(chain_id)(AtomicDB(pairs))


def create_chain(pairs: KeyValueDatabase, chain_id: int, timestamp: int, funded: Iterable[Account]) -> Any:
    """The py-evm chain with a new genesis block; its pairs are pending, not committed."""
    header = {"difficulty": 0, "gas_limit": GAS_LIMIT, "timestamp": timestamp, "extra_data": b"sapo"}
    state = {
        bytes(account): {"balance": GENESIS_WEI, "nonce": 0, "code": b"", "storage": {}} for account in funded
    }
    return _rules(chain_id).from_genesis(AtomicDB(pairs), header, state)


def _rules(chain_id: int) -> Any:
    configuration = {"chain_id": chain_id, "vm_configuration": ((0, SameSecondPragueVM),)}
    return Chain.configure(__name__="EmbeddedChain", **configuration)
