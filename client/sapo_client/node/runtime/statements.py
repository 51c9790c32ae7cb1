"""Readable descriptions of the statements and transactions that an account signs, for its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sapo_client.observe.terminal import say
from sapo_protocol.eip712 import Domain, Statement, readable
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.manifest import Manifest

_MOMENTS: Final = frozenset({"not_before", "not_after"})

SignedFields = Mapping[str, Any]
"""Names and values, in the order in which they are signed."""


def describe_statement(statement: Statement, domain: Domain) -> SignedFields:
    """Return an EIP-712 statement's signed fields and its digest, to be compared with a wallet's."""
    fields = readable(statement, domain)
    moments = {name: _moment(value) for name, value in fields.items() if name in _MOMENTS}
    digest = "0x" + statement.digest(domain).hex()
    words = {**fields, **moments}
    named = {name.replace("_", " "): value for name, value in words.items()}
    return {"statement": type(statement).__name__, **named, "digest": digest}


@dataclass(frozen=True, slots=True)
class Signer:
    """The account that signs transactions, and the chain they are for."""

    chain_id: int
    account: Account


def describe_transaction(
    function: str, signer: Signer, contract: Account | None, fields: SignedFields, follows: str
) -> SignedFields:
    """Return a transaction's function, arguments and consequences.

    Args:
        function: its name with the contract, like ``NodeRegistry.revoke``.
        contract: its address.
        follows: the consequences, for readers who do not know the contract.
    """
    return {
        "transaction": function,
        "chain id": signer.chain_id,
        "contract": str(contract),
        "account": str(signer.account),
        **fields,
        "what follows": follows,
    }


def describe_registration(signer: Signer, manifest: Manifest, node: NodeId, not_after: int) -> SignedFields:
    """Return the transaction that claims a node key for an account."""
    fields = {"node key": "0x" + node.hex(), "not after": _moment(not_after)}
    follows = "what this key shares counts for the account, until then or until it is revoked"
    return describe_transaction(
        "NodeRegistry.register", signer, contract=manifest.registry, fields=fields, follows=follows
    )


def describe_revocation(signer: Signer, manifest: Manifest, node: NodeId) -> SignedFields:
    """Return the transaction that ends an account's claim on a node key."""
    follows = "the account claims this key no more; its certificate counts until it ends"
    fields = {"node key": "0x" + node.hex()}
    return describe_transaction(
        "NodeRegistry.revoke", signer, contract=manifest.registry, fields=fields, follows=follows
    )


def format_fields(fields: SignedFields) -> list[str]:
    """Return a statement or transaction as text, one line per value."""
    width = max(map(len, fields))
    return [f"  {name:<{width}}  {value}" for name, value in fields.items()]


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()} ({seconds})"


def show_signed(fields: SignedFields) -> None:
    """Print what the account signs; a running node does not ask for consent."""
    say("\n".join(("this account signs:", *format_fields(fields))))
