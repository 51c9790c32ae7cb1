"""The contracts' functions with our types on both sides; web3 stays inside.

Every method blocks: call it in a worker thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from eth_utils import keccak, to_checksum_address
from web3 import Web3
from web3.types import FilterParams

from sapo_client.ledger.artefact import CONTRACTS, Artefact, load
from sapo_client.ledger.errors import NotYet
from sapo_client.ledger.records import EpochRecord
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest, NodeId


@dataclass(frozen=True, slots=True)
class RegistryEvent:
    """A claim on a node key, or its end (``not_after_seconds`` 0)."""

    account: Account
    node: NodeId
    not_after_seconds: int


class _Contract:
    NAME: ClassVar[str]

    def __init__(self, rpc: Rpc, address: Account) -> None:
        self.address = address
        self._rpc = rpc

    @property
    def artefact(self) -> Artefact:
        return load(self.NAME)

    def is_deployed(self) -> bool:
        """Whether the code at the address is this contract's."""
        where = to_checksum_address(self.address)
        code = self._rpc.agree(lambda web3: bytes(web3.eth.get_code(where)), f"the code at {where}")
        return self.artefact.is_code(code)

    def _call(self, function: str, *arguments: object) -> Any:
        return self._rpc.ask(lambda web3: self._bind(web3).functions[function](*arguments).call())

    def _encode(self, function: str, *arguments: object) -> bytes:
        return bytes.fromhex(self._bind(Web3()).encode_abi(function, arguments)[2:])

    def _bind(self, web3: Web3) -> Any:
        return web3.eth.contract(address=to_checksum_address(self.address), abi=list(self.artefact.abi))


class Registry(_Contract):
    """``NodeRegistry``: which node keys an account speaks for."""

    NAME = "NodeRegistry"

    def register(self, node_key: NodeId, not_after_seconds: int) -> bytes:
        """Call data that claims a node key for the sender."""
        return self._encode("register", bytes(node_key), not_after_seconds)

    def revoke(self, node_key: NodeId) -> bytes:
        """Call data that ends the sender's claim."""
        return self._encode("revoke", bytes(node_key))

    def is_live(self, account: Account, node_key: NodeId) -> bool:
        """Whether an account claims a key at the moment."""
        return bool(self._call("isLive", to_checksum_address(account), bytes(node_key)))

    def live_nodes(self, account: Account) -> tuple[NodeId, ...]:
        """The keys that an account claims at the moment."""
        return tuple(map(NodeId, self._call("liveNodes", to_checksum_address(account))))

    def deployment_block(self) -> int:
        """Where the events begin."""
        return int(self._call("deploymentBlock"))

    def events(self, first_block: int, last_block: int) -> list[RegistryEvent]:
        """Claims and their ends in blocks that stay, oldest first.

        Raises:
            NotYet, Disagreement: the endpoints are not that far, or disagree.
        """
        wanted: FilterParams = {
            "address": to_checksum_address(self.address),
            "fromBlock": _block(first_block),
            "toBlock": _block(last_block),
        }
        found = self._rpc.agree(lambda web3: _events(web3, wanted, last_block), "the registry's events")
        return list(found)


