"""The Ethereum Attestation Service itself on the embedded chain, if npm has installed its contracts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from eth_abi.abi import encode
from eth_account.signers.local import LocalAccount
from eth_utils import to_checksum_address
from support.ledger import DEPLOYER, ServedChain, address, keys
from web3 import Web3

from sapo_client.founding.deployer import Deployer
from sapo_client.ledger import transactions as tx
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.gate import EasGate

ATTESTERS: Final = tuple(sorted((keys(4), keys(5)), key=address))

_ARTIFACTS: Final = (
    Path(__file__).parents[1] / "chain/node_modules/@ethereum-attestation-service/eas-contracts/artifacts"
)
_NOTHING: Final = bytes(32)


@dataclass(frozen=True)
class Eas:
    """A deployed service on a served chain, with one schema for a gate and another one."""

    chain: ServedChain
    address: Account
    registry: Account
    schema: Digest
    other: Digest
    after_block: int

    def gate(self, attesters: Sequence[LocalAccount] = ATTESTERS) -> EasGate:
        """Return a gate that asks for an attestation by these."""
        return EasGate(self.address, self.schema, tuple(map(address, attesters)), self.after_block)

    def attest(
        self,
        attester: LocalAccount,
        recipient: Account,
        *,
        schema: Digest | None = None,
        expiration_seconds: int = 0,
        revocable: bool = True,
        refers_to: Digest | None = None,
    ) -> Digest:
        """Attest an account, and return the uid."""
        referred = bytes(refers_to or _NOTHING)
        data = (to_checksum_address(recipient), expiration_seconds, revocable, referred, b"", 0)
        receipt = self._send(attester, "attest", (bytes(schema or self.schema), data))
        return self.uids(receipt.block)[-1]

    def attest_all(self, attester: LocalAccount, recipients: Sequence[Account]) -> None:
        """Attest many accounts in one transaction."""
        data = [(to_checksum_address(recipient), 0, True, _NOTHING, b"", 0) for recipient in recipients]
        self._send(attester, "multiAttest", [(bytes(self.schema), data)])

    def revoke(self, attester: LocalAccount, uid: Digest, *, schema: Digest | None = None) -> None:
        """Revoke an attestation."""
        self._send(attester, "revoke", (bytes(schema or self.schema), (bytes(uid), 0)))

    def signed_for(self, attester: LocalAccount, recipient: Account) -> tuple[Any, ...]:
        """Return a request that anyone may send: the attester signs it for an account (EIP-712)."""
        nonce = self._view("getNonce", attester.address)
        typehash, separator = self._view("getAttestTypeHash"), self._view("getDomainSeparator")
        deadline = 2**63
        types = ("bytes32", "address", "bytes32", "address", "uint64", "bool", "bytes32", "bytes32")
        words = (typehash, attester.address, bytes(self.schema), to_checksum_address(recipient), 0, True)
        struct = encode(
            (*types, "uint256", "uint256", "uint64"),
            (*words, _NOTHING, Web3.keccak(b""), 0, nonce, deadline),
        )
        signed = attester.unsafe_sign_hash(Web3.keccak(b"\x19\x01" + separator + Web3.keccak(struct)))
        signature = (signed.v, signed.r.to_bytes(32, "big"), signed.s.to_bytes(32, "big"))
        data = (to_checksum_address(recipient), 0, True, _NOTHING, b"", 0)
        return (bytes(self.schema), data, signature, attester.address, deadline)

    def attest_by_delegation(self, sender: LocalAccount, request: tuple[Any, ...]) -> Digest:
        """Send a request that an attester signed, and return the uid."""
        receipt = self._send(sender, "attestByDelegation", request)
        return self.uids(receipt.block)[-1]

    def uids(self, block: int) -> list[Digest]:
        """Return the uids in the service's events of a block."""
        where = {"address": to_checksum_address(self.address), "fromBlock": block, "toBlock": block}
        logs = self.chain.rpc.ask(lambda web3: web3.eth.get_logs(where))  # type: ignore[arg-type]
        return [Digest(bytes(log["data"])) for log in logs]

    def _view(self, function: str, *arguments: object) -> Any:
        where, abi = to_checksum_address(self.address), _artifact("EAS")["abi"]
        return self.chain.rpc.ask(
            lambda web3: web3.eth.contract(where, abi=abi).functions[function](*arguments).call()
        )

    def _send(self, signer: LocalAccount, function: str, *arguments: object) -> tx.Receipt:
        contract = _contract("EAS", self.address)
        data = bytes.fromhex(contract.encode_abi(function, arguments)[2:])
        return self.chain.send(signer, self.address, data)


def deploy_eas(chain: ServedChain) -> Eas:
    """Deploy the service and register two schemas; skip the test if its contracts are not installed."""
    if not _ARTIFACTS.is_dir():
        pytest.skip("the contracts of EAS are not installed: `make test` installs them where npm is")
    registry = _create(chain, "SchemaRegistry")
    service = _create(chain, "EAS", to_checksum_address(registry))
    schema, other = (_register(chain, registry, text) for text in ("bool isMember", "string remark"))
    return Eas(chain, service, registry, schema, other, chain.engine.head.block_number)


def schema_with(eas: Eas, resolver: Account | None, *, revocable: bool) -> Digest:
    """Register another schema, and return its uid."""
    return _register(eas.chain, eas.registry, "bool isGuest", resolver=resolver, revocable=revocable)


def deploy_resolver(eas: Eas) -> Account:
    """Deploy a resolver that comes with the service: its owner says whether attestations can be revoked."""
    return _create(eas.chain, "resolver/examples/RevocationResolver", to_checksum_address(eas.address))


def set_revocation(eas: Eas, resolver: Account, *, allowed: bool) -> None:
    """Let attestations of the resolver's schemas be revoked, or not."""
    artifact = _artifact("resolver/examples/RevocationResolver")
    contract = Web3().eth.contract(address=to_checksum_address(resolver), abi=artifact["abi"])
    eas.chain.send(DEPLOYER, resolver, bytes.fromhex(contract.encode_abi("setRevocation", (allowed,))[2:]))


def _create(chain: ServedChain, name: str, *arguments: object) -> Account:
    artifact = _artifact(name)
    contract = Web3().eth.contract(abi=artifact["abi"], bytecode=artifact["bytecode"])
    data = bytes.fromhex(str(contract.constructor(*arguments).data_in_transaction)[2:])
    created = Deployer(DEPLOYER).send(chain.rpc, tx.Call(None, data)).created
    assert created is not None
    return created


def _register(
    chain: ServedChain,
    registry: Account,
    text: str,
    *,
    resolver: Account | None = None,
    revocable: bool = True,
) -> Digest:
    where = to_checksum_address(resolver or Account(bytes(20)))
    data = _contract("SchemaRegistry", registry).encode_abi("register", (text, where, revocable))
    chain.send(DEPLOYER, registry, bytes.fromhex(data[2:]))
    packed = text.encode() + bytes(resolver or bytes(20)) + bytes([revocable])
    return Digest(Web3.keccak(packed))


def _contract(name: str, at: Account) -> Any:
    return Web3().eth.contract(address=to_checksum_address(at), abi=_artifact(name)["abi"])


def _artifact(name: str) -> Any:
    path = _ARTIFACTS / f"contracts/{name}.sol/{name.rpartition('/')[2]}.json"
    return json.loads(path.read_text(encoding="utf-8"))
