"""The compiled contracts that the package ships: interface, bytecode, and what they were compiled from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from eth_utils import keccak

CONTRACTS: Final = (
    "AccountBond",
    "EpochLedger",
    "Faucet",
    "FraudVerifier",
    "NodeRegistry",
    "RewardDistributor",
    "SapoToken",
    "StakeVault",
)

LEDGER_VERSION: Final = 2
"""Of the contracts in this package: auditors sign the turn in which a root was proposed."""

EARLIER: Final[Mapping[str, tuple[int, ...]]] = {
    "EpochLedger": (1,),
    "Faucet": (1,),
    "FraudVerifier": (1,),
    "NodeRegistry": (1,),
    "RewardDistributor": (1,),
}
"""Earlier deployed versions whose points can still be read and claimed. Version 1 is of release 0.1.0."""


@dataclass(frozen=True)
class Artifact:
    """One compiled contract.

    Attributes:
        bytecode: what a deployment sends, before the constructor's arguments.
        deployed: the code that then lies on the chain, its immutables still zero.
        immutable_spans: (start, length) of the bytes that the constructor fills in.
        sources: path to SHA-256 of every source file behind it.
    """

    name: str
    abi: tuple[Mapping[str, Any], ...]
    bytecode: bytes
    deployed: bytes
    immutable_spans: tuple[tuple[int, int], ...]
    sources: Mapping[str, str]

    def is_code(self, code: bytes) -> bool:
        """Whether code found on a chain is this contract, whatever its immutables."""
        return self._masked(code) == self.deployed

    def _masked(self, code: bytes) -> bytes:
        masked = bytearray(code)
        for start, length in self.immutable_spans:
            masked[start : start + length] = bytes(len(masked[start : start + length]))
        return bytes(masked)


@cache
def load(name: str, version: int = LEDGER_VERSION) -> Artifact:
    """Return the artifact of one of ``CONTRACTS``, of this version or of one in ``EARLIER``."""
    folder = resources.files("sapo_client.ledger") / "artifacts"
    if version != LEDGER_VERSION:
        folder /= f"v{version}"
    text = (folder / f"{name}.json").read_text()
    raw = json.loads(text)
    return Artifact(
        name=raw["contractName"],
        abi=tuple(raw["abi"]),
        bytecode=bytes.fromhex(raw["bytecode"][2:]),
        deployed=bytes.fromhex(raw["deployedBytecode"][2:]),
        immutable_spans=tuple((start, length) for start, length in raw["immutableSpans"]),
        sources=raw["sources"],
    )


def error_name(data: bytes) -> str | None:
    """Return the name of the custom error behind a revert's data, if it is one of our contracts'."""
    return _error_names().get(data[:4])


@cache
def _error_names() -> dict[bytes, str]:
    entries = (entry for name in CONTRACTS for entry in load(name).abi if entry["type"] == "error")
    return {keccak(text=_signature(entry))[:4]: entry["name"] for entry in entries}


def _signature(entry: Mapping[str, Any]) -> str:
    return f"{entry['name']}({','.join(field['type'] for field in entry['inputs'])})"