class Ledger(_Contract):
    """``EpochLedger``: one posting per epoch."""

    NAME = "EpochLedger"

    def post(self, root: EpochRoot, signatures: Sequence[bytes]) -> bytes:
        """Call data that posts an epoch; signatures ascend by signer."""
        return self._encode("post", *_fields(root), list(signatures))

    def auditors(self) -> tuple[tuple[Account, ...], int]:
        """The accounts whose signatures count, ascending, and how many a posting needs."""
        return tuple(map(Account.from_hex, self._call("auditors"))), int(self._call("quorum"))

    def next_epoch(self) -> int:
        """The lowest epoch that can still be posted."""
        return int(self._call("nextEpoch"))

    def record(self, epoch: int) -> EpochRecord | None:
        """What was posted for an epoch, if anything was."""
        contribution, cumulative, archive, total, posted_at = self._call("record", epoch)
        if posted_at == 0:
            return None
        root = EpochRoot(epoch, Digest(contribution), Digest(cumulative), total, Digest(archive))
        return EpochRecord(root, posted_at)

    def digest(self, root: EpochRoot) -> Digest:
        """What the contract wants auditors to sign."""
        return Digest(self._call("epochRootDigest", *_fields(root)))

    def clock(self) -> tuple[int, int]:
        """Genesis time and epoch length, in seconds."""
        return int(self._call("genesisSeconds")), int(self._call("epochSeconds"))

    def distributor(self) -> "Distributor":
        """The contract that pays what this one grants; the ledger created it."""
        return Distributor(self._rpc, Account.from_hex(self._call("distributor")))


class Distributor(_Contract):
    """``RewardDistributor``: claims against the latest cumulative root."""

    NAME = "RewardDistributor"

    def claim(self, account: Account, cumulative: int, proof: Sequence[bytes]) -> bytes:
        """Call data that pays an account what it has not been paid yet."""
        return self._encode("claim", to_checksum_address(account), cumulative, list(map(bytes, proof)))

    def claimed(self, account: Account) -> int:
        """Points that an account was paid so far."""
        return int(self._call("claimed", to_checksum_address(account)))

    def root_of(self, account: Account, cumulative: int, proof: Sequence[bytes]) -> Digest:
        """The root that the contract computes from a proof."""
        return Digest(self._call("rootOf", to_checksum_address(account), cumulative, list(map(bytes, proof))))

    def token(self) -> "Token":
        """What it pays."""
        return Token(self._rpc, Account.from_hex(self._call("token")))


class Token(_Contract):
    """``SapoToken``, or any other ERC-20."""

    NAME = "SapoToken"

    def balance(self, account: Account) -> int:
        """What an account holds, in the token's smallest unit."""
        return int(self._call("balanceOf", to_checksum_address(account)))

    def transfer(self, receiver: Account, amount: int) -> bytes:
        """Call data that sends tokens."""
        return self._encode("transfer", to_checksum_address(receiver), amount)


class Faucet(_Contract):
    """``Faucet``: the first tokens and coins of a test network."""

    NAME = "Faucet"

    def drip(self, account: Account) -> bytes:
        """Call data that serves an account."""
        return self._encode("drip", to_checksum_address(account))


def error_name(data: bytes) -> str | None:
    """The name of the custom error behind a revert's data, if it is one of our contracts'."""
    return _error_names().get(data[:4])


def _error_names() -> dict[bytes, str]:
    entries = (entry for name in CONTRACTS for entry in load(name).abi if entry["type"] == "error")
    return {keccak(text=_signature(entry))[:4]: entry["name"] for entry in entries}


def _signature(entry: Any) -> str:
    return f"{entry['name']}({','.join(field['type'] for field in entry['inputs'])})"


_REGISTERED = keccak(text="NodeRegistered(address,bytes32,uint64)")


def _events(web3: Web3, wanted: FilterParams, last_block: int) -> tuple[RegistryEvent, ...]:
    if web3.eth.block_number < last_block:
        raise NotYet(f"it has no block {last_block} yet", hint="wait for it")
    return tuple(_event(log) for log in web3.eth.get_logs(wanted))


def _event(log: Any) -> RegistryEvent:
    kind, account, node = (bytes(topic) for topic in log["topics"])
    not_after = int.from_bytes(bytes(log["data"]), "big") if kind == _REGISTERED else 0
    return RegistryEvent(Account(account[12:]), NodeId(node), not_after)


def _fields(root: EpochRoot) -> tuple[object, ...]:
    return (
        root.epoch,
        bytes(root.contribution_root),
        bytes(root.cumulative_root),
        root.total,
        bytes(root.archive_digest),
    )


def _block(number: int) -> Any:
    return number
