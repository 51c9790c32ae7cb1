"""Readable descriptions of what an account is about to sign, for its owner."""

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

Words = Mapping[str, Any]
"""Names and values, in the order in which they are signed."""


def statement_words(statement: Statement, domain: Domain) -> Words:
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


def transaction_words(
    function: str, signer: Signer, contract: Account | None, fields: Words, follows: str
) -> Words:
    """Return a transaction's function, arguments and consequences.

    Args:
        function: its name with the contract, like ``NodeRegistry.revoke``.
        contract: its address.
        follows: the consequences in words, for readers who do not know the contract.
    """
    return {
        "transaction": function,
        "chain id": signer.chain_id,
        "contract": str(contract),
        "account": str(signer.account),
        **fields,
        "what follows": follows,
    }


def registration_words(signer: Signer, manifest: Manifest, node: NodeId, not_after: int) -> Words:
    """Return the transaction that claims a node key for an account."""
    fields = {"node key": "0x" + node.hex(), "not after": _moment(not_after)}
    follows = "what this key shares counts for the account, until then or until it is revoked"
    return transaction_words(
        "NodeRegistry.register", signer, contract=manifest.registry, fields=fields, follows=follows
    )


def revocation_words(signer: Signer, manifest: Manifest, node: NodeId) -> Words:
    """Return the transaction that ends an account's claim on a node key."""
    follows = "the account claims this key no more; its certificate counts until it ends"
    fields = {"node key": "0x" + node.hex()}
    return transaction_words(
        "NodeRegistry.revoke", signer, contract=manifest.registry, fields=fields, follows=follows
    )


def lines(words: Words) -> list[str]:
    """Return a statement or transaction as text, one line per value."""
    width = max(map(len, words))
    return [f"  {name:<{width}}  {value}" for name, value in words.items()]


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()} ({seconds})"


def show_signed(words: Words) -> None:
    """Print what the account signs; its operator is not asked while a node runs."""
    say("\n".join(("this account signs:", *lines(words))))
